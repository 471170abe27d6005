package deepcopy_test

import (
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/catena-dev/catena/sdk/apistage/deepcopy"
)

// The generated DeepCopy of a pod is what the copy of a type without one is
// compared with.
type podLike corev1.Pod

func pod() *corev1.Pod {
	yes, now := true, metav1.NewTime(time.Unix(1700000000, 0))
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "p", Labels: map[string]string{"a": "b"}, DeletionTimestamp: &now,
			ManagedFields: []metav1.ManagedFieldsEntry{{FieldsV1: metav1.NewFieldsV1("{}")}},
		},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{
				Name:            "c",
				Resources:       corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse("100m")}},
				SecurityContext: &corev1.SecurityContext{Privileged: &yes},
			}},
			NodeSelector: map[string]string{},
		},
	}
}

func TestCopyIsEqualAndShareNothing(t *testing.T) {
	t.Parallel()
	original := (*podLike)(pod())
	copied := deepcopy.Of(original)
	if !reflect.DeepEqual((*corev1.Pod)(copied), pod()) {
		t.Fatalf("copy is %+v", copied)
	}
	copied.Labels["a"] = "c"
	copied.DeletionTimestamp.Time = time.Time{}
	copied.ManagedFields[0].FieldsV1.GetRawBytes()[0] = 'x'
	*copied.Spec.Containers[0].SecurityContext.Privileged = false
	cpu := copied.Spec.Containers[0].Resources.Limits["cpu"]
	cpu.Add(resource.MustParse("1"))
	copied.Spec.Containers[0].Resources.Limits["cpu"] = cpu
	if !reflect.DeepEqual((*corev1.Pod)(original), pod()) {
		t.Errorf("a change of the copy changes the original: %+v", original)
	}
}

type object struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	Any  any
	List []any
	Next *object
	none map[string]string
}

func (o *object) DeepCopyObject() runtime.Object { return deepcopy.Of(o) }

func TestTypesWithTheirOwnMethods(t *testing.T) {
	t.Parallel()
	o := &object{Any: map[string]any{"k": []any{1, "x"}}, List: []any{nil, 2}, Next: &object{}, none: map[string]string{}}
	c := o.DeepCopyObject().(*object)
	if !reflect.DeepEqual(o, c) {
		t.Fatalf("copy is %+v", c)
	}
	c.Any.(map[string]any)["k"].([]any)[1] = "y"
	if o.Any.(map[string]any)["k"].([]any)[1] != "x" {
		t.Error("values in interfaces are shared")
	}
	if c.Next == o.Next {
		t.Error("pointers are shared")
	}
	if empty := (&object{}).DeepCopyObject().(*object); !reflect.DeepEqual(empty, &object{}) {
		t.Errorf("copy of nothing is %+v", empty)
	}
}

func BenchmarkOf(b *testing.B) {
	original := (*podLike)(pod())
	for b.Loop() {
		deepcopy.Of(original)
	}
}
