// Stage hello serves one path, and gets no other requests.
package main

import (
	"github.com/catena-dev/catena/sdk"
	"net/http"
)

func main() { sdk.Main(sdk.Stage{Name: "hello", New: hello}) }

func hello(env *sdk.Env) (http.Handler, error) {
	env.Claim("/hello")
	serve := func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("hello\n")) }
	return http.HandlerFunc(serve), nil
}
