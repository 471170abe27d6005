// Package auditheader reads the header in which a stage adds to the audit event of a request.
package auditheader

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Part is what a stage adds to an audit event.
type Part struct {
	Annotations    map[string]string `json:"annotations"`
	ObjectRef      *ObjectRef        `json:"objectRef"`
	RequestObject  json.RawMessage   `json:"requestObject"`
	ResponseObject json.RawMessage   `json:"responseObject"`
	ResponseStatus *metav1.Status    `json:"responseStatus"`
}

// ObjectRef refers to the object of a request. A stage can have more of it than the URL:
// the name in a body, for example.
type ObjectRef struct {
	Resource        string    `json:"resource"`
	Namespace       string    `json:"namespace"`
	Name            string    `json:"name"`
	UID             types.UID `json:"uid"`
	APIGroup        string    `json:"apiGroup"`
	APIVersion      string    `json:"apiVersion"`
	ResourceVersion string    `json:"resourceVersion"`
	Subresource     string    `json:"subresource"`
}

// Parse reads the value of X-Catena-Audit.
func Parse(value string) (Part, error) {
	var p Part
	if err := json.Unmarshal([]byte(value), &p); err != nil {
		return Part{}, fmt.Errorf("no JSON object of the members that X-Catena-Audit has: %w", err)
	}
	return p, nil
}
