package process

import (
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/hashicorp/go-plugin"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// errNoHandshake is that the first line of a stage's standard output is not go-plugin's.
var errNoHandshake = errors.New("no handshake")

// checkHandshake checks the line in which a plugin names its control socket:
//
//	CORE-VERSION|STAGE-PROTOCOL-VERSION|unix|SOCKET|grpc|CERTIFICATE
//
// Without a certificate, the control socket speaks no TLS (see Control).
//
// go-plugin parses it again. This check has better errors, and makes sure that a stage
// listens in its own directory only.
func checkHandshake(line, socketDir string) error {
	fields := handshakeFields(line)
	if len(fields) < 4 || !isNumber(fields[0]) || !isNumber(fields[1]) {
		return errNoHandshake
	}
	if fields[0] != strconv.Itoa(plugin.CoreProtocolVersion) {
		return fmt.Errorf("speaks version %s of go-plugin's own protocol, this host speaks %d; rebuild it with the go-plugin release that the host uses",
			fields[0], plugin.CoreProtocolVersion)
	}
	if fields[1] != strconv.Itoa(stagev1.ProtocolVersion) {
		return fmt.Errorf("speaks version %s of the stage protocol, this host speaks %d; install a stage that was built with a matching SDK",
			fields[1], stagev1.ProtocolVersion)
	}
	if len(fields) < 5 || fields[4] != string(plugin.ProtocolGRPC) {
		return errors.New("does not speak gRPC; a stage must serve its plugin with go-plugin's gRPC protocol")
	}
	if fields[2] != "unix" || filepath.Dir(fields[3]) != socketDir {
		return fmt.Errorf("listens on %s %s; a stage must listen on a Unix socket in the directory that %s names",
			fields[2], fields[3], plugin.EnvUnixSocketDir)
	}
	if len(fields) > 5 && fields[5] != "" && !offersCertificate(line) {
		return fmt.Errorf("offers %s in place of a certificate; it must be DER as base64 without padding, or empty", quote(fields[5]))
	}
	if offersCertificate(line) {
		return checkCertificate(fields[5])
	}
	return nil
}

// checkCertificate checks what a handshake offers as certificate.
func checkCertificate(text string) error {
	der, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil && strings.HasSuffix(text, "=") {
		return errors.New("offers a certificate as base64 with padding; it must have none: the handshake ends without the characters =")
	}
	if err != nil {
		return fmt.Errorf("offers a certificate that is not base64 without padding, in the standard alphabet of RFC 4648: %w", err)
	}
	if _, err := x509.ParseCertificate(der); err != nil {
		return fmt.Errorf("offers a certificate that is not one in DER: %w", err)
	}
	return nil
}

func handshakeFields(line string) []string { return strings.Split(strings.TrimSpace(line), "|") }

// offersCertificate reports whether a handshake has a certificate, by the length from
// which on go-plugin takes the field for one.
func offersCertificate(line string) bool {
	fields := handshakeFields(line)
	return len(fields) > 5 && len(fields[5]) > 50
}

func isNumber(s string) bool {
	_, err := strconv.ParseUint(s, 10, 31)
	return err == nil
}

// handshake reads a stage's standard output: it passes the first line to go-plugin, if it
// is valid, and all others to rest.
type handshake struct {
	socketDir string
	rest      func(line []byte)
	read      *io.PipeReader // what go-plugin reads: one line at most
	write     *io.PipeWriter

	mu      sync.Mutex
	seen    bool
	problem error
	text    string
}

func newHandshake(rest func([]byte)) *handshake {
	r, w := io.Pipe()
	return &handshake{rest: rest, read: r, write: w}
}

func (h *handshake) line(line []byte) {
	h.mu.Lock()
	first := !h.seen
	h.seen = true
	if first {
		h.text = string(line)
		h.problem = checkHandshake(h.text, h.socketDir)
	}
	problem := h.problem
	h.mu.Unlock()
	if !first {
		h.rest(line)
		return
	}
	if problem == nil {
		_, _ = h.write.Write(append(line[:len(line):len(line)], '\n'))
	}
	h.close()
}

// close ends what go-plugin reads.
func (h *handshake) close() { _ = h.write.Close() }

// end also discards a line that go-plugin has not read.
func (h *handshake) end() {
	h.close()
	_ = h.read.Close()
}

// result returns the first line, whether there was one yet, and what is wrong with it.
func (h *handshake) result() (line string, seen bool, problem error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text, h.seen, h.problem
}
