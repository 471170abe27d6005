package pki

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	certutil "k8s.io/client-go/util/cert"
)

const (
	// endsInterval is how often the ends of certificates are looked at, and endsAgain how often a line of the log says the same about them.
	endsInterval = time.Hour
	endsAgain    = 24 * time.Hour
)

// Ends says when the certificates end that flags of kube-apiserver name.
type Ends struct {
	// File returns the file that a flag names, or "".
	File func(flag string) string
	// Observe is called for each flag and its file at each look.
	Observe func(flag, file string, end time.Time)
	// Log gets one line about those that end within 30 days: they would be renewed by now if this package did that. The line comes
	// again each day, and when it changes.
	Log hclog.Logger

	said string
	at   time.Time
}

// Follow looks at the certificates every hour, until ctx ends.
func (e *Ends) Follow(ctx context.Context) {
	for {
		e.look(time.Now())
		select {
		case <-ctx.Done():
			return
		case <-time.After(endsInterval):
		}
	}
}

func (e *Ends) look(now time.Time) {
	var soon []string
	for _, flag := range []string{
		"client-ca-file", "etcd-cafile", "etcd-certfile", "kubelet-certificate-authority", "kubelet-client-certificate", "proxy-client-cert-file",
		"requestheader-client-ca-file", "tls-cert-file",
	} {
		file := e.File(flag)
		if file == "" {
			continue
		}
		end, err := endOf(file, now)
		if err != nil {
			continue // whoever uses the file says so
		}
		e.Observe(flag, file, end)
		if end.Sub(now) < RenewBefore {
			soon = append(soon, fmt.Sprintf("%s %s (%s)", file, end.UTC().Format(time.RFC3339), flag))
		}
	}
	said := strings.Join(soon, ", ")
	if said != "" && (said != e.said || now.Sub(e.at) >= endsAgain) {
		e.Log.Warn("certificates end soon, or have ended: connections are refused then: renew them, and an authority of Catena's as docs/operations.md says", "certificates", said)
		e.at = now
	}
	e.said = said
}

// endOf returns when a file with certificates ends to be of use: when the first of them ends that is valid, or, if none is any more, when the last has ended.
func endOf(file string, now time.Time) (time.Time, error) {
	certs, err := certutil.CertsFromFile(file)
	if err != nil {
		return time.Time{}, fmt.Errorf("%s: %w", file, err)
	}
	var next, last time.Time
	for _, cert := range certs {
		end := cert.NotAfter
		if end.After(now) && (next.IsZero() || end.Before(next)) {
			next = end
		}
		if end.After(last) {
			last = end
		}
	}
	if next.IsZero() {
		return last, nil
	}
	return next, nil
}
