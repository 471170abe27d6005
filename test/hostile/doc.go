// Package hostile has stages, in Go and in Python, that try what no stage may do, and a test that shows
// what they get of it: with the host's rules alone, and isolated by the kernel, on a host that runs
// as root and on one that runs as an ordinary user. The test compares that with docs/security.md, and
// writes it there with -update, as root.
//
// The attempts are made within one request, and are the same in both stages, by name. The harm is
// done to others, and judged by the test.
package hostile
