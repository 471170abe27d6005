// Package relay is the data plane: it hands HTTP requests to stages over Unix
// sockets and their responses back to the client.
//
// A [Chain] is an http.Handler over the sockets of stages in chain order, which can be
// replaced at any time with Set. A [HostHandler] serves the socket on which stages call the
// host. Package h1 has the wire.
//
// # One request
//
// The first stage whose claim covers the path gets the request. It responds, or it
// declines (header.Decline), and the next one whose claim covers the path
// gets the request untouched; after the last comes [Config].NotFound. A stage that
// is in the table without being reachable fails its requests: they never fall
// through to a later stage.
//
// The request line and the headers go out as they came in, minus the hop-by-hop
// headers of RFC 9110, minus those that only the host may set (X-Catena-* and
// X-Remote-*, however spelled), plus what the [Propagator] adds. What a client's Connection
// header names is hop-by-hop too, unless the host has set it.
//
// A body of at most 64 KiB is read first, so that a decline costs nothing, unless the
// method is safe (GET, HEAD, OPTIONS, TRACE) or the request has no deadline: reading the
// body ends with that. Any other body is streamed. It waits for
// the stage's "100 Continue" if another stage could still get the request, if the client waits
// for that too, or if the method is safe.
//
// The response is written as it comes: it is flushed whenever the stage has sent
// nothing more, trailers follow, and a switch of protocols takes place after
// the stage's 101 and only then. X-Catena-* headers of a response go to the Propagator
// and never to the client. Informational responses other than 100 and 101 are passed
// on to the server's own ResponseWriter, past those that API server filters put around it, which take the first
// status that they see for the final one. For a request with a deadline they are dropped: its filter may
// respond at any time, and kube-apiserver loses the final status after one.
//
// # Failure
//
// A request that may have been executed is not sent again. Sent again, on a new
// connection, are requests that provably did not reach the stage, and once also safe
// requests (those methods, without an upgrade) for which nothing has
// been sent to the client. What remains goes to [Config].Error as a [*StageError].
// If a stage breaks off a response that has begun, the handler panics with
// http.ErrAbortHandler, so that the client sees a broken response and not a short
// one: as soon as another process has taken the stage's place, and within 100 ms. A watch goes on in that process where
// the stage promises that it can (header.Watch), after the last whole event; see watch. Any other just ends: that
// it may do at any event, and client-go then goes on after the last one, where it lists anew after an error. If it is
// the client that goes away in the middle of a response, as those of watches do, the
// handler just returns.
//
// The end of the request's context ends the request, whatever state it is in, by
// closing the connection to the stage. There are no other timeouts.
//
// # Goroutines
//
// A request runs on its caller's goroutine. Only a streamed body and an upgraded
// connection take one more. Idle connections have none: before one is used again,
// the relay checks whether the stage has closed it. While a stage is silent, no
// buffer is held for it, which keeps an idle watch small.
package relay
