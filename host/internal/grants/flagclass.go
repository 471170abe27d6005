package grants

import (
	"maps"
	"slices"
	"strings"
)

// FlagClass is what a flag of kube-apiserver is about: a set of the constants below.
type FlagClass int

const (
	// FlagFile is a flag whose values are files that the server reads.
	FlagFile FlagClass = 1 << iota
	// FlagOnce is one whose files Kubernetes' code reads at its start alone. It follows changes of the others.
	FlagOnce
	// FlagPair is one whose file is a certificate that is of no use without its key, or that key.
	FlagPair
	// FlagKeys is one that names a file, or a program, that has private keys.
	FlagKeys
	// FlagStore is one about the store.
	FlagStore
	// FlagCluster is one that says where etcd is, or what is done to all of it.
	FlagCluster
)

// encryption is the flag that names the keys with which objects are encrypted in the store.
const encryption = "encryption-provider-config"

// flagClasses are those of the flags that have one. Each flag whose name begins with etcd- is about the store, too.
var flagClasses = map[string]FlagClass{
	"admission-control-config-file":            FlagFile | FlagOnce,
	"audit-policy-file":                        FlagFile,
	"audit-webhook-config-file":                FlagFile | FlagOnce,
	"authentication-config":                    FlagFile,
	"authentication-token-webhook-config-file": FlagFile | FlagOnce,
	"authorization-config":                     FlagFile,
	"authorization-policy-file":                FlagFile | FlagOnce,
	"authorization-webhook-config-file":        FlagFile | FlagOnce,
	"client-ca-file":                           FlagFile,
	"default-watch-cache-size":                 FlagStore,
	"delete-collection-workers":                FlagStore,
	"egress-selector-config-file":              FlagFile | FlagOnce,
	"enable-garbage-collector":                 FlagStore,
	encryption:                                 FlagFile | FlagOnce | FlagKeys | FlagStore,
	encryption + "-automatic-reload":           FlagStore,
	"etcd-cafile":                              FlagFile | FlagOnce | FlagCluster,
	"etcd-certfile":                            FlagFile | FlagCluster,
	"etcd-compaction-interval":                 FlagCluster,
	"etcd-keyfile":                             FlagFile | FlagKeys | FlagCluster,
	"etcd-servers":                             FlagCluster,
	"etcd-servers-overrides":                   FlagCluster,
	"kubelet-certificate-authority":            FlagFile | FlagOnce,
	"kubelet-client-certificate":               FlagFile | FlagPair,
	"kubelet-client-key":                       FlagFile | FlagPair | FlagKeys,
	"lease-reuse-duration-seconds":             FlagStore,
	"oidc-ca-file":                             FlagFile | FlagOnce,
	"peer-ca-file":                             FlagFile | FlagOnce,
	"proxy-client-cert-file":                   FlagFile | FlagPair,
	"proxy-client-key-file":                    FlagFile | FlagPair | FlagKeys,
	"requestheader-client-ca-file":             FlagFile,
	"service-account-key-file":                 FlagFile | FlagOnce | FlagKeys,
	"service-account-signing-endpoint":         FlagKeys,
	"service-account-signing-key-file":         FlagFile | FlagOnce | FlagKeys,
	"storage-backend":                          FlagStore,
	"storage-initialization-timeout":           FlagStore,
	"storage-media-type":                       FlagStore,
	"tls-cert-file":                            FlagFile | FlagPair,
	"tls-private-key-file":                     FlagFile | FlagPair | FlagKeys,
	"tls-sni-cert-key":                         FlagPair | FlagKeys, // CERTIFICATE,KEY:NAMES
	"token-auth-file":                          FlagFile | FlagOnce,
	"tracing-config-file":                      FlagFile | FlagOnce,
	"watch-cache":                              FlagStore,
	"watch-cache-sizes":                        FlagStore,
}

// FlagIs reports whether a flag of kube-apiserver, by its name without dashes, is of one of the classes.
func FlagIs(name string, classes FlagClass) bool {
	is := flagClasses[name]
	if strings.HasPrefix(name, "etcd-") {
		is |= FlagStore
	}
	return is&classes != 0
}

// ClassifiedFlags returns the names of the flags that have a class, sorted.
func ClassifiedFlags() []string { return slices.Sorted(maps.Keys(flagClasses)) }
