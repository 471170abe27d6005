// Package guard keeps folders, files and sockets to the user that runs this
// process. Root, who can do everything anyway, may be the owner of what is used,
// and may call.
package guard
