// Package fuzz has a stage that speaks the protocol by itself, without the SDK, and does everything at random
// that the protocol does not allow: on the control socket, on the data socket, on the socket of the host, in its
// output and as a process. The test puts three of them without grants into the chain of Kubernetes' stages, changes
// that chain at random meanwhile, and demands that
//
//   - the host lives, and its log has no panic,
//   - requests for Kubernetes' stages and for /livez get their responses,
//   - the host's memory, and what it writes to its log, have bounds, and nobody can forge a line of the log,
//   - the host holds nothing of these stages once they are removed from the configuration,
//   - it ends on SIGTERM, with all of its processes.
//
// The chain is the one that is shipped, with core, since most of what the host does for a stage involves others: routing past it, claims in
// its way, discovery and OpenAPI that the aggregator merges, Events, authorization of what a stage asks for.
//
//	go test ./test/fuzz -v -fuzz.for=1h -fuzz.seed=7
//
// The seed determines what each process does at its n-th call, response, connection and so on; when that
// happens depends on the machine. Each process writes its choices to a file, which a failure keeps.
package fuzz
