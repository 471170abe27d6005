package kubelet

import (
	"errors"
	"net/http"
	"net/url"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/apiserver/pkg/util/flushwriter"
	translator "k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

const (
	idleTimeout   = time.Minute
	createTimeout = time.Minute // for a busy machine
)

// handler is the kubelet's server. It uses SPDY to the container runtime, and translates
// WebSockets itself if the node accepts them.
func (k *Kubelet) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", k.checked(k.remoteCommand(k.serveExec)))
	mux.HandleFunc("/attach/{namespace}/{pod}/{container}", k.checked(k.remoteCommand(k.serveAttach)))
	mux.HandleFunc("/portForward/{namespace}/{pod}", k.checked(k.proxyPortForward))
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", k.checked(k.serveLogs))
	return mux
}

// runtimeHandler is the container runtime's streaming server.
func (k *Kubelet) runtimeHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", k.serveExec)
	mux.HandleFunc("/attach/{namespace}/{pod}/{container}", k.serveAttach)
	mux.HandleFunc("/portForward/{namespace}/{pod}", k.servePortForward)
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
		o, err := remotecommand.NewOptions(r)
		if err == nil {
			err = k.takeWebSocket()
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		translator.NewStreamTranslatorHandler(k.runtimeURL(r), nil, 0,
			translator.Options{Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, Tty: o.TTY}).ServeHTTP(w, r)
	}
}

// proxyPortForward is the same for ports: SPDY is tunneled through a WebSocket.
func (k *Kubelet) proxyPortForward(w http.ResponseWriter, r *http.Request) {
	if !wsstream.IsWebSocketRequestWithTunnelingProtocol(r) {
		k.servePortForward(w, r)
		return
	}
	if err := k.takeWebSocket(); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	upgrade := proxy.NewUpgradeAwareHandler(k.runtimeURL(r), nil, false, true, responder{})
	translator.NewTunnelingHandler(upgrade).ServeHTTP(w, r)
}

// takeWebSocket counts a WebSocket, if the node accepts any.
func (k *Kubelet) takeWebSocket() error {
	if !k.options.WebSockets {
		return errors.New("this node speaks SPDY only")
	}
	k.webSockets.Add(1)
	return nil
}

// WebSockets returns how many have reached the kubelet.
func (k *Kubelet) WebSockets() int { return int(k.webSockets.Load()) }

// runtimeURL is where the container runtime serves the request.
func (k *Kubelet) runtimeURL(r *http.Request) *url.URL {
	return &url.URL{Scheme: "http", Host: k.runtime.Listener.Addr().String(), Path: r.URL.Path, RawQuery: r.URL.RawQuery}
}

// responder writes the response if the container runtime sends none.
type responder struct{}

func (responder) Error(w http.ResponseWriter, _ *http.Request, err error) {
	http.Error(w, err.Error(), http.StatusInternalServerError)
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

func (k *Kubelet) servePortForward(w http.ResponseWriter, r *http.Request) {
	portforward.ServePortForward(w, r, k, r.PathValue("pod"), "", &portforward.V4Options{},
		idleTimeout, createTimeout, portforward.SupportedProtocols)
}

// serveLogs serves "kubectl logs", with later lines if it follows.
func (k *Kubelet) serveLogs(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain")
	pod := types.NamespacedName{Namespace: r.PathValue("namespace"), Name: r.PathValue("pod")}
	k.logs.copy(r.Context(), flushwriter.Wrap(w), pod, r.FormValue("follow") == "true")
}
