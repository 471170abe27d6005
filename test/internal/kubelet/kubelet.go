// Package kubelet simulates a node for tests: a Node object, pods that are "running" as
// soon as they are bound to it, and the kubelet's HTTPS server for exec, attach, logs
// and port-forward. It starts no containers.
package kubelet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// webSocketsFeature is declared by a node whose kubelet accepts the WebSockets of
// clients; for other nodes the API server translates them to SPDY.
const webSocketsFeature = "ExtendWebSocketsToKubelet"

// Options of a kubelet.
type Options struct {
	// Node is the name of the Node object.
	Node string
	// Address is where the Node says that the kubelet is; where it is, if empty.
	Address string
	// ClientCA has signed the certificates of the clients that the kubelet accepts.
	ClientCA *x509.CertPool
	// WebSockets is whether the kubelet accepts WebSockets.
	WebSockets bool
	// Cordoned is whether the scheduler leaves the node alone.
	Cordoned bool
}

// Kubelet is a node that exists while the test runs.
type Kubelet struct {
	options Options
	client  kubernetes.Interface
	logs    logStore
	server  *httptest.Server // serves the API server
	runtime *httptest.Server // serves the kubelet, with SPDY only
	cancel  context.CancelFunc

	listeners []*listener

	webSockets, attached atomic.Int64
	done                 chan struct{}
}

// Start creates the Node and serves until Stop. The client's identity needs the rights
// of a node.
func Start(ctx context.Context, config *rest.Config, o Options) (*Kubelet, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	k := &Kubelet{options: o, client: client, done: make(chan struct{})}
	k.logs.init()
	k.runtime = k.newServer(k.runtimeHandler())
	k.runtime.Start()
	k.server = k.newServer(k.handler())
	k.server.TLS = &tls.Config{ClientCAs: o.ClientCA, ClientAuth: tls.RequireAndVerifyClientCert}
	k.server.StartTLS()
	ctx, k.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if err := k.register(ctx); err != nil {
		k.cancel()
		k.closeServers()
		return nil, fmt.Errorf("register node %s: %w", o.Node, err)
	}
	go func() {
		defer close(k.done)
		k.runPods(ctx)
	}()
	return k, nil
}

// Addr is where the kubelet serves the API server.
func (k *Kubelet) Addr() net.Addr { return k.server.Listener.Addr() }

// Stop ends the kubelet and all of its connections. The Node object stays, like that of a
// machine that is switched off. It may be called more than once.
func (k *Kubelet) Stop() {
	k.cancel()
	<-k.done
	k.closeServers()
}

func (k *Kubelet) newServer(handler http.Handler) *httptest.Server {
	s := httptest.NewUnstartedServer(handler)
	l := &listener{Listener: s.Listener}
	s.Listener = l
	k.listeners = append(k.listeners, l)
	return s
}

func (k *Kubelet) closeServers() {
	for _, l := range k.listeners {
		l.closeAll()
	}
	k.server.Close()
	k.runtime.Close()
}

// register creates the Node, ready and with room for pods.
func (k *Kubelet) register(ctx context.Context) error {
	host, portText, err := net.SplitHostPort(k.server.Listener.Addr().String())
	if err != nil {
		return err
	}
	if k.options.Address != "" {
		host = k.options.Address
	}
	port, err := strconv.ParseInt(portText, 10, 32)
	if err != nil {
		return err
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name:   k.options.Node,
		Labels: map[string]string{corev1.LabelHostname: k.options.Node, corev1.LabelOSStable: "linux"},
	}}
	node.Spec.Unschedulable = k.options.Cordoned
	room := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("64"),
		corev1.ResourceMemory: resource.MustParse("256Gi"),
		corev1.ResourcePods:   resource.MustParse("500"),
	}
	node.Status = corev1.NodeStatus{
		Capacity:        room,
		Allocatable:     room,
		Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: host}},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: int32(port)}},
		NodeInfo:        corev1.NodeSystemInfo{KubeletVersion: "v1.37.0", OperatingSystem: "linux", Architecture: "amd64"},
		Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
			LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
		}},
	}
	if k.options.WebSockets {
		node.Status.DeclaredFeatures = []string{webSocketsFeature}
	}
	_, err = k.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	return err
}

// errNoContainer is the error for pods that are not on the node.
var errNoContainer = errors.New("pod does not exist")

// known reports whether the pod is on this node.
func (k *Kubelet) known(r *http.Request) error {
	pod, err := k.client.CoreV1().Pods(r.PathValue("namespace")).Get(r.Context(), r.PathValue("pod"), metav1.GetOptions{})
	if err != nil {
		return err
	}
	if pod.Spec.NodeName != k.options.Node {
		return errNoContainer
	}
	return nil
}
