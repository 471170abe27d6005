package hostile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/catena-dev/catena/sdk"
)

// order is the body of a request to a hostile stage: what it is told, as an insider would know it.
type order struct {
	// Of an attack.
	DataDir string `json:"dataDir"`
	Host    string `json:"host"` // address of the secure port
	HostPID int    `json:"hostPID"`
	Victim  int    `json:"victim"` // process of another stage
	Secret  string `json:"secret"` // a file beside the configuration
	// Sockets are those of the host and of other stages, by paths that only the host knows.
	Sockets []string `json:"sockets"`
	// Sockets of another program.
	Abstract string `json:"abstract"`
	Open     string `json:"open"`
	// Of harm.
	Count   int      `json:"count"`
	Bytes   int      `json:"bytes"`
	Seconds any      `json:"seconds"` // how long it lasts; a text for processes, which are found by it
	Lines   []string `json:"lines"`
	Token   string   `json:"token"` // of another process
}

func (o order) duration() time.Duration {
	seconds, _ := o.Seconds.(float64)
	return time.Duration(seconds * float64(time.Second))
}

// stage is the hostile stage in Go.
type stage struct {
	env     *sdk.Env
	release chan struct{}
	// crowded are connections to the host that stay open.
	crowded []net.Conn
	once    sync.Once
	// loopEnds is when requests for itself end, in nanoseconds since 1970.
	loopEnds atomic.Int64
}

func newStage(env *sdk.Env) (http.Handler, error) {
	env.ClaimPrefix("/hostile")
	env.ClaimPrefix("/api", "/apis/apps")
	return &stage{env: env, release: make(chan struct{})}, nil
}

