package httpserver

import (
	"fmt"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/catena-dev/catena/internal/http1"
)

// refusal is why a request is not handled. The connection is closed after it.
type refusal struct {
	status int
	reason string
}

func malformed(format string, args ...any) *refusal {
	return &refusal{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

func (r *refusal) Error() string { return fmt.Sprintf("%s: %s", http.StatusText(r.status), r.reason) }

// response returns the whole response.
func (r *refusal) response() []byte {
	text := fmt.Sprintf("%d %s", r.status, http.StatusText(r.status))
	body := text
	if r.reason != "" {
		body += ": " + r.reason
	}
	return fmt.Appendf(nil, "HTTP/1.1 %s\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n%s", text, body)
}

// framing is how the body of a request is delimited, and what its head says of the connection.
type framing struct {
	length  int64 // -1 if it is not declared
	chunked bool
	hosts   int
}

// parseRequest reads the head of a request, which ends with an empty line, into r. The strings of r are parts of it.
func parseRequest(r *http.Request, head string) *refusal {
	line, rest, _ := strings.Cut(head, "\r\n")
	if err := parseRequestLine(r, line); err != nil {
		return err
	}
	f := framing{length: -1}
	if err := f.parseHeader(r, rest); err != nil {
		return err
	}
	if f.hosts > 1 || f.hosts == 0 && r.Method != http.MethodConnect {
		return malformed("%d Host headers", f.hosts)
	}
	r.Close = http1.Listed(r.Header["Connection"], "close")
	if cc := r.Header["Cache-Control"]; len(cc) == 0 && len(r.Header["Pragma"]) > 0 && r.Header["Pragma"][0] == "no-cache" {
		r.Header["Cache-Control"] = []string{"no-cache"}
	}
	return f.apply(r)
}

func parseRequestLine(r *http.Request, line string) *refusal {
	method, rest, ok := strings.Cut(line, " ")
	target, proto, ok2 := strings.Cut(rest, " ")
	switch {
	case !ok || !ok2:
		return malformed("request line")
	case proto != "HTTP/1.1":
		return &refusal{http.StatusHTTPVersionNotSupported, "only HTTP/1.1 is spoken here"}
	case !http1.IsToken(method):
		return malformed("method")
	}
	r.Method, r.RequestURI = method, target
	r.Proto, r.ProtoMajor, r.ProtoMinor = proto, 1, 1
	authority := method == http.MethodConnect && !strings.HasPrefix(target, "/")
	if authority {
		target = "http://" + target
	}
	u, err := url.ParseRequestURI(target)
	if err != nil {
		return malformed("target")
	}
	if authority {
		u.Scheme = ""
	}
	r.URL, r.Host = u, u.Host
	return nil
}

// mostLines is how many lines a head may have: what is made of a short one is far larger.
const mostLines = 16 << 10

// parseHeader reads the lines after the first one.
func (f *framing) parseHeader(r *http.Request, text string) *refusal {
	lines := strings.Count(text, "\r\n") - 1
	if lines > mostLines {
		return &refusal{http.StatusRequestHeaderFieldsTooLarge, ""}
	}
	r.Header = make(http.Header, lines)
	values := make([]string, 0, lines)
	for {
		line, rest, ok := strings.Cut(text, "\r\n")
		if !ok || line == "" {
			return nil
		}
		text = rest
		field, err := http1.ParseField(line)
		if err != nil {
			return malformed("%v", err)
		}
		if err := f.note(r, field); err != nil {
			return err
		}
		if field.Key == "Host" || field.Key == "Transfer-Encoding" {
			continue
		}
		if earlier := r.Header[field.Key]; earlier != nil {
			r.Header[field.Key] = append(earlier, field.Value)
			continue
		}
		values = append(values, field.Value)
		r.Header[field.Key] = values[len(values)-1 : len(values) : len(values)]
	}
}

// note keeps what the server itself has to know of a header.
func (f *framing) note(r *http.Request, field http1.Field) *refusal {
	switch field.Key {
	case "Host":
		if f.hosts++; !httpguts.ValidHostHeader(field.Value) {
			return malformed("Host header")
		}
		if r.Host == "" {
			r.Host = field.Value
		}
	case "Content-Length":
		n, err := http1.ParseLength(field.Value)
		if err != nil || f.length >= 0 {
			return malformed("Content-Length")
		}
		f.length = n
	case "Transfer-Encoding":
		if f.chunked || !strings.EqualFold(field.Value, "chunked") {
			return &refusal{http.StatusNotImplemented, "unsupported transfer encoding"}
		}
		f.chunked = true
	}
	return nil
}

// apply sets what r says of its body.
func (f *framing) apply(r *http.Request) *refusal {
	switch {
	case f.chunked && f.length >= 0:
		return malformed("both a length and chunks")
	case f.chunked:
		r.ContentLength, r.TransferEncoding = -1, []string{"chunked"}
		return declareTrailers(r)
	default:
		r.ContentLength = max(f.length, 0)
		return nil
	}
}

// declareTrailers moves the names of the trailers from the header of a request to its trailers.
func declareTrailers(r *http.Request) *refusal {
	names, ok := r.Header["Trailer"]
	if !ok {
		return nil
	}
	delete(r.Header, "Trailer")
	var err *refusal
	trailer := http.Header{}
	http1.Elements(names, func(name string) bool {
		key := textproto.CanonicalMIMEHeaderKey(name)
		switch key {
		case "Transfer-Encoding", "Trailer", "Content-Length":
			err = malformed("trailer %s", key)
			return false
		}
		trailer[key] = nil
		return true
	})
	if len(trailer) > 0 {
		r.Trailer = trailer
	}
	return err
}
