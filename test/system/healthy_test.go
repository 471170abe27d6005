package system

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// A server in which nothing is wrong logs no warning and no error: not when it starts on
// an empty directory, not when it starts again, not when its stages are swapped, one of
// them with a standby, and not when it stops. The swap of core leaves the server in the
// Service kubernetes, and each process has a debug socket that no other removes.
func TestHealthyLife(t *testing.T) {
	t.Parallel()
	c, err := cluster.StartCatena(t.Context(), cluster.Options{
		Flags: map[string]string{"debug-socket-path": filepath.Join(t.TempDir(), "debug")},
		Set:   []string{"log.format=json", "log.stageLevel=warn", "stages.extensions.standby=true"},
	})
	if err != nil {
		t.Fatal(err)
	}
	ended := false
	t.Cleanup(func() {
		if !ended {
			t.Error(c.Stop(true))
		}
		_ = os.RemoveAll(c.Dir)
	})
	stop := func(what string) {
		t.Helper()
		if err := c.Process().Stop(); err != nil {
			t.Fatal(err)
		}
		ended = true
		for _, line := range complaints(t, c.Process().Log) {
			t.Errorf("%s: %s", what, line)
		}
		if err := os.Truncate(c.Process().Log, 0); err != nil {
			t.Fatal(err)
		}
	}

	awaitKubernetesService(t, c)
	if metrics := do(t, c.Config(cluster.Admin), http.MethodGet, "/metrics", ""); !clientMetricsOfCore.MatchString(metrics.body) {
		t.Error("the metrics of core have no requests of its clients")
	}
	stop("first life")
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	ended = false
	awaitKubernetesService(t, c)
	lost := watchKubernetesService(t, c)
	for _, stage := range []string{"aggregator", "core", "extensions"} {
		if err := c.Swap(t.Context(), stage); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the old process of "+stage+" has ended", func() bool { return settled(t, c) })
		checkDebugSockets(t, c)
	}
	if lost() {
		t.Error("the server was taken out of the Service kubernetes while its stages were swapped")
	}
	checkIdentityLease(t, c)
	stop("second life, with swaps")
}

var clientMetricsOfCore = regexp.MustCompile(`(?m)^rest_client_requests_total\{.*stage="core"`)

// slowMachine is what the host says of etcd when the machine is busy, or its disk.
const slowMachine = "etcd is slow: its disk, or this machine, has too much to do"

// complaints returns the lines of a log in JSON whose level is warn or error.
func complaints(t *testing.T, path string) []string {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var found []string
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var entry struct {
			Level   string `json:"@level"`
			Message string `json:"@message"`
		}
		if !strings.HasPrefix(lines.Text(), "{") {
			continue // what the command prints for people
		}
		if err := json.Unmarshal(lines.Bytes(), &entry); err != nil {
			t.Fatalf("%v: %s", err, lines.Text())
		}
		if entry.Message == slowMachine {
			continue
		}
		if entry.Level == "warn" || entry.Level == "error" {
			found = append(found, lines.Text())
		}
	}
	return found
}

// settled reports whether each stage has its one process, and extensions a standby.
func settled(t *testing.T, c *cluster.Catena) bool {
	t.Helper()
	status, err := c.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, stage := range status.Stages {
		if len(stage.Others) > 0 || stage.Stage == "extensions" && stage.Standby == nil {
			return false
		}
	}
	return true
}

// checkDebugSockets asks the debug sockets of all processes what program serves them.
func checkDebugSockets(t *testing.T, c *cluster.Catena) {
	t.Helper()
	status, err := c.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	run := filepath.Join(c.DataDir(), "run")
	var want []string
	for _, stage := range status.Stages {
		generations := []string{stage.Generation}
		if stage.Standby != nil {
			generations = append(generations, stage.Standby.Generation)
		}
		for _, generation := range generations {
			path := filepath.Join(run, stage.Stage+"-"+generation+".dbg")
			want = append(want, path)
			if got, err := getUnix(t.Context(), path, "/debug/pprof/cmdline"); err != nil || !strings.Contains(got, "catena-stage-"+stage.Stage) {
				t.Errorf("%s: %q %v", path, got, err)
			}
		}
	}
	slices.Sort(want)
	if got, _ := filepath.Glob(filepath.Join(run, "*.dbg")); !slices.Equal(got, want) {
		t.Errorf("debug sockets are %q, want %q", got, want)
	}
}

