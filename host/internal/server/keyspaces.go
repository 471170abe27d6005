package server

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"

	"github.com/catena-dev/catena/host/internal/callers"
	"github.com/catena-dev/catena/host/internal/connlimit"
	"github.com/catena-dev/catena/host/internal/guard"
	"github.com/catena-dev/catena/host/internal/store"
)

// keyspaces serve each stage that has keys of its own in the store, on a socket of its own.
type keyspaces struct {
	opening    *store.Opening
	storage    store.Options
	prefix     string // that of the registry
	runtimeDir string
	callers    *callers.Callers
	limits     *limits

	mu     sync.Mutex
	open   map[string]keyspace
	closed bool
}

// keyspace is the server of the keys of a stage.
type keyspace struct {
	*store.Server
	socket string
}

// flags returns the flags of kube-apiserver, each as name=value, with which a stage reaches
// its own keys.
func (k *keyspaces) flags(stage string) ([]string, error) {
	if _, err := k.opening.Await(); err != nil {
		return nil, err
	}
	socket, err := k.serve(stage)
	if err != nil {
		return nil, fmt.Errorf("store of stage %q: %w", stage, err)
	}
	return []string{"etcd-servers=unix://" + socket, "etcd-compaction-interval=0s"}, nil
}

// serve returns the socket of the stage.
func (k *keyspaces) serve(stage string) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return "", errors.New("the server is ending")
	}
	if open, ok := k.open[stage]; ok {
		return open.socket, nil
	}
	socket := filepath.Join(k.runtimeDir, guard.SecretName(stage, ".etcd.sock"))
	admitted, err := guard.ListenFor(socket, func(p guard.Peer) error { return k.callers.AdmitKeys(stage, p) })
	if err != nil {
		return "", err
	}
	l := connlimit.New(admitted, connlimit.Options{Share: connlimit.Stages, Connections: keyspaceConnections})
	limited := func(limit string) { k.limits.limited(stage, limit, "") }
	served, err := store.ServeKeyspace(k.storage, keyspacePrefix(k.prefix, stage), l, limited)
	if err != nil {
		return "", errors.Join(err, l.Close())
	}
	if k.open == nil {
		k.open = map[string]keyspace{}
	}
	k.open[stage] = keyspace{served, socket}
	return socket, nil
}

// keyspaceConnections is how many connections a stage may have to its own keys.
const keyspaceConnections = 256

// keyspacePrefix is what the keys of a stage begin with: beside the registry, and not below
// it, so that no stage with the whole registry takes them for its own.
func keyspacePrefix(registry, stage string) string {
	return strings.TrimSuffix(registry, "/") + ".stages/" + stage + "/"
}

func (k *keyspaces) close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
	var errs []error
	for _, served := range k.open {
		errs = append(errs, served.Close())
	}
	return errors.Join(errs...)
}
