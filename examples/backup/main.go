// Stage backup serves copies of ConfigMaps, which it makes in the background.
package main

import (
	"context"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/catena-dev/catena/examples/backup/v1"
	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/apistage"
)

func main() { sdk.Main(group().Stage()) }

func group() apistage.Group {
	return apistage.Group{
		Name:        "backup",
		Summary:     "serves copies of ConfigMaps",
		APIVersion:  "backup.example.com/v1",
		TypeSources: []string{v1.Source},
		Start:       work,
		Resources: []apistage.Resource{apistage.Kind[*v1.Backup]{
			List:   &v1.BackupList{},
			Status: true,
			Default: func(b *v1.Backup) {
				if b.Spec.IfMissing == "" {
					b.Spec.IfMissing = "Wait"
				}
			},
			Validate: validate,
			Columns: []apistage.Column[*v1.Backup]{
				{Name: "ConfigMap", Value: func(b *v1.Backup) any { return b.Spec.ConfigMap }},
				{Name: "Phase", Value: func(b *v1.Backup) any { return b.Status.Phase }},
			},
			Fields: map[string]func(*v1.Backup) string{
				"spec.configMap": func(b *v1.Backup) string { return b.Spec.ConfigMap },
			},
		}},
	}
}

// validate gets the old object too, nil if the new one is being created.
func validate(_ context.Context, b, old *v1.Backup) field.ErrorList {
	var errs field.ErrorList
	spec := field.NewPath("spec")
	if b.Spec.ConfigMap == "" {
		errs = append(errs, field.Required(spec.Child("configMap"), "what is to be copied"))
	}
	if missing := b.Spec.IfMissing; missing != "Wait" && missing != "Fail" {
		errs = append(errs, field.NotSupported(spec.Child("ifMissing"), missing, []string{"Wait", "Fail"}))
	}
	if old != nil {
		same := validation.ValidateImmutableField(b.Spec.ConfigMap, old.Spec.ConfigMap, spec.Child("configMap"))
		errs = append(errs, same...)
	}
	return errs
}
