package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"path/filepath"
	"time"

	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/guard"
)

// adminSocketName is the socket in the runtime folder on which the commands
// "catena status" and "catena swap" reach a running host. The folder keeps other
// users out, and so does the socket by itself.
const adminSocketName = "admin.sock"

// openAdmin serves the admin socket.
func (s *server) openAdmin(context.Context) error {
	l, err := guard.Listen(filepath.Join(s.run, adminSocketName))
	if err != nil {
		return fmt.Errorf("socket for commands: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, s.status()) })
	mux.HandleFunc("POST /swap", s.serveSwap)
	mux.HandleFunc("POST /reload", s.serveReload)
	mux.HandleFunc("GET /explain", s.serveExplain)
	ctx, stop := context.WithCancelCause(context.Background())
	srv := &http.Server{
		Handler: mux, ErrorLog: s.log.StandardLogger(nil),
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	go func() { _ = srv.Serve(l) }()
	s.undo.add(func() error {
		stop(errEnding) // ends changes that are under way, so that who waits for one gets an answer
		grace, cancel := context.WithTimeout(context.Background(), adminGrace)
		defer cancel()
		_ = srv.Shutdown(grace)
		return srv.Close()
	})
	return nil
}

// adminGrace is the time that commands have at the end of the host to get their answers.
const adminGrace = 2 * time.Second

var errEnding = errors.New("the server is stopping")

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

// callAdmin calls the host that runs on the configured data folder. Result gets
// the decoded answer.
func callAdmin(ctx context.Context, cfg *config.Config, method, path string, body, result any) error {
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return dialAdmin(ctx, cfg) },
	}}
	encoded, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://catena"+path, bytes.NewReader(encoded))
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return errors.Unwrap(err) // without the made-up URL
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return errors.New(string(bytes.TrimSpace(answer)))
	}
	return json.Unmarshal(answer, result)
}

func dialAdmin(ctx context.Context, cfg *config.Config) (net.Conn, error) {
	dirs, err := runtimeDirs(cfg.RuntimeDir, cfg.DataDir)
	if err != nil {
		return nil, err
	}
	var d net.Dialer
	for _, dir := range dirs {
		var c net.Conn
		if c, err = d.DialContext(ctx, "unix", filepath.Join(dir, adminSocketName)); err == nil {
			return c, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return nil, fmt.Errorf("no host answers for the data folder %s: is it running, and with this dataDir? (%w)", cfg.DataDir, err)
}
