package system

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// frames is a TLS connection on which any frames of HTTP/2 can be sent.
type frames struct {
	*http2.Framer
	// out holds what has been written until it is flushed.
	out *bufio.Writer
}

// dialFrames connects to a server and begins HTTP/2.
func dialFrames(t *testing.T, s *cluster.Server) *frames {
	t.Helper()
	// Who the server is does not matter here.
	conn, err := tls.Dial("tcp", strings.TrimPrefix(s.URL, "https://"), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{http2.NextProtoTLS}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	out := bufio.NewWriter(conn)
	f := &frames{Framer: http2.NewFramer(out, conn), out: out}
	f.AllowIllegalWrites = true
	f.ReadMetaHeaders = hpack.NewDecoder(1<<16, nil)
	_, err = out.WriteString(http2.ClientPreface)
	if err := errorsOf(err, conn.SetDeadline(time.Now().Add(patience)), f.WriteSettings()); err != nil {
		t.Fatal(err)
	}
	return f
}

// head writes the header of a stream from fields "name: value". A server that has closed
// the connection already may do so, here and below.
func (f *frames) head(stream uint32, end bool, fields ...string) {
	block := encodeFields(fields)
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block, EndHeaders: true, EndStream: end})
}

// pieces writes a header in frames of one byte each.
func (f *frames) pieces(stream uint32, end bool, fields ...string) {
	block := encodeFields(fields)
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block[:1], EndStream: end})
	for i := 1; i < len(block); i++ {
		_ = f.WriteContinuation(stream, i == len(block)-1, block[i:i+1])
	}
}

func (f *frames) data(stream uint32, end bool, text string) {
	_ = f.WriteData(stream, end, []byte(text))
}

func encodeFields(fields []string) []byte {
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, field := range fields {
		i := strings.Index(field[1:], ": ") + 1 // a pseudo header begins with a colon
		if err := encoder.WriteField(hpack.HeaderField{Name: field[:i], Value: field[i+2:]}); err != nil {
			panic(err)
		}
	}
	return block.Bytes()
}

// response reads until a stream ends. If this is not with a response, the error says how.
func (f *frames) response(stream uint32) (a response, err error) {
	a.header = http.Header{}
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return a, fmt.Errorf("the connection ends: %w", err)
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				_ = errorsOf(f.WriteSettingsAck(), f.out.Flush())
			}
		case *http2.GoAwayFrame:
			if frame.ErrCode != http2.ErrCodeNo {
				return a, fmt.Errorf("the server goes away: %s", frame.ErrCode)
			}
		case *http2.RSTStreamFrame:
			if frame.StreamID == stream && (a.code == 0 || frame.ErrCode != http2.ErrCodeNo) {
				return a, fmt.Errorf("the stream is reset: %s", frame.ErrCode)
			}
		case *http2.MetaHeadersFrame:
			if frame.StreamID == stream {
				a.add(frame)
			}
		case *http2.DataFrame:
			if frame.StreamID == stream {
				a.body += string(frame.Data())
			}
		}
		if h := frame.Header(); h.StreamID == stream && h.Flags.Has(http2.FlagDataEndStream) &&
			(h.Type == http2.FrameData || h.Type == http2.FrameHeaders) {
			return a, nil
		}
	}
}

// add adds the fields of a header or a trailer.
func (a *response) add(frame *http2.MetaHeadersFrame) {
	if status := frame.PseudoValue("status"); status != "" {
		_, _ = fmt.Sscan(status, &a.code)
	}
	for _, field := range frame.RegularFields() {
		a.header.Add(field.Name, field.Value)
	}
}
