//go:build linux

package stagecheck

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path"
	"strings"
	"syscall"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/stagev1"
	"github.com/catena-dev/catena/sdk/stagev1/header"
)

func (b *broken) build(env *sdk.Env) (http.Handler, error) {
	b.env = env
	config := map[string]string{}
	if err := env.Config(&config); err != nil && b.mode != "config" {
		return nil, err
	}
	env.ClaimPrefix("/test")
	if b.mode == "odd-paths" {
		env.ClaimPrefix("/") // with less, it would not get them
	}
	if b.mode == "children" {
		child := exec.Command("/bin/sleep", "600")
		child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := child.Start(); err != nil {
			return nil, err
		}
	}
	env.PostStartHook("start", func(context.Context) error { return b.fail("hooks") })
	env.PreShutdownHook("end", func(context.Context) error { return b.fail("pre-shutdown") })
	env.HealthCheck("well", sdk.HealthKinds{}, func(context.Context) error { return b.fail("sick") })
	env.HealthCheck("other", sdk.HealthKinds{}, func(context.Context) error { return nil })
	mux := http.NewServeMux()
	mux.HandleFunc("/test/check/echo", b.echo)
	mux.HandleFunc("/test/check/trailers", b.trailers)
	mux.HandleFunc("/test/check/stream", b.stream)
	mux.HandleFunc("/test/check/upgrade", b.upgrade)
	mux.HandleFunc("/test/check/decline", b.decline)
	mux.HandleFunc("/test/through/", b.through)
	mux.HandleFunc("/test", b.hello)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if b.misbehaves(w, r) {
			return
		}
		if b.mode == "odd-paths" {
			r.URL.Path = path.Clean(r.URL.Path)
		}
		if b.mode == "encoded-path" {
			r.URL.Path = r.URL.EscapedPath()
		}
		mux.ServeHTTP(w, r)
	}), nil
}

func (b *broken) fail(mode string) error {
	if b.mode == mode {
		return errors.New("no luck")
	}
	return nil
}

// misbehaves does what concerns all paths.
func (b *broken) misbehaves(w http.ResponseWriter, r *http.Request) bool {
	switch b.mode {
	case "large-head":
		if len(r.Header.Get("X-Stagecheck-Large")) > 8<<10 {
			w.WriteHeader(http.StatusRequestHeaderFieldsTooLarge)
			return true
		}
	case "large-head-300k":
		if len(r.Header.Get("X-Stagecheck-Large")) > 300<<10 {
			w.WriteHeader(http.StatusRequestHeaderFieldsTooLarge)
			return true
		}
	case "closes":
		w.Header().Set("Connection", "close")
	case "head":
		if r.Method == http.MethodHead {
			conn, _, _ := http.NewResponseController(w).Hijack()
			fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
			_ = conn.Close()
			return true
		}
	case "expect":
		if r.Header.Get("Expect") != "" {
			<-r.Context().Done()
			return true
		}
	case "expect-decline":
		_, _ = r.Body.Read(make([]byte, 1))
		if r.Header.Get("Expect") != "" {
			sdk.SetHostHeader(w, stagev1.HeaderDecline, "1")
			return true
		}
	case "large-body":
		if r.ContentLength > 8<<20 {
			os.Exit(5)
		}
	case "concurrency":
		b.one.Lock()
		defer b.one.Unlock()
		_, _ = io.Copy(io.Discard, r.Body)
	case "cancellation":
		if r.Header.Get("Expect") != "" {
			conn, _, _ := http.NewResponseController(w).Hijack()
			b.conns = append(b.conns, conn)
			return true
		}
	case "unread":
		if r.ContentLength > 0 {
			takeBodies(w)
			return true
		}
	case "audit":
		sdk.SetHostHeader(w, stagev1.HeaderAudit, `{"annotations":["a"]}`)
	case "forged-audit":
		sdk.SetHostHeader(w, stagev1.HeaderAudit, `{"annotations":{"other.stage.catena.dev/x":"y"}}`)
	case "latency":
		sdk.SetHostHeader(w, stagev1.HeaderLatency, "etcd=1ms")
	case "memory":
		b.one.Lock()
		b.leak = append(b.leak, []byte(strings.Repeat("leak", 16<<10)))
		b.one.Unlock()
	case "logging":
		for range 100 { // however few requests a busy machine makes in a second
			fmt.Fprintln(b.stderr, strings.Repeat("noise ", 40))
		}
	case "log-format":
		fmt.Fprintln(b.stderr, `{"@level":"loud","@message":"hello"}`)
	}
	return false
}

// takeBodies responds to a request, and to what follows it on the connection, the body first.
func takeBodies(w http.ResponseWriter) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	for err == nil {
		fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello\n")
		_, err = http.ReadRequest(rw.Reader)
	}
}

func (b *broken) hello(w http.ResponseWriter, r *http.Request) {
	if b.mode == "hints" {
		w.WriteHeader(http.StatusEarlyHints)
	}
	fmt.Fprintln(w, "hello")
}

func (b *broken) decline(w http.ResponseWriter, r *http.Request) {
	switch b.mode {
	case "decline-read":
		_, _ = io.Copy(io.Discard, r.Body)
		sdk.SetHostHeader(w, stagev1.HeaderDecline, "1")
	case "decline-changed":
		_, _ = io.Copy(io.Discard, r.Body)
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader("other")), 5
		b.env.Call.ServeHTTP(w, r)
	default:
		sdk.Decline(w)
	}
}

func (b *broken) echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if b.mode == "echo" && len(body) > 100_000 {
		body[100_000] ^= 1
	}
	if b.mode == "slow-reader" {
		b.one.Lock()
		defer b.one.Unlock()
	}
	_, _ = w.Write(body)
}

func (b *broken) trailers(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("Trailer", "X-Check-Trailer")
	_, _ = w.Write(body)
	if b.mode != "trailers" {
		w.Header().Set("X-Check-Trailer", r.Trailer.Get("X-Check-Trailer"))
	}
}

func (b *broken) stream(w http.ResponseWriter, r *http.Request) {
	if b.mode == "drain-watch" {
		sdk.SetHostHeader(w, stagev1.HeaderWatch, header.WatchResumable)
	}
	fmt.Fprintln(w, "begin")
	if b.mode != "streaming" {
		w.(http.Flusher).Flush()
	}
	done := sdk.DrainingFrom(r.Context())
	switch b.mode {
	case "drain-stream":
		done = nil
	case "drain-spread":
		done = b.env.Draining()
	}
	select {
	case <-r.Context().Done():
	case <-done:
	}
}

func (b *broken) upgrade(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") == "" || b.mode == "upgrade-not" {
		w.WriteHeader(http.StatusUpgradeRequired)
		return
	}
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	if b.mode == "upgrade" {
		_, _ = io.CopyN(conn, rw, 1000)
		return
	}
	_, _ = io.Copy(conn, bufio.NewReader(rw))
}
