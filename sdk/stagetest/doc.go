// Package stagetest runs a stage in tests, in this process or as a process of its
// own, with a small host around it: a client's address, the relay that understands
// declines, the socket that the stage calls, and stages behind that are handlers.
//
//	func TestHello(t *testing.T) {
//		stage := stagetest.Start(t, hello.Stage(), stagetest.Options{})
//		resp, err := http.Get(stage.URL + "/hello")
//		…
//	}
//
// StartProcess does the same with a program. Both end the stage when the test ends.
package stagetest
