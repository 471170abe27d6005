// Package browser tests the page at /debug/catena/ in Chromium. It is a module of its own, so that what it needs is no
// dependency of Catena.
package browser
