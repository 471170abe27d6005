package sdk

import "github.com/catena-dev/catena/sdk/stagev1"

// Kubernetes is a release of Kubernetes, as a stage serves it if nothing is configured. The host compares
// those of two binaries before one takes the place of the other.
type Kubernetes struct {
	// Release is its version, such as v1.37.0.
	Release string
	// EmulationVersion is the minor version, such as 1.37, as which it serves.
	EmulationVersion string
	// MinCompatibilityVersion is the oldest minor version beside which it can serve the same objects.
	MinCompatibilityVersion string
	// Flags are the names of the API server's flags that it knows.
	Flags []string
	// FeatureGates are those that it knows, each as NAME=true or NAME=false.
	FeatureGates []string
	// AdmissionPlugins are those that it knows.
	AdmissionPlugins []string
	// Kinds are those of objects that it can read.
	Kinds []KubernetesKind
}

// KubernetesKind is a kind of objects.
type KubernetesKind struct {
	Group, Kind string
	// Versions are those in which an object can be read, and Served those of them that are served.
	Versions, Served []string
	// StorageVersion is the one in which an object is written to the store.
	StorageVersion string
}

func (k Kubernetes) toWire() *stagev1.Kubernetes {
	wire := &stagev1.Kubernetes{
		Release: k.Release, EmulationVersion: k.EmulationVersion, MinCompatibilityVersion: k.MinCompatibilityVersion,
		Flags: k.Flags, FeatureGates: k.FeatureGates, AdmissionPlugins: k.AdmissionPlugins,
	}
	for _, kind := range k.Kinds {
		wire.Kinds = append(wire.Kinds, &stagev1.Kubernetes_Kind{
			Group: kind.Group, Kind: kind.Kind, Versions: kind.Versions, Served: kind.Served, StorageVersion: kind.StorageVersion,
		})
	}
	return wire
}
