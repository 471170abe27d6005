// Package v1 has the types of backup.example.com/v1.
package v1

import (
	_ "embed"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/catena-dev/catena/sdk/apistage/deepcopy"
)

// Source is this file: its comments are what kubectl explain shows.
//
//go:embed types.go
var Source string

// Backup is a copy of a ConfigMap as it was.
type Backup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// Spec is what is copied.
	Spec BackupSpec `json:"spec"`
	// Status is the copy.
	// +optional
	Status BackupStatus `json:"status,omitempty"`
}

// BackupSpec is what is copied.
type BackupSpec struct {
	// ConfigMap is the name of one in the same namespace. It cannot be changed.
	ConfigMap string `json:"configMap"`
	// IfMissing is what to do if the ConfigMap does not exist: Wait for it, the default, or Fail.
	// +optional
	IfMissing string `json:"ifMissing,omitempty"`
}

// BackupStatus is the copy.
type BackupStatus struct {
	// Phase is Done or Failed, and empty before.
	// +optional
	Phase string `json:"phase,omitempty"`
	// ResourceVersion is that of the ConfigMap when it was copied.
	// +optional
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// Data are those of the ConfigMap.
	// +optional
	Data map[string]string `json:"data,omitempty"`
}

// BackupList is a list of them.
type BackupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Backup `json:"items"`
}

// DeepCopyObject makes it an object of an API.
func (b *Backup) DeepCopyObject() runtime.Object { return deepcopy.Of(b) }

// DeepCopyObject makes it an object of an API.
func (l *BackupList) DeepCopyObject() runtime.Object { return deepcopy.Of(l) }
