// Package relay is the data plane: it hands HTTP requests to stages over Unix
// sockets and their answers back to the client.
//
// An [Endpoint] is the socket of one stage with a pool of connections. A [Chain]
// is an http.Handler over a [Snapshot] of endpoints in chain order; the snapshot
// can be replaced at any time with Swap. A [HostHandler] serves the socket on
// which stages call the host.
//
// # One request
//
// The first stage whose claim covers the path gets the request. It answers, or it
// declines (header.Decline), and the next one whose claim covers the path
// gets the request untouched; behind the last is [Config].NotFound. A stage that
// is in the table without being reachable fails its requests: they never fall
// through to a later stage.
//
// The request line and the headers go out as they came in, minus the hop-by-hop
// headers of RFC 9110, minus those that only the host may set (X-Catena-* and
// X-Remote-*, however spelled), plus what the [Carrier] adds. A body of at most
// 64 KiB is read first, so that a decline costs nothing. A larger one, or one of
// unknown length, is streamed; if another stage could still get the request, or
// if the client waits for it, only after the stage's "100 Continue".
//
// The answer is written as it comes: it is flushed whenever the stage has sent
// nothing more, trailers follow, and a switch of protocols takes place after
// the stage's 101 and only then. X-Catena-* headers of an answer go to the Carrier
// and never to the client. Informational answers other than 100 and 101 are passed
// on only if the ResponseWriter is the server's own (it has no Unwrap method):
// the writers that API server filters put around it take the first status that
// they see for the final one.
//
// # Failure
//
// A request that may have been executed is not sent again. Sent again, once and on
// a new connection, are requests that provably did not reach the stage, and safe
// requests (GET, HEAD, OPTIONS, TRACE, without an upgrade) for which nothing has
// been sent to the client. What remains goes to [Config].Error as a [*StageError].
// If a stage breaks off an answer that has begun, the handler panics with
// http.ErrAbortHandler, so that the client sees a broken answer and not a short
// one. If it is the client that goes away in the middle of an answer, as those of
// watches do, the handler just returns.
//
// The end of the request's context ends the exchange, whatever state it is in, by
// closing the connection to the stage. There are no other timeouts.
//
// # Goroutines
//
// An exchange runs on its caller's goroutine. Only a streamed body and an upgraded
// connection take one more. Idle connections have none: before one is used again,
// the relay looks whether the stage has closed it. While a stage is silent, no
// buffer is held for it, which keeps an idle watch small.
package relay
