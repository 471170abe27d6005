package sdk_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/catena-dev/catena/sdk"
)

// testConfig is the test stage's own configuration.
type testConfig struct {
	Greeting string `json:"greeting"`
	// Fail says where the stage fails: new, panic, prepare, claim, twice.
	Fail string `json:"fail"`
}

// testStage serves the paths of handlers, and passes on the rest.
func testStage() sdk.Stage {
	return sdk.Stage{
		Name: "test", Version: "v1.2.3", Summary: "is tested", ConfigSchema: `{"type":"object"}`,
		New: newTestStage,
		Validate: func(config []byte, flags []string) []sdk.ConfigProblem {
			if err := sdk.DecodeConfig(config, &testConfig{}); err != nil {
				return []sdk.ConfigProblem{{Key: "fail", Message: err.Error()}}
			}
			return nil
		},
	}
}

func newTestStage(env *sdk.Env) (http.Handler, error) {
	config := testConfig{Greeting: "hello"}
	if err := env.Config(&config); err != nil {
		return nil, err
	}
	env.OnDestroy(func() { note(env, "destroy 1") })
	env.OnDestroy(func() { note(env, "destroy 2") })
	if err := fail(env, config.Fail); err != nil {
		return nil, err
	}
	registerAll(env)
	mux := handlers(env, config)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		if h := mux[name]; h != nil {
			h(w, r)
			return
		}
		env.Next.ServeHTTP(w, r)
	}), nil
}

func fail(env *sdk.Env, where string) error {
	switch where {
	case "new":
		return errors.New("no luck")
	case "panic":
		panic("out of luck")
	case "claim":
		env.Claim("relative")
	case "twice":
		env.PostStartHook("same", func(context.Context) error { return nil })
		env.PostStartHook("same", func(context.Context) error { return nil })
	case "prepare":
		env.OnPrepareRun(func(context.Context) error { return errors.New("not prepared") })
	case "hang":
		note(env, "in New")
		<-env.Context().Done()
		return env.Context().Err()
	}
	return nil
}

// note leaves a line where the test finds it after the end of the process.
func note(env *sdk.Env, line string) {
	f, err := os.OpenFile(filepath.Join(env.DataDir(), "notes"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	defer f.Close()
	fmt.Fprintln(f, line)
}

func registerAll(env *sdk.Env) {
	env.Claim("/hello")
	env.ClaimPrefix("/tree", "/")
	env.ListPaths("/hello", "/tree")
	complete := make(chan struct{})
	env.MuxComplete("installed", complete)
	env.OnPrepareRun(func(context.Context) error {
		env.PostStartHook("complete", func(context.Context) error { close(complete); return nil })
		return nil
	})
	env.PostStartHook("fails", func(context.Context) error { return errors.New("the hook's own words") })
	env.PostStartHook("panics", func(context.Context) error { panic("boom") })
	env.PostStartHook("waits", func(ctx context.Context) error {
		note(env, "hook waits")
		<-ctx.Done()
		time.Sleep(50 * time.Millisecond) // it takes a moment to tidy up
		note(env, "hook ended")
		return nil
	})
	env.PreShutdownHook("last", func(context.Context) error { note(env, "pre-shutdown"); return nil })
	env.HealthCheck("good", sdk.HealthKinds{}, func(context.Context) error { return nil })
	env.HealthCheck("bad", sdk.HealthKinds{Readyz: true}, func(context.Context) error { return errors.New("ill") })
	env.HealthCheck("slow", sdk.HealthKinds{Livez: true}, func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	})
	env.HealthCheck("panics", sdk.HealthKinds{Healthz: true}, func(context.Context) error { panic("check") })
}

// handlers are the test stage's paths, by their first segment.
func handlers(env *sdk.Env, config testConfig) map[string]http.HandlerFunc {
	all := map[string]http.HandlerFunc{
		"hello": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, config.Greeting) },
		"user":  func(w http.ResponseWriter, r *http.Request) { _ = json.NewEncoder(w).Encode(sdk.UserFrom(r.Context())) },
		"deadline": func(w http.ResponseWriter, r *http.Request) {
			deadline, ok := r.Context().Deadline()
			fmt.Fprintln(w, ok, time.Until(deadline) > time.Minute)
		},
		"echo": func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) },
		"wait": func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			note(env, "request ended")
		},
		"until-drain": func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush()
			<-env.Draining()
			<-sdk.DrainingFrom(r.Context())
			fmt.Fprintln(w, "drained")
		},
		"log": func(w http.ResponseWriter, _ *http.Request) {
			env.Log.Warn("from the stage", "answer", 42)
			fmt.Println("on standard output")
		},
		"claims": func(w http.ResponseWriter, r *http.Request) {
			env.SetClaims(sdk.Exact("/new"), sdk.Child("/some"))
			env.ReportSizes([]sdk.ResourceSize{{Resource: "widgets.example.com", Count: 3, ObjectBytes: 100}})
		},
		"api": func(w http.ResponseWriter, r *http.Request) {
			resp, err := env.Client().Get("http://catena/version")
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			defer resp.Body.Close()
			_, _ = io.Copy(w, resp.Body)
		},
		"delegate": func(w http.ResponseWriter, r *http.Request) {
			d := env.Delegates()[0]
			d.Handler.ServeHTTP(w, r.WithContext(context.WithoutCancel(r.Context())))
		},
		"trailer": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Trailer", "X-Sum")
			fmt.Fprint(w, "body")
			w.Header().Set("X-Sum", "4")
		},
		"wait-upgraded": func(w http.ResponseWriter, r *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				panic(err)
			}
			defer conn.Close()
			fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			<-r.Context().Done()
			note(env, "request ended")
		},
		"upgrade": func(w http.ResponseWriter, r *http.Request) { echoUpgrade(w) },
		"switch":  switchProtocol,
		"dialog":  dialog,
	}
	for name, h := range misbehaving() {
		all[name] = h
	}
	for name, h := range handingOn(env) {
		all[name] = h
	}
	return all
}

