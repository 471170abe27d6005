// Package hostile has a stage that tries what no stage may do, and a test that shows what it gets
// of it: with the host's rules alone, and isolated by the kernel.
package hostile
