package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// readyTimeout is how long a server has to become ready on a busy machine.
const readyTimeout = 5 * time.Minute

// Users of the static token file of every server. A user's token is its name
// followed by "-token".
const (
	Admin = "admin" // group system:masters
	Alice = "alice" // group devs
	Bob   = "bob"   // no group
)

// Tokens is the file of --token-auth-file with these users.
const Tokens = `admin-token,admin,admin-uid,"system:masters"
alice-token,alice,alice-uid,"devs"
bob-token,bob,bob-uid
`

// Server is a running API server.
type Server struct {
	Name string
	// Dir holds all files of the server.
	Dir string
	// URL is its address for clients.
	URL string

	ca      []byte // PEM, nil for a self-signed certificate
	process *Process
	closers []func() error
}

// Process is the server's main process.
func (s *Server) Process() *Process { return s.process }

// Config is a client's configuration with a user's token.
func (s *Server) Config(user string) *rest.Config {
	c := &rest.Config{Host: s.URL, BearerToken: user + "-token", QPS: -1}
	c.TLSClientConfig = rest.TLSClientConfig{CAData: s.ca, Insecure: s.ca == nil}
	return c
}

// Kubeconfig writes a kubeconfig with a user's token and returns its path. It replaces one
// of the same user atomically: another process may be reading it.
func (s *Server) Kubeconfig(user string) (string, error) {
	c := api.NewConfig()
	c.Clusters["test"] = &api.Cluster{Server: s.URL, CertificateAuthorityData: s.ca, InsecureSkipTLSVerify: s.ca == nil}
	c.AuthInfos["test"] = &api.AuthInfo{Token: user + "-token"}
	c.Contexts["test"] = &api.Context{Cluster: "test", AuthInfo: "test"}
	c.CurrentContext = "test"
	text, err := clientcmd.Write(*c)
	if err != nil {
		return "", err
	}
	file, err := os.CreateTemp(s.Dir, user+"*")
	if err != nil {
		return "", err
	}
	path := filepath.Join(s.Dir, user+".kubeconfig")
	_, err = file.Write(text)
	return path, errors.Join(err, file.Close(), os.Rename(file.Name(), path))
}

// Stop ends the server and removes its files. The log is printed if failed is set.
func (s *Server) Stop(failed bool) error {
	var errs []error
	if s.process != nil {
		errs = append(errs, s.process.Stop())
		if failed {
			fmt.Printf("--- log of %s\n%s\n---\n", s.Name, Tail(s.process.Log, 15))
		}
	}
	return errors.Join(append(errs, s.Close())...)
}

// Close removes the files of a server that does not run, and ends what it has used.
func (s *Server) Close() error {
	var errs []error
	for i := len(s.closers) - 1; i >= 0; i-- {
		errs = append(errs, s.closers[i]())
	}
	return errors.Join(errs...)
}

// newServer makes the directory of a server, with the token file in it.
func newServer(name string) (*Server, error) {
	dir, err := os.MkdirTemp("", name)
	if err != nil {
		return nil, err
	}
	s := &Server{Name: name, Dir: dir}
	s.closers = append(s.closers, func() error { return os.RemoveAll(dir) })
	return s, os.WriteFile(s.tokens(), []byte(Tokens), 0o600)
}

func (s *Server) tokens() string { return filepath.Join(s.Dir, "tokens.csv") }

// awaitReady calls locate, which finds the server's address, until /readyz succeeds.
func (s *Server) awaitReady(ctx context.Context, locate func() error) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		err := locate()
		if err == nil {
			err = s.ready(ctx)
		}
		if err == nil {
			return nil
		}
		select {
		case <-s.process.Done:
			return fmt.Errorf("%s has ended: %w", s.Name, errors.Join(s.process.err, s.process.tail()))
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w", s.Name, errors.Join(err, s.process.tail()))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (s *Server) ready(ctx context.Context) error { return Ready(ctx, s.Config(Admin)) }

// Ready asks a server whether it is ready.
func Ready(ctx context.Context, c *rest.Config) error {
	client, err := rest.HTTPClientFor(c)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.Host+"/readyz", nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s/readyz: %s\n%s", c.Host, resp.Status, body)
	}
	return err
}

// FreePort returns a port of the loopback interface on which no process listens. It is not
// in the range of ephemeral ports, so that no other process gets it by chance before it is
// used, or between two processes that use it one after the other.
func FreePort() (string, error) {
	const first, count, attempts = 10000, 20000, 100
	var err error
	for range attempts {
		port := strconv.Itoa(first + rand.IntN(count))
		var l net.Listener
		if l, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", port)); err == nil {
			return port, l.Close()
		}
	}
	return "", fmt.Errorf("no free port: %w", err)
}
