// Package guard makes directories, files and sockets accessible to the user of this process
// only. Root has access anyway: files may belong to it, and it may connect.
package guard
