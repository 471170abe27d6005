package kubeversion

import (
	"runtime/debug"
	"testing"

	"k8s.io/component-base/compatibility"
)

func TestReleaseFromModules(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		deps []*debug.Module
		want string
	}{
		"kubernetes":    {[]*debug.Module{{Path: "k8s.io/apiserver", Version: "v0.36.1"}, {Path: "k8s.io/kubernetes", Version: "v1.37.0"}}, "v1.37.0"},
		"library alone": {[]*debug.Module{{Path: "k8s.io/apiserver", Version: "v0.37.2"}}, "v1.37.2"},
		"replaced":      {[]*debug.Module{{Path: "k8s.io/kubernetes", Version: "v1.37.0", Replace: &debug.Module{Version: "v1.37.5"}}}, "v1.37.5"},
		"local replace": {[]*debug.Module{{Path: "k8s.io/kubernetes", Version: "v1.37.0", Replace: &debug.Module{Path: "../k"}}}, ""},
		"none":          {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := fromModules(c.deps); got != c.want {
				t.Errorf("release is %q, want %q", got, c.want)
			}
		})
	}
}

func TestEffectiveHasNoPlaceholder(t *testing.T) {
	t.Parallel()
	effective := Effective(compatibility.NewEffectiveVersionFromString("1.37", "1.34", "1.34"))
	info := effective.Info()
	if info.GitVersion != "v1.37.0" || info.Major != "1" || info.Minor != "37" {
		t.Errorf("version is %s (%s.%s), want v1.37.0 (1.37)", info.GitVersion, info.Major, info.Minor)
	}
	if info.GitCommit == "$Format:%H$" {
		t.Error("git commit is a placeholder")
	}
}
