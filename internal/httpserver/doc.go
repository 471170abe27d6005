// Package httpserver serves HTTP/1.1 to the host, at the data socket of a stage. Handlers find what they would find
// with net/http's server: the same requests, a ResponseWriter with the same methods and the same responses, contexts
// that end with the connection, and trailers. It is for that one client, and differs from net/http's server in this:
//
//   - A connection has one goroutine and nothing else. There is no read in the background: whether the host has closed its end is asked of
//     the system in one place for all requests, once a request takes longer than most or is responded to by a stream, see hangups.
//   - A connection holds buffers only while there is something in them, and what a request needs that most do not is made when it is asked
//     for: the channel of its context, a body, trailers.
//   - Only what a correct client sends is taken: HTTP/1.1, lines that end with CRLF, one length or chunks and not both. All else gets a
//     status of 400 or above, and the connection is closed.
//   - Up to 32 KiB of a body are sent together, unless the handler flushes or 5 ms pass.
//   - A body that the host sends only when it is asked to is asked for until the response goes on its way, not only until the handler writes.
//   - A response may have an owner, which completes its head, declines it, or has it held.
//   - The Date header is left to the host.
package httpserver
