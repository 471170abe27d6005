package server

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/host/internal/pki"
)

// renewal is how often certificates are looked at that may have to be renewed. Servers and
// clients read them anew when their files change.
const renewal = 12 * time.Hour

// certificates are those of the server, and of its authority.
type certificates struct {
	*pki.PKI
	opts pki.Options
	log  hclog.Logger
	mu   sync.Mutex // one renewal at a time
}

func ensureCertificates(opts pki.Options, log hclog.Logger) (*certificates, error) {
	p, err := pki.Ensure(opts)
	return &certificates{PKI: p, opts: opts, log: log}, err
}

// renew renews the certificates in time, until ctx ends.
func (c *certificates) renew(ctx context.Context) {
	for c != nil {
		select {
		case <-ctx.Done():
			return
		case <-time.After(renewal):
		}
		c.renewNow()
	}
}

// renewNow renews those that are due. Those that the operator has given are not among them.
func (c *certificates) renewNow() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := pki.Ensure(c.opts); err != nil {
		c.log.Error("certificates could not be renewed", "error", err)
	}
}
