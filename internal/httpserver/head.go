package httpserver

import (
	"fmt"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"

	"github.com/catena-dev/catena/internal/http1"
)

// declared is what the handler has said of the body in the head.
type declared struct {
	length       int64 // -1 if it is not declared
	typed        bool
	encoded      bool // has a Content-Encoding
	identity     bool // Transfer-Encoding: identity
	transfer     bool // has a Transfer-Encoding
	trailers     bool
	connection   []string
	trailerNames []string
}

// append appends the head of a final response but for what depends on its body, and keeps what it says of that.
func (d *declared) append(dst []byte, status int, header http.Header, logf func(string, ...any)) []byte {
	dst = appendStatus(dst, status)
	for key, values := range header {
		if d.note(key, values, status) {
			dst = appendFields(dst, key, values)
		}
	}
	if value := header["Content-Length"]; len(value) > 0 && http1.BodyAllowed(status) {
		n, err := strconv.ParseInt(value[0], 10, 64)
		if err != nil || n < 0 {
			logf("invalid Content-Length %q", value[0])
			return dst
		}
		d.length = n
	}
	return dst
}

// note keeps what a header says of the body, and reports whether the header is written as it is.
func (d *declared) note(key string, values []string, status int) bool {
	first := ""
	if len(values) > 0 {
		first = values[0]
	}
	switch key {
	case "Content-Length":
		return false
	case "Transfer-Encoding":
		d.transfer, d.identity = first != "", first == "identity"
		return false
	case "Connection":
		d.connection = values
		return false
	case "Content-Type":
		d.typed = true
		return status != http.StatusNotModified
	case "Content-Encoding":
		d.encoded = first != ""
	case "Trailer":
		d.declareTrailers(values)
	default:
		if strings.HasPrefix(key, http.TrailerPrefix) {
			d.trailers = true
			return false
		}
	}
	return true
}

func (d *declared) declareTrailers(values []string) {
	d.trailers = d.trailers || len(values) > 0
	http1.Elements(values, func(name string) bool {
		if key := textproto.CanonicalMIMEHeaderKey(name); key != "Transfer-Encoding" && key != "Content-Length" && key != "Trailer" {
			d.trailerNames = append(d.trailerNames, key)
		}
		return true
	})
}

func appendStatus(dst []byte, status int) []byte {
	dst = append(dst, "HTTP/1.1 "...)
	dst = strconv.AppendInt(dst, int64(status), 10)
	dst = append(dst, ' ')
	if text := http.StatusText(status); text != "" {
		dst = append(dst, text...)
	} else {
		dst = fmt.Appendf(dst, "status code %d", status)
	}
	return append(dst, "\r\n"...)
}

func appendFields(dst []byte, key string, values []string) []byte {
	if !http1.IsToken(key) {
		return dst
	}
	for _, v := range values {
		dst = http1.AppendField(dst, key, textproto.TrimString(v))
	}
	return dst
}
