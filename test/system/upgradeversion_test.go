package system

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// All that says to clients which release of Kubernetes they have is that of core: while it goes from one to another, in steps and back, each
// says the one and then the other, at one point in time, and a document is "not modified" only if it is the same.
func TestUpgradeVersion(t *testing.T) {
	t.Parallel()
	bin, err := cluster.Bin()
	if err != nil {
		t.Fatal(err)
	}
	older, newer := filepath.Join(bin, "kube-1.36", "catena-stage-core"), filepath.Join(bin, "plugins", "catena-stage-core")
	c := catena(t, cluster.Options{Set: []string{"stages.core.binary=" + older}})
	says := func(release, emulated string) {
		t.Helper()
		var got struct{ ServerVersion version.Info }
		if err := json.Unmarshal([]byte(kubectl(t, c.Server, "version", "-o", "json")), &got); err != nil {
			t.Fatal(err)
		}
		v := got.ServerVersion
		if !strings.HasPrefix(v.GitVersion, "v"+release+".") || v.Major+"."+v.Minor != release || v.EmulationMajor+"."+v.EmulationMinor != emulated {
			t.Errorf("the server says %+v, want %s as %s", v, release, emulated)
		}
		var document struct{ Info struct{ Version string } }
		if err := json.Unmarshal([]byte(kubectl(t, c.Server, "get", "--raw", "/openapi/v2")), &document); err != nil || document.Info.Version != emulated {
			t.Errorf("OpenAPI says %q (%v), want %s", document.Info.Version, err, emulated)
		}
	}
	command := func(args ...string) {
		t.Helper()
		if r := runCatena(t, append(args, "--data-dir", c.DataDir())...); r.code != 0 {
			t.Fatalf("%v: exit code %d\n%s%s", args, r.code, r.stdout, r.stderr)
		}
	}

	says("1.36", "1.36")
	polled := pollDocuments(t, c.Server)
	t.Cleanup(func() {
		for _, d := range polled.documents {
			if t.Failed() {
				t.Logf("%s as %s was %v, and in the states of the server %v", d.path, d.accept, d.seen, d.states)
			}
		}
	})
	polled.next(t)
	command("swap", "core", "--binary", newer, "--emulate")
	says("1.37", "1.36")
	polled.next(t)
	command("upgrade", "finalize", "core")
	says("1.37", "1.37")
	polled.next(t)
	command("swap", "core", "--binary", older, "--rollback-on", "health", "--probation", "10m")
	says("1.36", "1.36")
	polled.next(t)
	polled.crashes.Store(true)
	var status struct {
		Stages []struct {
			Stage string
			PID   int
		}
	}
	if err := json.Unmarshal([]byte(runCatena(t, "status", "-o", "json", "--data-dir", c.DataDir()).stdout), &status); err != nil || len(status.Stages) != 3 {
		t.Fatalf("status: %v, %v", status, err)
	}
	if err := syscall.Kill(status.Stages[1].PID, syscall.SIGKILL); err != nil { // core, in the middle of the chain
		t.Fatal(err)
	}
	eventually(t, "the rollback", func() bool {
		return strings.Contains(kubectl(t, c.Server, "version"), "Server Version: v1.37.")
	})
	says("1.37", "1.37")
	// The aggregator that has its place again asks the stages for their indexes each fifth second at least, for their documents when it is asked, and merges them.
	for _, d := range polled.documents {
		if d.path == "/openapi/v3" || d.path == "/openapi/v2" {
			eventually(t, d.path+" of the release", func() bool { return d.now() == d.states[2] })
		}
	}
	polled.next(t)
	polled.stop()

	for _, d := range polled.documents {
		t.Logf("%s: %d requests, %d not modified", d.path, d.requests, d.notModified)
		// A release has the same document each time, and the emulated one that of the older release or one of its own.
		if len(d.states) != 5 || d.states[2] != d.states[4] || d.states[0] != d.states[3] || d.states[0] == d.states[2] {
			t.Errorf("%s: in the five states of the server there were %v", d.path, d.states)
		}
		// One that an aggregator merges while the requests move may be of both releases.
		seen, want := d.seen, slices.Compact(slices.Clone(d.states))
		if d.path == "/openapi/v3" && len(seen) > len(want) {
			// After the rollback it may be late, and go to and fro while it is.
			seen = slices.Concat(seen[:len(want)-1], seen[len(seen)-1:])
		}
		if d.path != "/openapi/v2" && !slices.Equal(seen, want) {
			t.Errorf("%s was %v, want %v", d.path, d.seen, want)
		}
		if d.hasETags && d.notModified == 0 {
			t.Errorf("%s: no request got 304", d.path)
		}
	}
}

