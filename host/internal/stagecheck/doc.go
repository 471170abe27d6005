// Package stagecheck checks from outside whether a binary keeps the protocol of
// docs/protocol.md, whatever language it is written in. It plays the host: it launches
// the binary with package process, relays requests to it with package relay, and puts a
// stage of its own downstream that gets the requests that it declines.
//
// A check looks at one promise. It passes, it fails with what was expected and what
// came, or it is skipped because it does not apply to this stage. What a stage's own
// paths serve is its own business, so some promises can only be checked on endpoints
// that it serves for this purpose (see Options.Endpoints).
package stagecheck
