// Stage wardle serves the types of Kubernetes' sample API server, Flunder and Fischer.
package main

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/sample-apiserver/pkg/apis/wardle"
	"k8s.io/sample-apiserver/pkg/apis/wardle/install"
	"k8s.io/sample-apiserver/pkg/apis/wardle/validation"
	"k8s.io/sample-apiserver/pkg/generated/openapi"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/apistage"
)

func main() { sdk.Main(group().Stage()) }

func group() apistage.Group {
	ban := &ban{}
	return apistage.Group{
		Name:            "wardle",
		Summary:         "serves flunders and fischers",
		APIVersion:      "wardle.example.com/v1alpha1",
		AddToScheme:     func(scheme *runtime.Scheme) error { install.Install(scheme); return nil },
		Definitions:     openapi.GetOpenAPIDefinitions,
		Admission:       ban.admission,
		StartEverywhere: ban.start,
		Resources: []apistage.Resource{
			apistage.Kind[*wardle.Flunder]{
				List:     &wardle.FlunderList{},
				Validate: func(_ context.Context, f, _ *wardle.Flunder) field.ErrorList { return validation.ValidateFlunder(f) },
				Columns:  []apistage.Column[*wardle.Flunder]{{Name: "Reference", Value: func(f *wardle.Flunder) any { return reference(f) }}},
				Fields:   map[string]func(*wardle.Flunder) string{"spec.reference": reference},
				Status:   true,
			},
			apistage.Kind[*wardle.Fischer]{List: &wardle.FischerList{}, ClusterScoped: true},
		},
	}
}

func reference(f *wardle.Flunder) string { return f.Spec.FlunderReference + f.Spec.FischerReference }
