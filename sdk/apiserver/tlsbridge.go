package apiserver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"syscall"
	"time"
)

// tlsBridge lets a TLS client talk to a cleartext server inside this process.
type tlsBridge struct {
	config  *tls.Config
	certPEM []byte
}

func newTLSBridge(name string) (*tlsBridge, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: name},
		DNSNames:              []string{name},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().AddDate(100, 0, 0),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("create certificate: %w", err)
	}
	return &tlsBridge{
		config: &tls.Config{
			Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
			MinVersion:   tls.VersionTLS13,
		},
		certPEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
	}, nil
}

// open returns the client's end of a connection on which a TLS client reaches
// server. It takes over server, which is closed when either side ends.
func (b *tlsBridge) open(server net.Conn) (net.Conn, error) {
	client, inner, err := socketPair()
	if err != nil {
		return nil, errors.Join(err, server.Close())
	}
	secure := tls.Server(inner, b.config)
	relay := func(to, from net.Conn) {
		// Whatever ends it ends the connection, which is all that there is to do.
		_, _ = io.Copy(to, from)
		_ = to.Close()
		_ = from.Close()
	}
	go relay(server, secure)
	go relay(secure, server)
	return client, nil
}

// socketPair returns the two ends of a connection. Unlike those of net.Pipe they
// have buffers, without which a failing handshake waits for itself.
func socketPair() (net.Conn, net.Conn, error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socket pair: %w", err)
	}
	var conns [2]net.Conn
	for i, fd := range fds {
		syscall.CloseOnExec(fd)
		file := os.NewFile(uintptr(fd), "socket pair")
		conn, fileErr := net.FileConn(file)
		err = errors.Join(err, fileErr, file.Close())
		conns[i] = conn
	}
	if err != nil {
		return nil, nil, fmt.Errorf("socket pair: %w", err)
	}
	return conns[0], conns[1], nil
}
