package front_test

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"testing"
)

// Each watch takes a seat of priority and fairness until its response starts. If
// seats were not given back then, the third would be refused.
func TestWatchesGiveTheirSeatsBack(t *testing.T) {
	t.Parallel()
	tokens := writeFile(t, "tokens.csv", "secret,bob,1\n")
	s := start(t, flagValues{
		"authorization-mode":             {"AlwaysAllow"},
		"token-auth-file":                {tokens},
		"max-requests-inflight":          {"1"},
		"max-mutating-requests-inflight": {"1"},
	}, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	bob := s.client(t)
	bob.token = "secret"
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for i := range 5 {
		response, err := bob.send(ctx, http.MethodGet, "/api/v1/pods?watch=true")
		if err != nil {
			t.Fatalf("watch %d: %v", i, err)
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Fatalf("watch %d: %s", i, response.Status)
		}
	}
}

// A stage that switches protocols gives the seat back too.
func TestUpgradedWatchesGiveTheirSeatsBack(t *testing.T) {
	t.Parallel()
	flags := open(t)
	flags["max-requests-inflight"], flags["max-mutating-requests-inflight"] = []string{"1"}, []string{"1"}
	s := start(t, flags, func(w http.ResponseWriter, _ *http.Request) {
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = buffered.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
		_ = buffered.Flush()
		_, _ = buffered.ReadByte() // until the client has gone
	})
	for i := range 5 {
		c := s.client(t)
		c.http.Transport.(*http.Transport).ForceAttemptHTTP2 = false
		response, err := c.send(t.Context(), http.MethodGet, "/api/v1/pods?watch=true", "Connection: Upgrade", "Upgrade: x")
		if err != nil {
			t.Fatalf("watch %d: %v", i, err)
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("watch %d: %s", i, response.Status)
		}
	}
}

// A broken response has to look broken to the client, however many filters are
// around the chain.
func TestAnAbortedResponseIsBroken(t *testing.T) {
	t.Parallel()
	s := start(t, open(t), func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "half")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	response, err := s.admin(t).send(t.Context(), http.MethodGet, "/api/v1/pods")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); err == nil {
		t.Errorf("client read %q without an error", body)
	}
}

func number(t *testing.T, s string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Error(err)
	}
	return n
}
