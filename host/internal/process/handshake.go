package process

import (
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

// errNoHandshake says that the first line of a stage's standard output is not go-plugin's.
var errNoHandshake = errors.New("no handshake")

// checkHandshake checks the line with which a plugin says where it listens:
//
//	CORE-VERSION|STAGE-PROTOCOL-VERSION|unix|SOCKET|grpc|CERTIFICATE
//
// Without a certificate, the control socket speaks no TLS (see Control).
//
// go-plugin parses it again; this is for errors that say what to do, and for the
// rule that a stage listens in its own folder only.
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
		return fmt.Errorf("listens on %s %s; a stage must listen on a Unix socket in the folder that %s names", fields[2], fields[3], plugin.EnvUnixSocketDir)
	}
	if len(fields) > 5 && fields[5] != "" && !offersCertificate(line) {
		return fmt.Errorf("offers %s in the place of a certificate; it must be DER as base64 without padding, or nothing", quote(fields[5]))
	}
	return nil
}

func handshakeFields(line string) []string { return strings.Split(strings.TrimSpace(line), "|") }

// offersCertificate says whether a handshake has a certificate, by the length from
// which on go-plugin takes the field for one.
func offersCertificate(line string) bool {
	fields := handshakeFields(line)
	return len(fields) > 5 && len(fields[5]) > 50
}

func isNumber(s string) bool {
	_, err := strconv.ParseUint(s, 10, 31)
	return err == nil
}

// greeting passes the first line of a stage's standard output to go-plugin, if it
// is good, and all others to the log.
type greeting struct {
	socketDir string
	rest      func(line []byte)
	read      *io.PipeReader // what go-plugin reads: one line at most
	write     *io.PipeWriter

	mu      sync.Mutex
	seen    bool
	problem error
	text    string
}

func newGreeting(rest func([]byte)) *greeting {
	r, w := io.Pipe()
	return &greeting{rest: rest, read: r, write: w}
}

func (g *greeting) line(line []byte) {
	g.mu.Lock()
	first := !g.seen
	g.seen = true
	if first {
		g.text = string(line)
		g.problem = checkHandshake(g.text, g.socketDir)
	}
	problem := g.problem
	g.mu.Unlock()
	if !first {
		g.rest(line)
		return
	}
	if problem == nil {
		_, _ = g.write.Write(append(line[:len(line):len(line)], '\n'))
	}
	g.close()
}

// close ends what go-plugin reads.
func (g *greeting) close() { _ = g.write.Close() }

// end also releases a line that go-plugin does not read.
func (g *greeting) end() {
	g.close()
	_ = g.read.Close()
}

// verdict returns what is wrong with the first line: nil if it is good or has not come.
func (g *greeting) verdict() (line string, seen bool, problem error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.text, g.seen, g.problem
}
