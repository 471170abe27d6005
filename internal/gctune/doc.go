// Package gctune trades memory for processor time by what a program is doing: while it works, it collects
// garbage less often, and when it is idle, it returns to the system what it does not need.
//
// Go's garbage collector lets a heap grow to twice what is live before it collects. That is little in a
// program whose heap is small, such as each of several that share the work of a larger one: the same garbage
// costs more collections. And what a start or a storm of work has left stays with the process until new work fills it.
package gctune