func getUnix(ctx context.Context, socket, path string) (string, error) {
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://debug"+path, nil)
	if err != nil {
		return "", err
	}
	response, err := transport.RoundTrip(r)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

func adminClient(t *testing.T, c *cluster.Catena) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(c.Config(cluster.Admin))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

//lint:ignore SA1019 the reconciler of core writes Endpoints, and mirrors them
func addresses(endpoints *corev1.Endpoints) (n int) {
	for _, subset := range endpoints.Subsets {
		n += len(subset.Addresses)
	}
	return n
}

func awaitKubernetesService(t *testing.T, c *cluster.Catena) {
	t.Helper()
	endpoints := adminClient(t, c).CoreV1().Endpoints(metav1.NamespaceDefault)
	eventually(t, "the server is in the Service kubernetes", func() bool {
		got, err := endpoints.Get(t.Context(), "kubernetes", metav1.GetOptions{})
		return err == nil && addresses(got) == 1
	})
}

// watchKubernetesService watches the store until the test ends. The function that it
// returns reports whether the server has been taken out of the Service since.
func watchKubernetesService(t *testing.T, c *cluster.Catena) (lost func() bool) {
	t.Helper()
	socket := socketIn(t, filepath.Join(c.DataDir(), "run"), "host.etcd-*.sock")
	store, err := clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + socket}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	const endpoints, leases = "/registry/services/endpoints/default/kubernetes", "/registry/masterleases/"
	var gone atomic.Bool
	for _, w := range []clientv3.WatchChan{
		store.Watch(t.Context(), endpoints), store.Watch(t.Context(), leases, clientv3.WithPrefix()),
	} {
		go func() {
			for response := range w {
				for _, e := range response.Events {
					// An address is text in the encoding of the store, too.
					if e.Type == clientv3.EventTypeDelete || string(e.Kv.Key) == endpoints && !strings.Contains(string(e.Kv.Value), advertised) {
						gone.Store(true)
					}
				}
			}
		}()
	}
	return gone.Load
}

// advertised is the address under which the servers of tests are in the Service.
const advertised = "192.0.2.1"

// checkIdentityLease checks that the server still has the lease by which others know it.
func checkIdentityLease(t *testing.T, c *cluster.Catena) {
	t.Helper()
	leases := adminClient(t, c).CoordinationV1().Leases(metav1.NamespaceSystem)
	list, err := leases.List(t.Context(), metav1.ListOptions{LabelSelector: "apiserver.kubernetes.io/identity=kube-apiserver"})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(list.Items); n != 1 {
		t.Errorf("%d leases of API servers, want one", n)
	}
}

// A provider of OIDC that does not respond is one line of the log at a time, whose authenticator it is: the host's.
func TestOutageOfOIDC(t *testing.T) {
	t.Parallel()
	c := catena(t, cluster.Options{
		Flags: map[string]string{"oidc-issuer-url": "https://127.0.0.1:1/", "oidc-client-id": "test"},
		Set:   []string{"log.format=json", "log.stageLevel=warn"},
	})
	var told []string
	eventually(t, "the log tells of the provider", func() bool {
		told = complaints(t, c.Process().Log)
		return len(told) > 0
	})
	for _, line := range told {
		if !strings.Contains(line, `"catena.front"`) || !strings.Contains(line, "oidc authenticator: initializing plugin: ") {
			t.Error(line)
		}
	}
	// Both documents say how to authenticate, as they do without OIDC.
	if a := do(t, c.Config(cluster.Admin), http.MethodGet, "/openapi/v2", ""); !strings.Contains(a.body, `"securityDefinitions":{"BearerToken":`) {
		t.Error("the document of OpenAPI has no bearer tokens")
	}
}
