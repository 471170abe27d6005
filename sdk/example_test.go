package sdk_test

import (
	"net/http"
	"time"

	"github.com/catena-dev/catena/sdk"
)

// A stage that serves one path. All others go past it.
func Example() {
	sdk.Main(sdk.Stage{Name: "hello", New: func(env *sdk.Env) (http.Handler, error) {
		env.Claim("/hello")
		hello := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello\n")) }
		return http.HandlerFunc(hello), nil
	}})
}

// A stage that sees every request, refuses some, and declines the rest: what it lets
// through costs no second hop for the response.
func ExampleEnv_next() {
	sdk.Main(sdk.Stage{Name: "readonly", New: func(env *sdk.Env) (http.Handler, error) {
		config := struct {
			Exempt string `json:"exempt"`
		}{Exempt: "admin"}
		env.ClaimPrefix("/")
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			user := sdk.UserFrom(r.Context())
			if r.Method != http.MethodGet && (user == nil || user.Name != config.Exempt) {
				http.Error(w, "this server is frozen", http.StatusForbidden)
				return
			}
			env.Next.ServeHTTP(w, r)
		}), env.Config(&config)
	}})
}

// A stage that measures the stages downstream. Next would decline; Call always calls.
func ExampleEnv_call() {
	sdk.Main(sdk.Stage{Name: "measure", New: func(env *sdk.Env) (http.Handler, error) {
		env.ClaimPrefix("/api", "/apis")
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			begin := time.Now()
			env.Call.ServeHTTP(w, r)
			env.Log.Info("request", "path", r.URL.Path, "took", time.Since(begin))
		}), nil
	}})
}