func misbehaving() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"panic": func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Half", "done"); panic("handler") },
		"panic-late": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "half")
			w.(http.Flusher).Flush()
			panic("late")
		},
		"panic-hijacked": func(w http.ResponseWriter, _ *http.Request) {
			_, _, _ = http.NewResponseController(w).Hijack()
			panic("hijacked")
		},
		"abort": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"decline-late": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "half")
			w.(http.Flusher).Flush()
			sdk.Decline(w)
		},
		"decline-read": func(w http.ResponseWriter, r *http.Request) {
			_, _ = r.Body.Read(make([]byte, 1))
			sdk.Decline(w)
		},
		"write-declined": func(w http.ResponseWriter, _ *http.Request) {
			sdk.Decline(w)
			w.WriteHeader(http.StatusTeapot)
			_, err := fmt.Fprint(w, "not mine after all")
			_, hijackErr := io.Copy(w, strings.NewReader("x"))
			if err == nil || hijackErr == nil {
				panic("could write after declining")
			}
		},
	}
}

// handingOn are the ways of calling Next.
func handingOn(env *sdk.Env) map[string]http.HandlerFunc {
	changed := func(change func(*http.Request)) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			r = r.Clone(r.Context())
			change(r)
			env.Next.ServeHTTP(w, r)
		}
	}
	return map[string]http.HandlerFunc{
		"context": func(w http.ResponseWriter, r *http.Request) {
			env.Next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), testConfig{}, 1)))
		},
		"clone":          changed(func(*http.Request) {}),
		"drop-internal":  changed(func(r *http.Request) { r.Header.Del("X-Catena-User") }),
		"decline":        func(w http.ResponseWriter, _ *http.Request) { sdk.Decline(w) },
		"decline-header": func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Mine", "1"); sdk.Decline(w) },
		"deaf": func(w http.ResponseWriter, r *http.Request) {
			sdk.Decline(struct{ http.ResponseWriter }{w})
		},

		"call":            env.Call.ServeHTTP,
		"wrapped":         func(w http.ResponseWriter, r *http.Request) { env.Next.ServeHTTP(wrapped{w}, r) },
		"response-header": func(w http.ResponseWriter, r *http.Request) { w.Header().Set("X-Mine", "1"); env.Next.ServeHTTP(w, r) },
		"change-method":   changed(func(r *http.Request) { r.Method = http.MethodPut }),
		"change-path":     changed(func(r *http.Request) { r.URL.Path, r.URL.RawPath = "/other path", "" }),
		"change-query":    changed(func(r *http.Request) { r.URL.RawQuery = "a=1;b" }),
		"change-host":     changed(func(r *http.Request) { r.Host = "other" }),
		"change-header":   changed(func(r *http.Request) { r.Header.Set("X-More", "1") }),
		"append-header":   changed(func(r *http.Request) { r.Header.Add("X-List", "c") }),
		"swap-header":     changed(func(r *http.Request) { l := r.Header["X-List"]; l[0], l[1] = l[1], l[0] }),
		"drop-header":     changed(func(r *http.Request) { r.Header.Del("X-List") }),
		"change-body": changed(func(r *http.Request) {
			b := []byte("other")
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(b)), 5
		}),
		"change-in-place": func(w http.ResponseWriter, r *http.Request) { r.URL.Path = "/in/place"; env.Next.ServeHTTP(w, r) },
		"read-some": func(w http.ResponseWriter, r *http.Request) {
			_, _ = r.Body.Read(make([]byte, 1))
			env.Next.ServeHTTP(w, r)
		},
		"limit": http.MaxBytesHandler(env.Next, limitOfBody).ServeHTTP,
		"deadline-next": func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithDeadline(r.Context(), time.Now())
			defer cancel()
			env.Next.ServeHTTP(w, r.WithContext(ctx))
		},
		"lost-context": func(w http.ResponseWriter, r *http.Request) {
			env.Next.ServeHTTP(wrapped{w}, r.WithContext(context.Background()))
		},
		"stranger": func(w http.ResponseWriter, r *http.Request) {
			env.Next.ServeHTTP(struct{ http.ResponseWriter }{w}, r.WithContext(context.Background()))
		},
	}
}

// limitOfBody is the size of the largest body that the path /limit hands on.
const limitOfBody = 100_000

// wrapped is a writer as middleware has it.
type wrapped struct{ http.ResponseWriter }

func (w wrapped) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w wrapped) WriteHeader(code int) {
	w.Header().Set("X-Wrapped", "1")
	w.ResponseWriter.WriteHeader(code)
}
