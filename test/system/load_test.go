package system

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// load is a small, steady load: objects are created without a pause, and others that
// exist are read.
type load struct {
	server *cluster.Server
	client *http.Client
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex
	acked    []string // paths of objects whose creation was acknowledged
	wrong    []string // answers that must never come
	failures map[string][]failure
}

// failure is a read of a kind that got no good response.
type failure struct {
	at   time.Time
	what string
}

// kinds of objects, each of another stage: where they are created, and how.
var kinds = map[string]struct{ path, head string }{
	"core":       {"/api/v1/namespaces/default/configmaps", `"apiVersion": "v1", "kind": "ConfigMap"`},
	"extensions": {"/apis/test.example.com/v1/namespaces/default/widgets", `"apiVersion": "test.example.com/v1", "kind": "Widget"`},
	"aggregator": {"/apis/apiregistration.k8s.io/v1/apiservices", `"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService"`},
}

// existing is the object of a kind that is there all the time.
func existing(stage string) string {
	if stage == "aggregator" {
		return kinds[stage].path + "/v1.apps"
	}
	return kinds[stage].path + "/existing"
}

// startLoad prepares the server and begins.
func startLoad(t *testing.T, s *cluster.Server) *load {
	t.Helper()
	apply(t, s, widgets)
	for _, stage := range []string{"core", "extensions"} {
		eventually(t, "objects of "+stage+" can be created", func() bool {
			a := do(t, s.Config(cluster.Admin), http.MethodPost, kinds[stage].path, object(stage, "existing"))
			return a.code == http.StatusCreated || a.code == http.StatusConflict
		})
	}
	return resumeLoad(t, s)
}

// resumeLoad begins, on a server that has been prepared.
func resumeLoad(t *testing.T, s *cluster.Server) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{server: s, client: httpClient(t, s.Config(cluster.Admin)), cancel: cancel, failures: map[string][]failure{}}
	for _, stage := range []string{"core", "extensions"} {
		l.wg.Go(func() { l.create(ctx, stage) })
	}
	for stage := range kinds {
		l.wg.Go(func() { l.read(ctx, stage) })
	}
	t.Cleanup(l.stop)
	return l
}

func object(stage, name string) string {
	return fmt.Sprintf(`{%s, "metadata": {"name": %q}}`, kinds[stage].head, name)
}

// stop ends the load. It can be called more than once.
func (l *load) stop() {
	l.cancel()
	l.wg.Wait()
	l.client.CloseIdleConnections()
}

func (l *load) create(ctx context.Context, stage string) {
	for i := 0; ctx.Err() == nil; i++ {
		name := fmt.Sprintf("%s-%d-%d", stage, time.Now().UnixNano(), i)
		code, body := l.request(ctx, http.MethodPost, kinds[stage].path, object(stage, name))
		l.mu.Lock()
		switch code {
		case http.StatusCreated:
			l.acked = append(l.acked, kinds[stage].path+"/"+name)
		case http.StatusNotFound:
			l.wrong = append(l.wrong, "create: 404 "+body)
		}
		l.mu.Unlock()
		pause(ctx)
	}
}

func (l *load) read(ctx context.Context, stage string) {
	for ctx.Err() == nil {
		code, body := l.request(ctx, http.MethodGet, existing(stage), "")
		l.mu.Lock()
		if code == http.StatusNotFound {
			l.wrong = append(l.wrong, existing(stage)+": 404 "+body)
		}
		if code != http.StatusOK && ctx.Err() == nil {
			l.failures[stage] = append(l.failures[stage], failure{time.Now(), fmt.Sprint(code, " ", body)})
		}
		l.mu.Unlock()
		pause(ctx)
	}
}

// pause leaves the machine to those who are tested.
func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(10 * time.Millisecond):
	}
}

// request returns the status, 0 if there was no response.
func (l *load) request(ctx context.Context, method, path, body string) (int, string) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, l.server.URL+path, bytes.NewReader([]byte(body)))
	if err != nil {
		return 0, err.Error()
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := l.client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, strings.TrimSpace(string(text))
}

// failed returns what readers of a stage's object have not got since a moment.
func (l *load) failed(stage string, since time.Time) []failure {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []failure
	for _, f := range l.failures[stage] {
		if f.at.After(since) {
			found = append(found, f)
		}
	}
	return found
}

// awaitWrites waits until that many more writes of each kind have been acknowledged.
func (l *load) awaitWrites(t *testing.T, n int) {
	t.Helper()
	count := func(stage string) int {
		l.mu.Lock()
		defer l.mu.Unlock()
		sum := 0
		for _, path := range l.acked {
			if strings.HasPrefix(path, kinds[stage].path) {
				sum++
			}
		}
		return sum
	}
	for _, stage := range []string{"core", "extensions"} {
		before := count(stage)
		eventually(t, fmt.Sprintf("%d more writes of %s", n, stage), func() bool { return count(stage) >= before+n })
	}
}

// verify checks that everything that was acknowledged is there, and that no response was
// one that must never come.
func (l *load) verify(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.wrong {
		t.Errorf("wrong response to %s", w)
	}
	stored := map[string]bool{}
	for _, stage := range []string{"core", "extensions"} {
		for _, name := range names(t, do(t, l.server.Config(cluster.Admin), http.MethodGet, kinds[stage].path, "").body) {
			stored[kinds[stage].path+"/"+name] = true
		}
	}
	for _, path := range l.acked {
		if !stored[path] {
			t.Errorf("acknowledged and lost: %s", path)
		}
	}
	t.Logf("%d writes were acknowledged", len(l.acked))
}
