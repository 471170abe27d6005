package pki

import (
	"context"
	"crypto/x509"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	certutil "k8s.io/client-go/util/cert"
)

const (
	// endsInterval is how often the ends of certificates are looked at, and endsAgain how often a line of the log says the same about them.
	endsInterval = time.Hour
	endsAgain    = 24 * time.Hour
)

// Certificate is a certificate in a file that a flag of kube-apiserver names.
type Certificate struct {
	Flag, File string
	// End is when the first of those in the file ends that are valid, or, if none is any more, when the last has ended.
	End time.Time
	// Soon reports that it has ended, or that a twelfth of its lifetime is left, at most four weeks: later than kubelet,
	// cert-manager and this package renew theirs, so that one which is renewed in time is never of that kind.
	Soon bool
}

const (
	soonShare = 12
	soonMost  = 28 * 24 * time.Hour
)

// Ends observes when the certificates end that flags of kube-apiserver name.
type Ends struct {
	// File returns the file that a flag names, or "".
	File func(flag string) string
	// Observe is called for each flag that names a certificate at each look.
	Observe func(Certificate)
	// Log gets one line about those that end soon. The line comes again each day, and when it changes.
	Log hclog.Logger

	mu    sync.Mutex // one look at a time
	said  string
	at    time.Time
	known map[string]Certificate // by flag
}

// Follow looks at the certificates every hour, until ctx ends.
func (e *Ends) Follow(ctx context.Context) {
	for {
		e.Look()
		select {
		case <-ctx.Done():
			return
		case <-time.After(endsInterval):
		}
	}
}

// Look looks at the certificates now. It returns the flags that name another certificate than at the look before.
func (e *Ends) Look() (changed []string) { return e.look(time.Now()) }

func (e *Ends) look(now time.Time) (changed []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	before := e.known
	e.known = map[string]Certificate{}
	var soon []string
	for _, flag := range []string{
		"client-ca-file", "etcd-cafile", "etcd-certfile", "kubelet-certificate-authority",
		"kubelet-client-certificate", "proxy-client-cert-file",
		"requestheader-client-ca-file", "tls-cert-file",
	} {
		file := e.File(flag)
		if file == "" {
			continue
		}
		c, err := readCertificate(flag, file, now)
		if err != nil {
			continue // the user of the file reports it
		}
		e.Observe(c)
		e.known[flag] = c
		if was, ok := before[flag]; ok && (was.File != c.File || !was.End.Equal(c.End)) {
			changed = append(changed, flag)
		}
		if c.Soon {
			soon = append(soon, fmt.Sprintf("%s %s (%s)", file, c.End.UTC().Format(time.RFC3339), flag))
		}
	}
	said := strings.Join(soon, ", ")
	if said != "" && (said != e.said || now.Sub(e.at) >= endsAgain) {
		e.Log.Warn("certificates end soon, or have ended: connections are refused then: renew them, and an authority of Catena's as docs/operations.md says", "certificates", said)
		e.at = now
	}
	e.said = said
	return changed
}

func readCertificate(flag, file string, now time.Time) (Certificate, error) {
	certs, err := certutil.CertsFromFile(file)
	if err != nil {
		return Certificate{}, fmt.Errorf("%s: %w", file, err)
	}
	var next, last *x509.Certificate
	for _, cert := range certs {
		if cert.NotAfter.After(now) && (next == nil || cert.NotAfter.Before(next.NotAfter)) {
			next = cert
		}
		if last == nil || cert.NotAfter.After(last.NotAfter) {
			last = cert
		}
	}
	if next == nil {
		return Certificate{flag, file, last.NotAfter, true}, nil
	}
	soon := min(next.NotAfter.Sub(next.NotBefore)/soonShare, soonMost)
	return Certificate{flag, file, next.NotAfter, next.NotAfter.Sub(now) < soon}, nil
}
