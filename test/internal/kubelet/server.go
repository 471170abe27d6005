package kubelet

import (
	"net/http"
	"net/url"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/util/flushwriter"
	translator "k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

const (
	idleTimeout   = time.Minute
	createTimeout = 10 * time.Second
)

// handler is the kubelet's server. It asks the container runtime for SPDY, and turns
// WebSockets into that itself if the node takes them.
func (k *Kubelet) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", k.checked(k.remoteCommand(k.serveExec)))
	mux.HandleFunc("/attach/{namespace}/{pod}/{container}", k.checked(k.remoteCommand(k.serveAttach)))
	mux.HandleFunc("/portForward/{namespace}/{pod}", k.checked(k.portForward))
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", k.checked(k.serveLogs))
	return mux
}

// runtimeHandler is the container runtime's streaming server.
func (k *Kubelet) runtimeHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", k.serveExec)
	mux.HandleFunc("/attach/{namespace}/{pod}/{container}", k.serveAttach)
	return mux
}

func (k *Kubelet) checked(serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := k.known(r); err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		}
		serve(w, r)
	}
}

// remoteCommand translates WebSockets; everything else is served directly.
func (k *Kubelet) remoteCommand(serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !wsstream.IsWebSocketRequestWithStreamCloseProtocol(r) {
			serve(w, r)
			return
		}
		if !k.options.WebSockets {
			http.Error(w, "this node speaks SPDY only", http.StatusBadRequest)
			return
		}
		o, err := remotecommand.NewOptions(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		target, err := url.Parse(k.runtime.URL)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		target.Path, target.RawQuery = r.URL.Path, r.URL.RawQuery
		translator.NewStreamTranslatorHandler(target, nil, 0,
			translator.Options{Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, Tty: o.TTY}).ServeHTTP(w, r)
	}
}

func (k *Kubelet) serveExec(w http.ResponseWriter, r *http.Request) {
	o, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	remotecommand.ServeExec(w, r, k, r.PathValue("pod"), "", r.PathValue("container"), r.URL.Query()["command"],
		o, idleTimeout, createTimeout, remotecommand.SupportedStreamingProtocols)
}

func (k *Kubelet) serveAttach(w http.ResponseWriter, r *http.Request) {
	o, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	remotecommand.ServeAttach(w, r, k, r.PathValue("pod"), "", r.PathValue("container"),
		o, idleTimeout, createTimeout, remotecommand.SupportedStreamingProtocols)
}

func (k *Kubelet) portForward(w http.ResponseWriter, r *http.Request) {
	serve := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		portforward.ServePortForward(w, r, k, r.PathValue("pod"), "", &portforward.V4Options{},
			idleTimeout, createTimeout, portforward.SupportedProtocols)
	})
	switch tunnel := wsstream.IsWebSocketRequestWithTunnelingProtocol(r); {
	case !tunnel:
		serve(w, r)
	case k.options.WebSockets:
		translator.NewTunnelingHandler(serve).ServeHTTP(w, r)
	default:
		http.Error(w, "this node speaks SPDY only", http.StatusBadRequest)
	}
}

// serveLogs answers "kubectl logs", with what is still to come if it follows.
func (k *Kubelet) serveLogs(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain")
	pod := types.NamespacedName{Namespace: r.PathValue("namespace"), Name: r.PathValue("pod")}
	k.logs.copy(r.Context(), flushwriter.Wrap(w), pod, r.FormValue("follow") == "true")
}