// polledDocuments are documents that are asked for all the time.
type polledDocuments struct {
	documents []*polledDocument
	// crashes says that a stage is about to, in the middle of a response maybe.
	crashes atomic.Bool
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// polledDocument is one of them.
type polledDocument struct {
	path, accept string
	hasETags     bool
	get          func(etag string) (status int, header http.Header, body []byte, err error)

	mu                    sync.Mutex
	requests, notModified int
	// seen are the contents that there were, each a digest, and states those when next was called.
	seen, states []string
	// contents are by ETag.
	contents map[string]string
}

var errInterrupted = errors.New("the response has been interrupted")

// pollDocuments begins to ask for the documents that tell the release of Kubernetes, or depend on it.
func pollDocuments(t *testing.T, s *cluster.Server) *polledDocuments {
	t.Helper()
	config := s.Config(cluster.Admin)
	config.QPS = -1
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	ctx, cancel := context.WithCancel(t.Context())
	p := &polledDocuments{cancel: cancel, documents: []*polledDocument{
		{path: "/version"},
		{path: "/openapi/v2", accept: "application/json", hasETags: true},
		{path: "/openapi/v2", accept: "application/com.github.proto-openapi.spec.v2@v1.0+protobuf", hasETags: true},
		{path: "/openapi/v3", accept: "application/json"},
		{path: "/openapi/v3/apis", accept: "application/json", hasETags: true},
		{path: "/openapi/v3/version", accept: "application/json", hasETags: true},
		{path: "/openapi/v3/apis/apps/v1", accept: "application/json", hasETags: true},
		{path: "/apis", accept: aggregated, hasETags: true},
	}}
	for _, d := range p.documents {
		d.contents = map[string]string{}
		d.get = func(etag string) (int, http.Header, []byte, error) {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+d.path, nil)
			if err != nil {
				return 0, nil, nil, err
			}
			r.Header.Set("Accept", d.accept)
			if etag != "" {
				r.Header.Set("If-None-Match", etag)
			}
			resp, err := client.Do(r)
			if err != nil {
				return 0, nil, nil, err
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				err = fmt.Errorf("%w: %w", errInterrupted, err)
			}
			return resp.StatusCode, resp.Header, body, err
		}
		if err := d.poll(""); err != nil {
			t.Fatal(err)
		}
		p.running.Go(func() {
			for turn := 0; ctx.Err() == nil; turn++ {
				err := d.poll(d.known(turn))
				if errors.Is(err, errInterrupted) && p.crashes.Load() {
					err = nil
				}
				if err != nil && ctx.Err() == nil {
					t.Error(err)
				}
				select {
				case <-ctx.Done():
				case <-time.After(25 * time.Millisecond): // so that it does not take all of the machine
				}
			}
		})
	}
	return p
}

// known is one of the ETags that the document has had, a different one each turn.
func (d *polledDocument) known(turn int) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	etags := []string{""}
	for etag := range d.contents {
		etags = append(etags, etag)
	}
	slices.Sort(etags)
	return etags[turn%len(etags)]
}

// poll asks for the document if it does not have the ETag any more, and notes what it has become.
func (d *polledDocument) poll(etag string) error {
	status, header, body, err := d.get(etag)
	if err != nil {
		return fmt.Errorf("%s: %w", d.path, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.requests++
	var content string
	switch {
	case status == http.StatusOK:
		content = fmt.Sprintf("%.4x", sha256.Sum256(body))
		if etag := header.Get("Etag"); d.hasETags {
			if was, ok := d.contents[etag]; ok && was != content || etag == "" {
				return fmt.Errorf("%s: ETag %s was that of %s, and is that of %s", d.path, etag, was, content)
			}
			d.contents[etag] = content
		}
	case status == http.StatusNotModified && etag != "":
		d.notModified++
		content = d.contents[etag]
	default:
		return fmt.Errorf("%s: status %d: %.200s", d.path, status, body)
	}
	if len(d.seen) == 0 || d.seen[len(d.seen)-1] != content {
		d.seen = append(d.seen, content)
	}
	return nil
}

// next notes the documents of the state of the server that there is now.
func (p *polledDocuments) next(t *testing.T) {
	t.Helper()
	for _, d := range p.documents {
		d.mu.Lock()
		before := d.requests
		d.mu.Unlock()
		eventually(t, "requests for "+d.path, func() bool {
			d.mu.Lock()
			defer d.mu.Unlock()
			return d.requests > before+1 // the first may have begun before
		})
		d.states = append(d.states, d.now())
	}
}

// now is the content of the document.
func (d *polledDocument) now() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.seen[len(d.seen)-1]
}

func (p *polledDocuments) stop() {
	p.cancel()
	p.running.Wait()
}
