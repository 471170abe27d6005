package relay

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/catena-dev/catena/sdk/stagev1/header"
)

// isNew sends a request to the new side.
func isNew(r *http.Request) bool { return r.URL.Query().Has("new") }

func split(chain *Chain, old, next []Stage) {
	all := Tables{All: order(len(old))}
	chain.SetSplit(all, old, Split{Tables: all, Stages: next, Share: 0.5, Includes: isNew})
}

func TestSplit(t *testing.T) {
	t.Parallel()
	old, next := serveStage(t, respondsWith("old")), serveStage(t, respondsWith("new"))
	var hops []Hop
	chain := newChain(t, Config{Observe: func(h Hop) { hops = append(hops, h) }}, old)
	get := func(path, want string) Hop {
		t.Helper()
		w := httptest.NewRecorder()
		chain.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if got := w.Body.String(); got != want {
			t.Errorf("%s: served by the %s process, want %s", path, got, want)
		}
		return hops[len(hops)-1]
	}
	if h := get("/?new", "old"); h.Request != nil {
		t.Errorf("a request without a split: %+v", h)
	}
	split(chain, []Stage{{Name: "a", Socket: old}}, []Stage{{Name: "a", Socket: next}})
	connections := endpointOf(chain)
	if h := get("/", "old"); h.Request == nil || h.Socket != old {
		t.Errorf("%+v", h)
	}
	if h := get("/?new", "new"); h.Socket != next {
		t.Errorf("%+v", h)
	}
	if endpointOf(chain) != connections {
		t.Error("the split took the connections of the stage that serves")
	}
	chain.Set(Tables{All: order(1)}, []Stage{{Name: "a", Socket: next}})
	get("/", "new")
	if endpointOf(chain) == connections {
		t.Error("the old process is still there")
	}
}

// TestSplitFollowsTheRequest shows that what a stage hands on stays on its side, and so does what a process of that side asks for
// by itself.
func TestSplitFollowsTheRequest(t *testing.T) {
	t.Parallel()
	var h *host
	caller := func(side, token string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			resp, err := h.send(r.Context(), http.MethodGet, token, header.Next, r.Header.Get(header.Request), r.RequestURI, nil)
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			text, _ := io.ReadAll(resp.Body)
			fmt.Fprintf(w, "%s, %s", side, text)
		})
	}
	old := []Stage{{Name: "a", Socket: serveStage(t, caller("old", "token-a"))}, {Name: "b", Socket: serveStage(t, respondsWith("old"))}}
	next := []Stage{{Name: "a", Socket: serveStage(t, caller("new", "token-a-other"))}, {Name: "b", Socket: serveStage(t, respondsWith("new"))}}
	h = newHost(t, old[0].Socket, old[1].Socket)
	h.other = next[0].Socket
	split(h.chain, old, next)
	for path, want := range map[string]string{"/x": "old, old", "/x?new": "new, new"} {
		w := httptest.NewRecorder()
		h.chain.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if got := w.Body.String(); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	r := httptest.NewRequest(http.MethodGet, "/x", nil)
	w := httptest.NewRecorder()
	h.chain.ServeHTTP(w, withCall(r, &call{delegate: "b", canary: true}))
	if got := w.Body.String(); got != "new" {
		t.Errorf("a process of the new side asks for stage b: %q", got)
	}
}

// TestSplitEnds shows that a request goes to what has taken the place of the process on its side, or of the whole side.
func TestSplitEnds(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{"the old process": "/", "the new process": "/?new"} {
		var chain *Chain
		alive := serveStage(t, respondsWith("alive"))
		dying := scriptStage(t, func(_ int, _ *net.UnixConn, r *bufio.Reader) {
			if _, err := http.ReadRequest(r); err == nil {
				chain.Set(Tables{All: order(1)}, []Stage{{Name: "a", Socket: alive}})
			}
		})
		sides := []Stage{{Name: "a", Socket: dying}, {Name: "a", Socket: alive}}
		if path != "/" {
			slices.Reverse(sides)
		}
		chain = newChain(t, Config{}, sides[0].Socket)
		split(chain, sides[:1], sides[1:])
		if _, text := fetch(t, serve(t, chain), http.MethodGet, path, nil); text != "alive" {
			t.Errorf("%s dies: %q", name, text)
		}
	}
}

// TestSplitEndsWatches shows that the watches whose side changes end as a whole: their clients see no error and no torn event.
func TestSplitEndsWatches(t *testing.T) {
	t.Parallel()
	event := strings.Repeat("x", 100) + "\n"
	watch := func(name string, more <-chan struct{}) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintln(w, name)
			flush := w.(http.Flusher).Flush
			flush()
			for busy := r.URL.Query().Has("busy"); ; {
				select {
				case <-r.Context().Done():
					return
				default:
				}
				if !busy {
					select {
					case <-more:
						fmt.Fprintln(w, "more")
						flush()
					case <-r.Context().Done():
					}
					<-r.Context().Done()
					return
				}
				io.WriteString(w, event[:50])
				flush() // in the middle of an event
				io.WriteString(w, event[50:])
				flush()
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
	config := Config{Watch: func(r *http.Request) bool { return r.URL.Path == "/watch" }}
	for name, start := range map[string]func(testing.TB, http.Handler) *httptest.Server{"HTTP/1.1": serve, "HTTP/2": serveHTTP2} {
		t.Run(name, func(t *testing.T) {
			more := make(chan struct{})
			old, next := Stage{Name: "a", Socket: serveStage(t, watch("old", more))}, Stage{Name: "a", Socket: serveStage(t, watch("new", more))}
			chain := newChain(t, config, old.Socket)
			srv := start(t, chain)
			open := func(path string) *bufio.Reader {
				resp, err := srv.Client().Get(srv.URL + path)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { resp.Body.Close() })
				r := bufio.NewReader(resp.Body)
				if line, err := r.ReadString('\n'); line != "old\n" {
					t.Fatalf("%q, %v", line, err)
				}
				return r
			}
			stay, log := open("/watch"), open("/log?new")
			moved := []*bufio.Reader{open("/watch?new"), open("/watch?new&busy")}
			split(chain, []Stage{old}, []Stage{next})
			for _, r := range moved {
				ended := make(chan error)
				go func() {
					rest, err := io.ReadAll(r)
					if err == nil && strings.ReplaceAll(string(rest), event, "") != "" {
						err = fmt.Errorf("ended in the middle of an event: %q", rest)
					}
					ended <- err
				}()
				if err := within(t, "the end of a watch whose side changes", ended); err != nil {
					t.Error(err)
				}
			}
			close(more)
			for what, r := range map[string]*bufio.Reader{"a watch of the old side": stay, "what is no watch": log} {
				if line, err := r.ReadString('\n'); line != "more\n" {
					t.Errorf("%s: %q, %v", what, line, err)
				}
			}
			split(chain, []Stage{old}, []Stage{next})
			if line, _ := fetchLine(t, srv, "/watch?new"); line != "new\n" {
				t.Errorf("the next watch: %q", line)
			}
			srv.CloseClientConnections()
		})
	}
}

// fetchLine returns the first line of a response.
func fetchLine(t *testing.T, srv *httptest.Server, path string) (string, error) {
	t.Helper()
	resp, err := srv.Client().Get(srv.URL + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return bufio.NewReader(resp.Body).ReadString('\n')
}
