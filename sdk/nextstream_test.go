package sdk_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/catena-dev/catena/sdk/stagetest"
)

// Each piece of a stream arrives before the next one is written, and the end of the
// client ends the next stage.
func TestNextStream(t *testing.T) {
	both(t, func(t *testing.T, start start) {
		next := make(chan string)
		ended := make(chan error, 1)
		stage := start(t, stagetest.Options{Next: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Trailer", "X-Sum")
			_ = http.NewResponseController(w).Flush()
			for piece := range next {
				fmt.Fprint(w, piece)
				_ = http.NewResponseController(w).Flush()
			}
			w.Header().Set("X-Sum", "3")
			if r.URL.Query().Get("wait") != "" {
				<-r.Context().Done()
				ended <- r.Context().Err()
			}
		})})
		resp, err := http.Get(stage.URL + "/wrapped")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		for _, piece := range []string{"one", "two", "three"} {
			next <- piece
			got := make([]byte, len(piece))
			if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != piece {
				t.Fatalf("got %q, %v, want %q", got, err, piece)
			}
		}
		close(next)
		if rest, err := io.ReadAll(resp.Body); len(rest) > 0 || err != nil {
			t.Errorf("after the end: %q, %v", rest, err)
		}
		if got := resp.Trailer.Get("X-Sum"); got != "3" {
			t.Errorf("trailer %q", got)
		}

		ctx, cancel := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, stage.URL+"/wrapped?wait=1", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err = http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		cancel()
		select {
		case <-ended:
		case <-time.After(patience):
			t.Error("the next stage was not told that the client has gone")
		}
	})
}

// An upgraded connection goes through the stage in both directions, and each side can
// end its half.
func TestNextUpgrade(t *testing.T) {
	both(t, func(t *testing.T, start start) {
		stage := start(t, stagetest.Options{Next: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { echoUpgrade(w) })})
		for _, path := range []string{"/upgrade", "/elsewhere", "/call", "/wrapped"} {
			conn, r, err := dialUpgrade(stage.URL, path)
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			for _, line := range []string{"ping\n", strings.Repeat("x", 1<<20) + "\n"} {
				go func() { _, _ = io.WriteString(conn, line) }()
				if got, err := r.ReadString('\n'); got != line || err != nil {
					t.Fatalf("%s: got %d bytes, %v", path, len(got), err)
				}
			}
			_ = conn.(interface{ CloseWrite() error }).CloseWrite()
			if rest, err := io.ReadAll(r); len(rest) > 0 || err != nil {
				t.Errorf("%s: after the end: %q, %v", path, rest, err)
			}
			conn.Close()
		}
	})
}

// A response that breaks off downstream does so for the client, and the host tells of it: the stage does not.
func TestNextBreaksOff(t *testing.T) {
	both(t, func(t *testing.T, start start) {
		stage := start(t, stagetest.Options{Next: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "part")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		})})
		resp, err := http.Get(stage.URL + "/wrapped")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if text, err := io.ReadAll(resp.Body); string(text) != "part" || err == nil {
			t.Errorf("%q, %v", text, err)
		}
		if log := stage.Log(); strings.Contains(log, `"warn"`) || strings.Contains(log, `"error"`) {
			t.Error(log)
		}
	})
}
