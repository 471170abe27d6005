package grants

import (
	"slices"
	"strings"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// SelectFlags returns those of flags, each as name=value, that a stage gets: what it is
// granted of what it declares to read. A stage that declares nothing gets what it is granted.
func (g Grants) SelectFlags(needs *stagev1.Needs, flags []string) []string {
	declared := Grants{Flags: needs.GetFlags(), Keys: needs.GetKeys(), Store: storeOf(needs.GetStore())}
	if needs == nil {
		declared = g
	}
	var selected []string
	for _, flag := range flags {
		name, _, _ := strings.Cut(flag, "=")
		if g.AllowsFlag(name) && declared.AllowsFlag(name) {
			selected = append(selected, flag)
		}
	}
	return selected
}

// isStoreFlag reports whether a flag is about etcd.
func isStoreFlag(name string) bool {
	return strings.HasPrefix(name, "etcd-") || name == "storage-backend" || name == "storage-media-type"
}

// isKeyFlag reports whether a flag names a file, or a program, that has private keys.
func isKeyFlag(name string) bool {
	return slices.Contains([]string{
		"encryption-provider-config", "etcd-keyfile", "kubelet-client-key", "proxy-client-key-file", "service-account-key-file",
		"service-account-signing-endpoint", "service-account-signing-key-file", "tls-private-key-file", "tls-sni-cert-key",
	}, name)
}
