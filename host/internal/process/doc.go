// Package process finds plugin binaries, launches stages from them and tells when
// a stage has ended. It is the only package of the host that uses
// hashicorp/go-plugin, and uses it for the handshake, AutoMTLS and the gRPC
// connection alone: starting, watching and ending the process, its output and its
// sockets are done here (docs/design explains why).
//
// The order of calls for one stage is
//
//	PrepareRuntimeDir → NewListener → Find or Check → Start → Process.Stop or Kill → Listener.Close
//
// One Listener serves every process of a stage, one after the other: a process that
// is started again inherits the socket, with the connections that wait in it.
//
// # Environment of a stage
//
// A stage gets only these variables of the host's environment, what the
// configuration adds, and those that the protocol defines, which nothing can override:
//
//	PATH HOME TMPDIR USER LANG LC_* TZ ZONEINFO
//	HTTP_PROXY HTTPS_PROXY NO_PROXY ALL_PROXY, also in lower case
//	SSL_CERT_FILE SSL_CERT_DIR
//	GOMAXPROCS GOMEMLIMIT GOGC GODEBUG GOTRACEBACK GORACE GOCOVERDIR
//	KUBE_* (client-go's switches such as KUBE_FEATURE_WatchListClient)
package process
