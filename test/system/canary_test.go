package system

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// releases are the releases of core that clients have, by user: some of them ask whether it serves a resource that only the newer has.
type releases struct {
	users map[string]kubernetes.Interface
}

const (
	of136 = "1.36"
	of137 = "1.37"
)

func newReleases(t *testing.T, s *cluster.Server) releases {
	t.Helper()
	r := releases{map[string]kubernetes.Interface{}}
	for i := range 12 {
		user := fmt.Sprint("client-", i)
		client, err := kubernetes.NewForConfig(as(s, user))
		if err != nil {
			t.Fatal(err)
		}
		r.users[user] = client
	}
	return r
}

// now asks for each user, several times: what it gets must be the same each time.
func (r releases) now(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for range 5 {
		for user, client := range r.users {
			got := of137
			err := client.CoreV1().RESTClient().Get().AbsPath("/apis/certificates.k8s.io/v1/podcertificaterequests").Do(t.Context()).Error()
			if apierrors.IsNotFound(err) {
				got = of136
			} else if err != nil {
				t.Errorf("%s: %v", user, err)
			}
			if before, ok := all[user]; ok && before != got {
				t.Errorf("%s had Kubernetes %s, and then %s", user, before, got)
			}
			all[user] = got
		}
	}
	return all
}

// all reports whether all users have one release.
func (r releases) all(t *testing.T, release string) bool {
	return !slices.ContainsFunc(slices.Collect(maps.Values(r.now(t))), func(got string) bool { return got != release })
}

// A part of the users gets core of Kubernetes 1.36, under load. The others keep theirs, and each keeps what it has, until its
// turn comes or all go back.
func TestCanary(t *testing.T) {
	t.Parallel()
	c := catena(t, cluster.Options{})
	bin, err := cluster.Bin()
	if err != nil {
		t.Fatal(err)
	}
	command := func(args ...string) run {
		t.Helper()
		r := runCatena(t, append(args, "--data-dir", c.DataDir())...)
		if r.code != 0 {
			t.Fatalf("%v: exit code %d\n%s%s", args, r.code, r.stdout, r.stderr)
		}
		return r
	}
	begin := func(share string) {
		t.Helper()
		r := command("swap", "core", "--binary", filepath.Join(bin, "kube-1.36", "catena-stage-core"), "--allow", vanishing+"/v1",
			"--canary", share, "--by", "user", "--for", "1h", "--rollback-on", "errors=1%,latency=10000%,health")
		if !strings.Contains(r.stdout, share+" of the users go to ") ||
			!strings.Contains(r.stdout, "and with it aggregator") {
			t.Errorf("%s", r.stdout)
		}
	}
	users := newReleases(t, c.Server)
	if !users.all(t, of137) {
		t.Fatal("some have Kubernetes 1.36 before")
	}

	done := useWhile(t, c.Server)
	begin("40%")
	first := users.now(t)
	if got := slices.Compact(slices.Sorted(maps.Values(first))); !slices.Equal(got, []string{of136, of137}) {
		t.Errorf("at 40%%, users have %v", first)
	}
	for user, release := range first {
		// Discovery comes from the aggregator: what it says fits what core serves.
		discovery, err := users.users[user].Discovery().RESTClient().Get().AbsPath("/apis/certificates.k8s.io/v1").DoRaw(t.Context())
		if discovers := strings.Contains(string(discovery), "podcertificaterequests"); err != nil || discovers != (release == of137) {
			t.Errorf("%s has Kubernetes %s; discovery with podcertificaterequests: %t (%v)", user, release, discovers, err)
		}
		if version, err := users.users[user].Discovery().ServerVersion(); err != nil || !strings.HasPrefix(version.GitVersion, "v"+release+".") {
			t.Errorf("%s has Kubernetes %s; /version: %v (%v)", user, release, version, err)
		}
	}
	if r := command("status", "core"); !strings.Contains(r.stdout, "core is a canary: 40% of the users go to ") ||
		!strings.Contains(r.stdout, "create  configmaps ") {
		t.Errorf("status:\n%s", r.stdout)
	}
	refused := func(args ...string) {
		t.Helper()
		if r := runCatena(t, append(args, "--data-dir", c.DataDir())...); r.code != 1 || !strings.Contains(r.stderr, `a canary of stage "core" is under way`) {
			t.Errorf("%v: exit code %d\n%s", args, r.code, r.stderr)
		}
	}
	refused("swap", "extensions")
	if metrics := kubectl(t, c.Server, "get", "--raw", "/metrics"); !strings.Contains(metrics, `catena_canary_share{stage="core"} 0.4`) || !strings.Contains(metrics, `catena_canary_requests_total{outcome="served",side="new",stage="core"}`) {
		t.Error("the metrics do not show the canary")
	}
	command("swap", "core", "--rollback")
	if !users.all(t, of137) {
		t.Error("some have Kubernetes 1.36 after the way back")
	}
	begin("40%")
	if again := users.now(t); !maps.Equal(again, first) {
		t.Errorf("another canary has other users: %v, before %v", again, first)
	}
	command("swap", "core", "--promote")
	if !users.all(t, of136) {
		t.Error("some have Kubernetes 1.37 after the canary")
	}
	newer := filepath.Join(bin, "plugins", "catena-stage-core")
	command("swap", "core", "--binary", newer, "--emulate", "--canary", "50%", "--for", "1h")
	refused("upgrade", "finalize", "core")
	command("swap", "core", "--rollback")
	command("swap", "core", "--binary", newer)
	done()

	begin("60%")
	pid, err := strconv.Atoi(strings.TrimSpace(command("status", "core", "-o", "pid").stdout))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all to be back at 1.37", func() bool { return users.all(t, of137) })
}
