//go:build linux

package system

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// A server whose store can no longer be written ends, so that something starts it again: within ten seconds, whatever waits for the store and
// whatever delay a shutdown has otherwise, with a line that names the store. Requests that come meanwhile get 503.
func TestStoreDies(t *testing.T) {
	for name, die := range map[string]func(t *testing.T, c *cluster.Catena){
		"the file system is full": func(t *testing.T, c *cluster.Catena) {
			f, err := os.Create(filepath.Join(c.DataDir(), "ballast"))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			for err == nil {
				_, err = f.Write(make([]byte, 1<<20))
			}
			if !errors.Is(err, syscall.ENOSPC) {
				t.Fatal(err)
			}
		},
		"files may not grow": func(t *testing.T, c *cluster.Catena) {
			info, err := os.Stat(filepath.Join(c.DataDir(), "etcd", "member", "snap", "db"))
			if err != nil {
				t.Fatal(err)
			}
			limit := &unix.Rlimit{Cur: uint64(info.Size()), Max: unix.RLIM_INFINITY}
			if err := unix.Prlimit(c.Process().PID(), unix.RLIMIT_FSIZE, limit, nil); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := cluster.StartCatena(t.Context(), cluster.Options{
				Flags: map[string]string{"shutdown-delay-duration": "60s"},
				Prepare: func(c *cluster.Catena) error {
					if err := os.Mkdir(c.DataDir(), 0o700); err != nil {
						return err
					}
					if err := unix.Mount("tmpfs", c.DataDir(), "tmpfs", 0, "size=300m,mode=0700"); err != nil {
						return err
					}
					t.Cleanup(func() { _ = unix.Unmount(c.DataDir(), unix.MNT_DETACH) })
					return nil
				},
			})
			if errors.Is(err, syscall.EPERM) {
				t.Skipf("this machine lets the test mount nothing: %v", err)
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Stop(t.Failed()) }) // it has ended by itself
			config := c.Config(cluster.Admin)
			watch := send(t, config, http.MethodGet, "/api/v1/configmaps?watch=true", "", nil)
			defer watch.Body.Close()

			die(t, c)
			var failed atomic.Bool // whether the host has said so
			var clients sync.WaitGroup
			for i := range 8 {
				clients.Go(func() {
					client := httpClient(t, config)
					for n := 0; ; n++ {
						after := failed.Load()
						body := fmt.Sprintf(`{"metadata":{"name":"c-%d-%d"},"data":{"a":%q}}`, i, n, strings.Repeat("x", 200_000))
						resp, err := client.Post(config.Host+"/api/v1/namespaces/default/configmaps", "application/json", strings.NewReader(body))
						if err != nil {
							select {
							case <-c.Process().Done:
								return
							case <-time.After(10 * time.Millisecond):
							}
							continue
						}
						text, err := io.ReadAll(resp.Body)
						_ = resp.Body.Close()
						if err != nil {
							continue // the process has ended in the middle of it
						}
						if after && resp.StatusCode != http.StatusServiceUnavailable {
							t.Errorf("a request after the store has failed: %d %s", resp.StatusCode, text)
						}
						status := struct{ Message string }{}
						if after && (json.Unmarshal(text, &status) != nil || !strings.Contains(status.Message, "store")) {
							t.Errorf("the response does not name the store: %s", text)
						}
					}
				})
			}
			log := func() string { text, _ := os.ReadFile(c.Process().Log); return string(text) }
			eventually(t, "the log says that the store has failed", func() bool { return strings.Contains(log(), "the store has failed") })
			at := time.Now()
			failed.Store(true)
			eventually(t, "the server ends", func() bool {
				select {
				case <-c.Process().Done:
					return true
				default:
					return false
				}
			})
			if took := time.Since(at); took > 10*time.Second {
				t.Errorf("it took %s to end", took)
			}
			clients.Wait()
			if code := c.Process().ExitCode(); code != 1 {
				t.Errorf("exit code %d", code)
			}
			last := regexp.MustCompile(`(?ms)^catena: .*`).FindString(log())
			if !strings.HasPrefix(last, "catena: store: embedded etcd: ") || strings.Count(last, "\n") > 1 {
				t.Errorf("the last words are %q", last)
			}
		})
	}
}
