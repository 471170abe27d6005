package front

import (
	"net"
	"strings"

	netutils "k8s.io/utils/net"

	"github.com/catena-dev/catena/host/internal/pki"
)

// Default are flags that go together, such as a certificate and its key: either
// all of them apply or, if the operator has set one of them, none.
type Default struct {
	// Flags are name=value. A flag that takes several values may be there more
	// than once.
	Flags []string
	// Unless are further flags that replace these if the operator has set them.
	Unless []string
	// Kubernetes has errors in the flags be those of Kubernetes' own code, in its words. It makes no check that this does not.
	Kubernetes bool
}

func (d Default) names() []string {
	names := append([]string(nil), d.Unless...)
	for _, flag := range d.Flags {
		name, _, _ := strings.Cut(flag, "=")
		names = append(names, name)
	}
	return names
}

// Defaults returns the flags with which this server differs from a kube-apiserver
// that is started without any: it is secure from the first start, with the
// certificates and keys in files. The store's flags come in addition.
func Defaults(files pki.Files) []Default {
	return []Default{
		{Flags: []string{"authorization-mode=Node", "authorization-mode=RBAC"}, Unless: []string{"authorization-config"}},
		{Flags: []string{"service-cluster-ip-range=10.0.0.0/24"}},
		{Flags: []string{"tls-cert-file=" + files.Serving, "tls-private-key-file=" + files.ServingKey}},
		{Flags: []string{"client-ca-file=" + files.CA}},
		{Flags: []string{
			"requestheader-client-ca-file=" + files.FrontProxyCA,
			"requestheader-allowed-names=front-proxy-client",
			"requestheader-username-headers=X-Remote-User",
			"requestheader-group-headers=X-Remote-Group",
			"requestheader-extra-headers-prefix=X-Remote-Extra-",
		}},
		{Flags: []string{"proxy-client-cert-file=" + files.FrontProxyClient, "proxy-client-key-file=" + files.FrontProxyClientKey}},
		{Flags: []string{"kubelet-client-certificate=" + files.KubeletClient, "kubelet-client-key=" + files.KubeletClientKey}},
		{Flags: []string{"service-account-issuer=https://kubernetes.default.svc.cluster.local"}},
		{
			Flags: []string{
				"service-account-key-file=" + files.ServiceAccountPublicKey,
				"service-account-signing-key-file=" + files.ServiceAccountKey,
			},
			Unless: []string{"service-account-signing-endpoint"},
		},
	}
}

// KubernetesDefaults are kube-apiserver's own, of which each process would warn that they will not be the default for ever.
func KubernetesDefaults() []Default {
	return []Default{{Flags: []string{"service-cluster-ip-range=10.0.0.0/24"}, Kubernetes: true}}
}

// firstServiceIP returns the address of the service "kubernetes" in a range of service
// addresses; nil if the range is invalid.
func firstServiceIP(cidr string) net.IP {
	_, network, err := netutils.ParseCIDRSloppy(strings.TrimSpace(cidr))
	if err != nil {
		return nil
	}
	ip, err := netutils.GetIndexedIP(network, 1)
	if err != nil {
		return nil
	}
	return ip
}
