package clients

import (
	"strconv"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/conversion"
)

const widgetGroup = "clients.catena.dev"

// Widget is a kind in its version v2, which is stored. Webhooks default and validate its size.
type Widget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Size   int    `json:"size,omitempty"`
	Status string `json:"status,omitempty"` // a subresource is not needed here
}

// WidgetList is a list of them.
type WidgetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Widget `json:"items"`
}

// Hub implements conversion.Hub.
func (*Widget) Hub() {}

// DeepCopyObject implements runtime.Object.
func (w *Widget) DeepCopyObject() runtime.Object {
	out := *w
	w.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return &out
}

// DeepCopyObject implements runtime.Object.
func (l *WidgetList) DeepCopyObject() runtime.Object {
	out := *l
	out.Items = make([]Widget, len(l.Items))
	for i := range l.Items {
		out.Items[i] = *l.Items[i].DeepCopyObject().(*Widget)
	}
	return &out
}

// OldWidget is the kind in its version v1, in which the size is a text.
type OldWidget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Size   string `json:"size,omitempty"`
	Status string `json:"status,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (w *OldWidget) DeepCopyObject() runtime.Object {
	out := *w
	w.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return &out
}

// ConvertTo implements conversion.Convertible.
func (w *OldWidget) ConvertTo(hub conversion.Hub) error {
	to := hub.(*Widget)
	w.ObjectMeta.DeepCopyInto(&to.ObjectMeta)
	to.Status = w.Status
	if w.Size == "" {
		return nil
	}
	var err error
	to.Size, err = strconv.Atoi(w.Size)
	return err
}

// ConvertFrom implements conversion.Convertible.
func (w *OldWidget) ConvertFrom(hub conversion.Hub) error {
	from := hub.(*Widget)
	from.ObjectMeta.DeepCopyInto(&w.ObjectMeta)
	w.Size, w.Status = strconv.Itoa(from.Size), from.Status
	return nil
}

// addWidgets registers both versions.
func addWidgets(scheme *runtime.Scheme) {
	v1, v2 := schema.GroupVersion{Group: widgetGroup, Version: "v1"}, schema.GroupVersion{Group: widgetGroup, Version: "v2"}
	scheme.AddKnownTypeWithName(v1.WithKind("Widget"), &OldWidget{})
	scheme.AddKnownTypes(v2, &Widget{}, &WidgetList{})
	metav1.AddToGroupVersion(scheme, v1)
	metav1.AddToGroupVersion(scheme, v2)
}

// widgetDefinition is the CustomResourceDefinition of widgets. envtest adds the conversion.
func widgetDefinition() *apiextensionsv1.CustomResourceDefinition {
	version := func(name, size string, storage bool) apiextensionsv1.CustomResourceDefinitionVersion {
		return apiextensionsv1.CustomResourceDefinitionVersion{
			Name: name, Served: true, Storage: storage,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
				Type:       "object",
				Properties: map[string]apiextensionsv1.JSONSchemaProps{"size": {Type: size}, "status": {Type: "string"}},
			}},
		}
	}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets." + widgetGroup},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: widgetGroup, Scope: apiextensionsv1.NamespaceScoped,
			Names:    apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget", Kind: "Widget", ListKind: "WidgetList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{version("v1", "string", false), version("v2", "integer", true)},
		},
	}
}
