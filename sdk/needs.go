package sdk

import "github.com/catena-dev/catena/sdk/stagev1"

// Needs is what a stage does beyond serving paths outside of the Kubernetes API. The host
// does not start the stage until its operator has granted all of it, in
// stages.NAME.grants of the configuration, and prevents the rest.
type Needs struct {
	// Claims are patterns of the paths that the stage claims, now or later: a claim of
	// Kubernetes' own paths has to be granted.
	Claims []Claim
	// Rewrite is for Env.Next and Env.Call with another method, path or query.
	Rewrite bool
	// Delegates is for Delegate.Handler with requests other than those of discovery and
	// OpenAPI.
	Delegates bool
	// SystemRequests is for requests of the user system:apiserver, which are those of the host
	// itself and of Kubernetes' stages, at paths of Kubernetes' own: they bypass the stage otherwise.
	SystemRequests bool
	// Store is what the stage uses of etcd.
	Store StoreAccess
	// Flags are the names of the API server's flags that the stage reads (see Env.Flags),
	// without leading dashes; "*" is all of them. They need no grant. Flags about etcd come
	// with Store, and those that name private keys need Keys.
	Flags []string
	// Keys is for the private keys that flags name.
	Keys bool
	// Network is for network connections of the stage's own.
	Network bool
	// Files are paths of files and directories that the stage reads beyond its binary and
	// Env.DataDir. One that ends with ":rw" is also written.
	Files []string
}

// StoreAccess is what a stage uses of etcd.
type StoreAccess int32

const (
	// StoreNone is no etcd at all.
	StoreNone StoreAccess = StoreAccess(stagev1.Needs_NONE)
	// StoreOwn is keys of the stage's own, out of reach of every other stage.
	StoreOwn StoreAccess = StoreAccess(stagev1.Needs_OWN)
	// StoreRegistry is all keys of Kubernetes' registry.
	StoreRegistry StoreAccess = StoreAccess(stagev1.Needs_REGISTRY)
)

func (n *Needs) toWire() *stagev1.Needs {
	if n == nil {
		return nil
	}
	return &stagev1.Needs{
		Claims: stagev1.EncodeClaims(n.Claims), Rewrite: n.Rewrite, Delegates: n.Delegates, SystemRequests: n.SystemRequests,
		Store: stagev1.Needs_Store(n.Store), Flags: n.Flags, Keys: n.Keys, Network: n.Network, Files: n.Files,
	}
}
