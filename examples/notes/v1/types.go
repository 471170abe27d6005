// Package v1 has the types of notes.example.com/v1.
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

// Note is something to be remembered.
type Note struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// Spec is what the note says.
	Spec NoteSpec `json:"spec"`
}

// NoteSpec is what a note says.
type NoteSpec struct {
	// Title is one line. It is the beginning of the text if it is left out.
	// +optional
	Title string `json:"title,omitempty"`
	// Text is the note itself.
	Text string `json:"text"`
	// Tags are words to find the note by.
	// +listType=set
	// +optional
	Tags []string `json:"tags,omitempty"`
}

// NoteList is a list of notes.
type NoteList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Note `json:"items"`
}

// DeepCopyObject makes a Note an object of an API.
func (n *Note) DeepCopyObject() runtime.Object { return deepcopy.Of(n) }

// DeepCopyObject makes a NoteList an object of an API.
func (l *NoteList) DeepCopyObject() runtime.Object { return deepcopy.Of(l) }