// ServeHTTP does what a request tells it, and responds with what it got.
func (s *stage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var o order
	do := map[string]func(http.ResponseWriter, *http.Request, order) any{
		"attack": s.attack, "spawn": s.spawn, "leave": s.leave, "memory": s.memory, "heads": s.heads, "crowd": s.crowd, "flood": s.flood, "loop": s.loop, "again": s.again,
		"release": s.free, "forge": s.forge, "token": s.token, "use": s.use, "shut": s.shut,
	}[path.Base(r.URL.Path)]
	if do == nil || !strings.HasPrefix(r.URL.Path, "/hostile/") {
		http.Error(w, "taken over", http.StatusOK)
		return
	}
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil && r.Method == http.MethodPost {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if got := do(w, r, o); got != nil {
		_ = json.NewEncoder(w).Encode(got)
	}
}

func (s *stage) attack(_ http.ResponseWriter, r *http.Request, o order) any {
	got := map[string]string{}
	for _, a := range attempts {
		got[a.name] = a.try(&attacker{env: s.env, order: o, request: r})
	}
	return got
}

// spawn starts processes that are no members of the stage's process group.
func (s *stage) spawn(_ http.ResponseWriter, _ *http.Request, o order) any {
	for range o.Count {
		p, err := os.StartProcess("/bin/sleep", []string{"sleep", fmt.Sprint(o.Seconds)}, &os.ProcAttr{Sys: &syscall.SysProcAttr{Setsid: true}})
		if err != nil {
			return err.Error()
		}
		_ = p.Release()
	}
	return ""
}

// leave starts a process in a session of its own, whose parent ends.
func (s *stage) leave(_ http.ResponseWriter, _ *http.Request, o order) any {
	line := fmt.Sprintf("setsid sleep %v </dev/null >/dev/null 2>&1 &", o.Seconds)
	if err := exec.Command("/bin/sh", "-c", line).Run(); err != nil {
		return err.Error()
	}
	return ""
}

// memory uses memory for a while.
func (s *stage) memory(_ http.ResponseWriter, r *http.Request, o order) any {
	const page = 4096
	held := make([]byte, o.Bytes)
	for i := 0; i < len(held); i += page {
		held[i] = 1
	}
	wait(o, r.Context().Done())
	runtime.KeepAlive(held)
	return fmt.Sprintf("kept %d MiB", len(held)>>20)
}

// heads responds with a large head that does not end.
func (s *stage) heads(w http.ResponseWriter, _ *http.Request, o order) any {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	// The SDK would wait for the end of the head.
	raw := reflect.ValueOf(conn).Elem().FieldByName("Conn").Interface().(net.Conn)
	_, _ = fmt.Fprint(raw, "HTTP/1.1 200 OK\r\n")
	const line = 1 << 16
	text := []byte("A: " + strings.Repeat("a", line-len("A: \r\n")) + "\r\n")
	for range o.Bytes / line {
		if _, err := raw.Write(text); err != nil {
			return nil
		}
	}
	wait(o, s.release)
	return nil
}

// crowd makes connections to the host with a part of a request, and keeps as many as it may have descriptors.
func (s *stage) crowd(_ http.ResponseWriter, _ *http.Request, o order) any {
	for range o.Count {
		conn, err := net.Dial("unix", s.env.Host().Socket)
		if err != nil {
			continue
		}
		_, _ = fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: host\r\nA: ")
		s.crowded = append(s.crowded, conn)
		if len(s.crowded) > 3000 {
			_ = s.crowded[0].Close()
			s.crowded = s.crowded[1:]
		}
	}
	return ""
}

// flood connects to the host, and closes the connections, by many threads at once.
func (s *stage) flood(_ http.ResponseWriter, r *http.Request, o order) any {
	return repeat(r, o, func() {
		if conn, err := net.Dial("unix", s.env.Host().Socket); err == nil {
			_ = conn.Close()
		}
	})
}

// loop begins to ask for what it serves by asking for it again, from many threads.
func (s *stage) loop(_ http.ResponseWriter, _ *http.Request, o order) any {
	s.loopEnds.Store(time.Now().Add(o.duration()).UnixNano())
	for range o.Count {
		go func() {
			for time.Now().UnixNano() < s.loopEnds.Load() {
				s.again(nil, nil, o)
			}
		}()
	}
	return ""
}

// repeat does something in as many threads as it is told, for as long.
func repeat(r *http.Request, o order, do func()) any {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	var all sync.WaitGroup
	for range o.Count {
		all.Go(func() {
			for ctx.Err() == nil {
				do()
			}
		})
	}
	wait(o, ctx.Done())
	cancel()
	all.Wait()
	return ""
}

// again asks for itself until the loop ends, and does not say why.
func (s *stage) again(http.ResponseWriter, *http.Request, order) any {
	ctx, cancel := context.WithDeadline(context.Background(), time.Unix(0, s.loopEnds.Load()))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://catena/hostile/again", nil)
	if err != nil {
		return err.Error()
	}
	if resp, err := s.env.Client().Do(req); err == nil {
		_ = resp.Body.Close()
	}
	return ""
}

// free lets the heads end, the connections and the loop.
func (s *stage) free(http.ResponseWriter, *http.Request, order) any {
	s.loopEnds.Store(0)
	s.once.Do(func() { close(s.release) })
	for _, conn := range s.crowded {
		_ = conn.Close()
	}
	s.crowded = nil
	return ""
}

// wait returns when it is over, or released.
func wait(o order, release <-chan struct{}) {
	select {
	case <-release:
	case <-time.After(o.duration()):
	}
}

// forge writes lines to both outputs, as they are and as hclog would.
func (s *stage) forge(_ http.ResponseWriter, _ *http.Request, o order) any {
	for _, line := range o.Lines {
		for _, out := range []*os.File{os.Stdout, os.Stderr} {
			_, _ = fmt.Fprintln(out, line)
		}
		_ = json.NewEncoder(os.Stderr).Encode(map[string]string{
			"@level": "error", "@module": "catena", "@message": line, "@timestamp": "x", "stage": "core",
		})
		s.env.Log.Named("catena").Error(line, "stage", "core")
	}
	return ""
}

// token gives away the credential of this process.
func (s *stage) token(http.ResponseWriter, *http.Request, order) any { return s.env.Host().Token }

// shut shuts down the socket that the next process inherits, and ends.
func (s *stage) shut(http.ResponseWriter, *http.Request, order) any {
	fd, err := strconv.Atoi(os.Getenv("CATENA_STAGE_LISTENER_FD"))
	if err == nil {
		err = errors.Join(syscall.Listen(fd, 0), syscall.Shutdown(fd, syscall.SHUT_RDWR))
	}
	if err != nil {
		return err.Error()
	}
	os.Exit(1)
	return nil
}

// use asks the host who the process with another token is.
func (s *stage) use(_ http.ResponseWriter, r *http.Request, o order) any {
	const path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
	body := `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`
	return ask(r.Context(), s.env.Host().Socket, o.Token, http.MethodPost, path, body, http.Header{"Content-Type": {"application/json"}})
}
