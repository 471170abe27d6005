// Package h1 is the wire between the host and a stage: HTTP/1.1 over a Unix socket,
// with the headers of package header. It knows one connection at a time; which stage gets
// a request, and what happens when one fails, is the business of package relay.
//
// # One request
//
// [AppendRequest] encodes the head of a request, to which the caller adds header lines of
// its own and the empty line. The caller sends it with [Conn.Send], followed by the body, or
// writes it to a [Conn] and sends the body with [Conn.StartUpload] while the response may already be on its way.
// [Conn.ReadResponse] reads the head of the response and [Conn.CopyBody] passes its body on.
// After a 101, [Conn.Splice] connects client and stage instead.
//
// # Ownership
//
// A Conn has one owner at a time, which calls its methods from one goroutine and in the
// end either calls Close or puts the Conn into a [Pool]. Abort alone may be called
// from any goroutine. A connection whose request has not ended well must be closed:
// [Conn.Reusable] reports whether it has.
//
// # Cost
//
// Nothing here starts a goroutine except StartUpload and Splice. A Conn holds a buffer only
// while there is something in it, so that a stage which is silent costs no memory.
package h1
