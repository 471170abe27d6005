package relay

import (
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"

	"github.com/catena-dev/catena/sdk/stagev1/header"
)

// maxHead is the longest head of an answer. The audit event's bodies travel in it.
const maxHead = 16 << 20

// field is a header line.
type field struct{ key, value string }

// answer is the parsed head of an answer. Its strings are parts of one text.
type answer struct {
	status int
	// fields are all headers, with keys in canonical form.
	fields []field
	// length of the body as declared, -1 if it is not.
	length int64
	// chunked: the body comes in chunks.
	chunked bool
	// old: the answer is in HTTP/1.0.
	old bool
	// last: the stage will close the connection.
	last bool
	// declined: the stage says that the request is not its own.
	declined bool
	// refusal is the host's proof that no process has had the request, see Stage.Refusal.
	refusal string
	// upgrade is the protocol that a 101 has switched to.
	upgrade string
}

// parse reads a head, which ends with an empty line. It takes only what a correct
// server sends: nothing that two parsers could understand differently.
func (a *answer) parse(text string) error {
	*a = answer{fields: a.fields[:0], length: -1}
	line, rest, ok := strings.Cut(text, "\r\n")
	if !ok {
		return errors.New("no status line")
	}
	if err := a.parseStatus(line); err != nil {
		return err
	}
	for {
		line, rest, ok = strings.Cut(rest, "\r\n")
		if !ok {
			return errors.New("head does not end")
		}
		if line == "" {
			break
		}
		f, err := parseField(line)
		if err != nil {
			return err
		}
		again := f.key == "Content-Length" && a.length >= 0
		if err := a.note(f); err != nil {
			return err
		}
		if !again {
			a.fields = append(a.fields, f)
		}
	}
	if rest != "" {
		return errors.New("head goes on behind its end")
	}
	return a.check()
}

func (a *answer) parseStatus(line string) error {
	version, rest, _ := strings.Cut(line, " ")
	code, reason, _ := strings.Cut(rest, " ")
	switch version {
	case "HTTP/1.1":
	case "HTTP/1.0":
		a.old, a.last = true, true
	default:
		return fmt.Errorf("not HTTP/1: %.40q", line)
	}
	if len(code) != 3 || !isDigits(code) || code[0] == '0' {
		return fmt.Errorf("invalid status line %.40q", line)
	}
	if !isText(reason) {
		return errors.New("invalid byte in the status line")
	}
	a.status, _ = strconv.Atoi(code)
	return nil
}

func parseField(line string) (field, error) {
	key, value, ok := strings.Cut(line, ":")
	if !ok || !isToken(key) {
		return field{}, fmt.Errorf("invalid header line %.40q", line)
	}
	if !isText(value) {
		return field{}, fmt.Errorf("invalid byte in header %.40q", key)
	}
	return field{textproto.CanonicalMIMEHeaderKey(key), textproto.TrimString(value)}, nil
}

// note keeps what the relay itself has to know of a header.
func (a *answer) note(f field) error {
	switch f.key {
	case "Content-Length":
		n, err := parseLength(f.value)
		if err != nil {
			return err
		}
		if a.length >= 0 && a.length != n {
			return errors.New("two lengths")
		}
		a.length = n
	case "Transfer-Encoding":
		if a.chunked || !strings.EqualFold(f.value, "chunked") {
			return fmt.Errorf("unknown transfer encoding %.40q", f.value)
		}
		a.chunked = true
	case "Connection":
		if listed([]string{f.value}, "close") {
			a.last = true
		}
	case "Upgrade":
		a.upgrade = f.value
	case header.Decline:
		a.declined = true
	case header.Undelivered:
		a.refusal = f.value
	}
	return nil
}

func (a *answer) check() error {
	if a.chunked && a.length >= 0 {
		return errors.New("both a length and chunks")
	}
	if a.chunked && a.old {
		return errors.New("chunks in HTTP/1.0")
	}
	if a.chunked && !bodyAllowed(a.status) {
		return fmt.Errorf("chunks in an answer with status %d", a.status)
	}
	return nil
}

// bodyAllowed says whether an answer with that status can have a body.
func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}

func parseLength(s string) (int64, error) {
	if !isDigits(s) {
		return 0, fmt.Errorf("invalid length %.40q", s)
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("invalid length %.40q", s)
	}
	return n, nil
}

func isDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// isText says whether s has no control characters but tabs.
func isText(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}
