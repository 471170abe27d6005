package stagecheck

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"runtime"
	"time"

	"github.com/catena-dev/catena/host/internal/process"
)

// http2Preface begins each connection of a gRPC client: it ends with an empty frame of settings.
const http2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"

// checkControl connects to the control socket as a process that does not have the host's key.
func checkControl(ctx context.Context, s *suite) error {
	st, err := s.launched(ctx)
	if err != nil {
		return err
	}
	defer st.close()
	if st.process.Control() != process.ControlMTLS {
		return skip("the stage offers no certificate: its control socket is protected by the directory")
	}
	other, err := selfSigned()
	if err != nil {
		return err
	}
	for what, certificates := range map[string][]tls.Certificate{"without a certificate": nil,
		"with a certificate that is not the host's": {other}} {
		ctx, cancel := context.WithTimeout(ctx, s.wait.probe())
		accepted, err := acceptsTLS(ctx, st.process.ControlSocket(), certificates)
		cancel()
		if err != nil {
			return err
		}
		if accepted {
			return want("a control socket that refuses clients without the certificate of PLUGIN_CLIENT_CERT",
				"a response to a client %s", what)
		}
	}
	return nil
}

// acceptsTLS reports whether a server responds to a client with these certificates. With TLS 1.3 a client is done with its part of
// the handshake before the server has looked at its certificate.
func acceptsTLS(ctx context.Context, socket string, certificates []tls.Certificate) (bool, error) {
	raw, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return false, fmt.Errorf("control socket: %w", err)
	}
	defer raw.Close()
	defer context.AfterFunc(ctx, func() { _ = raw.Close() })()
	conn := tls.Client(raw, &tls.Config{InsecureSkipVerify: true, Certificates: certificates,
		NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12})
	if err := conn.HandshakeContext(ctx); err != nil {
		return false, nil
	}
	if _, err := io.WriteString(conn, http2Preface); err != nil {
		return false, nil
	}
	n, _ := conn.Read(make([]byte, 1))
	return n > 0, nil
}

func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"}, NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// Ends of a process that calls Peer.
const (
	peerClosed = iota
	peerServed = iota + 10
	peerLeft
)

// Peer is what a process does that is not the host of the stage whose data socket it names: it makes a request, and exits.
func Peer(socket string, timeout time.Duration) (exitCode int) {
	conn, err := net.DialTimeout("unix", socket, timeout)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(timeout))
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: stage\r\n\r\n")
	n, err := conn.Read(make([]byte, 1))
	switch timeout := net.Error(nil); {
	case n > 0:
		return peerServed
	case errors.As(err, &timeout) && timeout.Timeout():
		return peerLeft
	}
	return peerClosed
}

// checkPeers has another process connect to the data socket.
func checkPeers(ctx context.Context, s *suite) error {
	st, path, err := s.path(ctx)
	switch {
	case err != nil:
		return err
	case runtime.GOOS != "linux":
		return skip("a process cannot ask who has connected to it on this system")
	case len(s.opts.Peer) == 0:
		return skip("there is no program to connect with")
	}
	cmd := exec.CommandContext(ctx, s.opts.Peer[0], append(s.opts.Peer[1:], st.listener.Path(), s.wait.probe().String())...)
	out, err := cmd.CombinedOutput()
	const expected = "the connection of a process that is not the stage's parent to be closed, without a response"
	switch cmd.ProcessState.ExitCode() {
	case peerClosed:
		return st.again(ctx, "after a connection of another process")
	case peerServed:
		return want(expected, "a response, such as the host gets on %s (a language that cannot ask for SO_PEERCRED leaves out this check: --skip peers)", path)
	case peerLeft:
		return want(expected, "a connection that is open %s later", s.wait.probe())
	}
	return fmt.Errorf("connect from another process: %w: %s", err, out)
}
