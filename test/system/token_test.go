package system

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/test/internal/cluster"
)

// envAsk makes a process of the stage leaky ask the host with the token in it, and print what it got.
const envAsk = "SYSTEM_TEST_ASK"

// newLeaky is a stage that gives away its token at /leaky, and has a process of its own use it at
// /leaky/child.
func newLeaky(env *sdk.Env) (http.Handler, error) {
	env.ClaimPrefix("/leaky")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _ := json.Marshal(env.Host())
		if r.URL.Path == "/leaky" {
			_, _ = w.Write(host)
			return
		}
		cmd := exec.CommandContext(r.Context(), os.Args[0])
		cmd.Env = append(cmd.Environ(), envAsk+"="+string(host))
		out, err := cmd.CombinedOutput()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
		_, _ = w.Write(out)
	}), nil
}

// askHost returns the status with which the host responds to one who has its token.
func askHost(host sdk.Host) (int, error) {
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", host.Socket)
	}}}
	defer client.CloseIdleConnections()
	r, err := http.NewRequest(http.MethodGet, "http://host/version", nil)
	if err != nil {
		return 0, err
	}
	r.Header.Set("Authorization", "Bearer "+host.Token)
	resp, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

// printStatus is the main function of the process that a stage starts.
func printStatus() {
	var host sdk.Host
	err := json.Unmarshal([]byte(os.Getenv(envAsk)), &host)
	var status int
	if err == nil {
		status, err = askHost(host)
	}
	fmt.Println(status, err)
}

// A token is of use to the process that has it and to those that it has started, and to nobody else.
func TestTokenOfAnotherProcess(t *testing.T) {
	t.Parallel()
	for _, isolation := range []string{"auto", "off"} {
		t.Run(isolation, func(t *testing.T) {
			t.Parallel()
			c := smallCatena(t, "apiVersion: catena.dev/v1alpha1\nkind: HostConfiguration\nstages:\n  leaky: {lock: off, isolation: "+isolation+"}\n", nil, "leaky")
			config := c.Config(cluster.Bob)
			if a := do(t, config, http.MethodGet, "/leaky/child", ""); strings.TrimSpace(a.body) != "200 <nil>" {
				t.Errorf("a process of the stage: %d %s", a.code, a.body)
			}
			var host sdk.Host
			if err := json.Unmarshal([]byte(do(t, config, http.MethodGet, "/leaky", "").body), &host); err != nil {
				t.Fatal(err)
			}
			if status, err := askHost(host); err != nil || status != http.StatusUnauthorized {
				t.Errorf("another process: %d %v", status, err)
			}
			if log := string(read(c.Process().Log)); !strings.Contains(log, "it comes from another process") || strings.Contains(log, host.Token) {
				t.Errorf("the log is wrong about it:\n%s", log)
			}
		})
	}
}
