// Package stagetest runs a stage in tests, in this process or as a process of its
// own, with a small host around it: an address for clients, a relay that understands
// declines, the socket that the stage calls, and stages downstream that are handlers. No
// binary of Catena is needed.
//
//	func TestHello(t *testing.T) {
//		stage := stagetest.Start(t, sdk.Stage{Name: "hello", New: New}, stagetest.Options{})
//		if got := stage.Get(t, "/hello"); got.Body != "hello\n" {
//			t.Errorf("%d %q", got.Status, got.Body)
//		}
//	}
//
// StartProcess does the same with a program, and Build builds it. Both end the stage when
// the test ends, and log what it has logged if the test fails.
//
// An [Answer] has what the client got, whether the stage responded, declined or called the
// stages downstream, and what it has added to the audit log. Methods of [Stage] do what the
// host does: run hooks and checks, read metrics, check configurations, drain, stop. What
// has no method can be called through Stage.RPC.
//
// The relay here is not the host's, and leaves out what does not concern a stage:
// authentication, timeouts, restarts. "catena stage check" tests a program over the real one.
package stagetest
