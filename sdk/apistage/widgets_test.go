package apistage_test

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/catena-dev/catena/sdk/apistage/deepcopy"
)

// Widget is something that a test makes.
type Widget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// Spec is what is wanted.
	Spec WidgetSpec `json:"spec"`
	// Status is what is there.
	Status WidgetStatus `json:"status,omitempty"`
}

// WidgetSpec is what a widget is to be.
type WidgetSpec struct {
	// Color is the name of a color.
	//
	// It is red if it is left out.
	// +optional
	Color string `json:"color,omitempty"`
	// Replicas is how many of them there are.
	Replicas int32 `json:"replicas"`
	// Parts are what it is made of.
	// +listType=map
	// +listMapKey=name
	// +optional
	Parts []Part `json:"parts,omitempty"`
	// Tags are unordered.
	// +listType=set
	Tags []string `json:"tags,omitempty"`
}

// Part is a part of a widget.
type Part struct {
	// Name is unique within a widget.
	Name string `json:"name"`
	// Weight is in grams.
	Weight *int64 `json:"weight,omitempty"`
}

// WidgetStatus is what a widget is.
type WidgetStatus struct {
	// Ready is the number of replicas that work.
	Ready int32 `json:"ready,omitempty"`
}

// WidgetList is a list of widgets.
type WidgetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Widget `json:"items"`
}

// Paint is what the action paint takes.
type Paint struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// Color is the new one.
	Color string `json:"color"`
}

func (w *Widget) DeepCopyObject() runtime.Object     { return deepcopy.Of(w) }
func (l *WidgetList) DeepCopyObject() runtime.Object { return deepcopy.Of(l) }
func (p *Paint) DeepCopyObject() runtime.Object      { return deepcopy.Of(p) }
