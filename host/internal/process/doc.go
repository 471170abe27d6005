// Package process finds plugin binaries, launches stages from them and reports when a stage has ended. It is the only
// package of the host that uses hashicorp/go-plugin.
//
// The order of calls for one stage is
//
//	PrepareRuntimeDir → NewListener → Find or Check → Start → Process.Stop or Kill → Listener.Close
//
// One Listener serves all processes of a stage, one after the other: a process that is started again inherits the
// socket, with the connections that wait in it.
//
// # Environment of a stage
//
// A stage gets the following variables of the host's environment, those that the configuration adds, and those that the
// protocol defines, which nothing can override:
//
//	PATH HOME TMPDIR USER LANG LC_* TZ ZONEINFO
//	SSL_CERT_FILE SSL_CERT_DIR
//	GOMAXPROCS GOMEMLIMIT GOGC GODEBUG GOTRACEBACK GORACE GOCOVERDIR
//	KUBE_FEATURE_* (client-go's switches such as KUBE_FEATURE_WatchListClient)
//	DISABLE_HTTP2 HTTP2_READ_IDLE_TIMEOUT_SECONDS HTTP2_PING_TIMEOUT_SECONDS
//	DEBUG_HTTP2_GOROUTINES GRPC_GO_LOG_* ETCD_CLIENT_DEBUG
//
// Stages that may use the network also get HTTP_PROXY, HTTPS_PROXY, NO_PROXY and ALL_PROXY, also in lower case, which
// can hold credentials of a proxy. Stages that are as powerful as the server get these, and KUBE_*, GRPC_* and OTEL_*.
// That is what Kubernetes' servers, their libraries and Go read from their environment.
//
// A script also gets PYTHONDONTWRITEBYTECODE=1, unless it is configured: files that Python adds to the script's
// directory would change its Contents.
//
// # What go-plugin does and what it does not
//
// go-plugin does the handshake, mutual TLS with one-time certificates (AutoMTLS), the gRPC connection and its graceful
// end. Everything else is done here, by an implementation of its Runner interface, because go-plugin 1.8
//
//   - waits for the end of both pipes to notice that a process has ended, which a
//     grandchild can delay for ever; here one thread waits for the process itself;
//   - has no deadline when it kills, pings or shuts down a process that is suspended;
//     here SIGKILL goes to the process group, and go-plugin's calls end with the process;
//   - hashes a path and then starts the file that has the path by then; here the file that
//     was checked and hashed is started;
//   - panics on a line of JSON with a "@message" that is no string, stops reading
//     output after a long line, and logs whatever a stage writes as fast as it writes;
//     here it reads the handshake line only;
//   - reports little about a start that has failed, and holds its lock for as long as that takes.
package process
