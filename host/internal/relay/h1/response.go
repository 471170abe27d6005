package h1

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/catena-dev/catena/internal/http1"
	"github.com/catena-dev/catena/sdk/stagev1/header"
)

// MaxHead is the longest head of a response, in bytes. The audit event's bodies travel in that of older stages.
const MaxHead = 16 << 20

// MaxConnection bounds the Connection headers of a response, in bytes: each other header is looked for in them.
const MaxConnection = 1 << 10

// ErrMalformed is in the errors of responses that are not HTTP.
var ErrMalformed = errors.New("malformed")

// Field is a header line.
type Field = http1.Field

// Response is the parsed head of a response. Its strings are parts of one text. It can
// be read into again and again.
type Response struct {
	Status int
	// Fields are all headers.
	Fields []Field
	// Connection are the values of the Connection header.
	Connection []string
	// Length of the body as declared, -1 if it is not.
	Length int64
	// Chunked: the body comes in chunks.
	Chunked bool
	// Whole is what CopyBody takes room from to pass each chunk on as a whole. Without it, many are passed on at once,
	// and one in pieces.
	Whole *Budget
	// Declined: the stage declines the request.
	Declined bool
	// Raw: the stage passes the response on as another server has sent it.
	Raw bool
	// Watch is what the stage promises of the response to a watch.
	Watch string
	// Undelivered is the value of the header of that name: the host's proof that no process
	// has accepted the request, if it is the right one.
	Undelivered string
	// Upgrade is the protocol to which a 101 has switched.
	Upgrade string

	// listed is the length of Connection.
	listed int
	// http10: the response is in HTTP/1.0.
	http10 bool
	// last: the stage will close the connection.
	last bool
}

// Forget lets go of the fields, whose text may be long.
func (resp *Response) Forget() {
	fields := resp.Fields
	clear(fields)
	resp.Fields = nil
	if cap(fields) <= FreeLines {
		resp.Fields = fields[:0]
	}
}

// ReadResponse reads the head of the next response, informational ones included. Errors are ErrMalformed, ErrNoRoom,
// the cause of the end of ctx if a large head waits for room by then, or those of the connection, io.EOF if the stage
// has closed it.
func (c *Conn) ReadResponse(ctx context.Context, resp *Response) error {
	c.FreeHead()
	text, err := c.until(ctx, "\r\n\r\n", MaxHead)
	c.settle(len(text))
	if cost := linesCost(text); cost > 0 {
		err = c.take(ctx, cost)
	}
	if errors.Is(err, http1.ErrTooLong) {
		return fmt.Errorf("%w head: more than %d bytes", ErrMalformed, MaxHead)
	}
	if errors.Is(err, ErrNoRoom) {
		return fmt.Errorf("%w for its head: large heads of responses of this stage, or of all stages, hold too many bytes", err)
	}
	if err != nil {
		return err
	}
	if err := resp.parse(text); err != nil {
		return fmt.Errorf("%w head: %w", ErrMalformed, err)
	}
	return nil
}

// HasBody reports whether a body follows in the response to a request with that method.
func (resp *Response) HasBody(method string) bool {
	return method != http.MethodHead && http1.BodyAllowed(resp.Status)
}

// Reusable reports whether the connection can take another request after resp, the response
// to one with that method, whose body has been copied unless it is a decline.
func (c *Conn) Reusable(resp *Response, method string) bool {
	switch {
	case resp.last || len(c.in.Buffered()) > 0 || c.cut.Load():
		return false
	case !resp.HasBody(method):
		return true
	case resp.Declined:
		return resp.Length == 0
	default: // a body without a length ends with the connection
		return resp.Chunked || resp.Length >= 0
	}
}

// SaysMore reports whether the stage has sent more than resp, whose body has been copied unless it is a decline.
func (c *Conn) SaysMore(resp *Response) bool {
	return len(c.in.Buffered()) > 0 && !c.cut.Load() && (!resp.Declined || resp.Length == 0)
}

// parse reads a head, which ends with an empty line. It takes only what a correct
// server sends: nothing that two parsers could understand differently.
func (resp *Response) parse(text string) error {
	*resp = Response{Fields: resp.Fields[:0], Connection: resp.Connection[:0], Length: -1}
	line, rest, ok := strings.Cut(text, "\r\n")
	if !ok {
		return errors.New("no status line")
	}
	if err := resp.parseStatus(line); err != nil {
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
		f, err := http1.ParseField(line)
		if err != nil {
			return err
		}
		again := f.Key == "Content-Length" && resp.Length >= 0
		if err := resp.note(f); err != nil {
			return err
		}
		if !again {
			resp.Fields = append(resp.Fields, f)
		}
	}
	if rest != "" {
		return errors.New("head goes on after its end")
	}
	return resp.check()
}

func (resp *Response) parseStatus(line string) error {
	version, rest, _ := strings.Cut(line, " ")
	code, reason, _ := strings.Cut(rest, " ")
	switch version {
	case "HTTP/1.1":
	case "HTTP/1.0":
		resp.http10, resp.last = true, true
	default:
		return fmt.Errorf("not HTTP/1: %.40q", line)
	}
	if len(code) != 3 || !http1.IsDigits(code) || code[0] == '0' {
		return fmt.Errorf("invalid status line %.40q", line)
	}
	if !http1.IsText(reason) {
		return errors.New("invalid byte in the status line")
	}
	resp.Status, _ = strconv.Atoi(code)
	return nil
}

// note keeps what the host itself has to know of a header.
func (resp *Response) note(f Field) error {
	switch f.Key {
	case "Content-Length":
		n, err := http1.ParseLength(f.Value)
		if err != nil {
			return err
		}
		if resp.Length >= 0 && resp.Length != n {
			return errors.New("two lengths")
		}
		resp.Length = n
	case "Transfer-Encoding":
		if resp.Chunked || !strings.EqualFold(f.Value, "chunked") {
			return fmt.Errorf("unknown transfer encoding %.40q", f.Value)
		}
		resp.Chunked = true
	case "Connection":
		resp.Connection = append(resp.Connection, f.Value)
		if resp.listed += len(f.Value) + 1; resp.listed > MaxConnection {
			return fmt.Errorf("more than %d bytes of Connection", MaxConnection)
		}
		resp.last = resp.last || http1.Listed([]string{f.Value}, "close")
	case "Upgrade":
		resp.Upgrade = f.Value
	case header.Decline:
		resp.Declined = true
	case header.Undelivered:
		resp.Undelivered = f.Value
	case header.Watch:
		resp.Watch = f.Value
	case header.Raw:
		resp.Raw = true
	}
	return nil
}

func (resp *Response) check() error {
	if resp.Chunked && resp.Length >= 0 {
		return errors.New("both a length and chunks")
	}
	if resp.Chunked && resp.http10 {
		return errors.New("chunks in HTTP/1.0")
	}
	if resp.Chunked && !http1.BodyAllowed(resp.Status) {
		return fmt.Errorf("chunks in a response with status %d", resp.Status)
	}
	return nil
}
