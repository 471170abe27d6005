// Package sdk makes a Go program a stage of a Catena chain.
//
// A stage is a name and a constructor. The constructor gets the environment of the
// stage and returns an http.Handler, like any middleware of net/http:
//
//	package main
//
//	import (
//		"net/http"
//
//		"github.com/catena-dev/catena/sdk"
//	)
//
//	func main() { sdk.Main(sdk.Stage{Name: "hello", New: New}) }
//
//	func New(env *sdk.Env) (http.Handler, error) {
//		env.Claim("/hello")
//		hello := func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("hello\n")) }
//		return http.HandlerFunc(hello), nil
//	}
//
// The host launches the program, relays to it the requests for what it claims, and
// drives its lifecycle. The stage passes other requests on with env.Next: called with
// the request and the writer as they came, Next declines, and the host sends the request to
// the next stage; called with a wrapped writer or a changed request, it is a call, and
// returns when the stages downstream have responded.
//
//	func New(env *sdk.Env) (http.Handler, error) {
//		env.ClaimPrefix("/")
//		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
//			if r.Method == http.MethodDelete {
//				http.Error(w, "nothing is deleted here", http.StatusForbidden)
//				return
//			}
//			env.Next.ServeHTTP(w, r)
//		}), nil
//	}
//
// # Order of calls
//
// New is called once, when every stage downstream has been configured. In it,
// the stage reads its configuration and registers what it needs on the environment.
// OnPrepareRun functions run when all stages are configured; hooks and health checks
// can be registered until they have returned. Then the stage gets requests. Post-start hooks
// run all at once, after the server has started to serve. To stop, the host runs the
// pre-shutdown hooks, lets requests end (see Env.Draining), and then Env.Context ends
// and the OnDestroy functions run, last one first.
//
// The package compiles nothing of Kubernetes. Package apistage makes an API server of
// k8s.io/apiserver a stage; package stagetest runs stages in tests; docs/protocol.md
// specifies what happens on the wire.
package sdk
