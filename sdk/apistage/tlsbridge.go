package apistage

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
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
			// Nobody comes back, and a ticket could block on the pipe.
			SessionTicketsDisabled: true,
		},
		certPEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
	}, nil
}

// open returns the client's end of a connection on which a TLS client reaches
// server. It takes over server, which is closed when either side ends.
func (b *tlsBridge) open(server net.Conn) net.Conn {
	client, inner := net.Pipe()
	secure := tls.Server(inner, b.config)
	relay := func(to, from net.Conn) {
		io.Copy(to, from)
		to.Close()
		from.Close()
	}
	go relay(server, secure)
	go relay(secure, server)
	return client
}
