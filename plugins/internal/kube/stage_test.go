package kube

import (
	"strings"
	"testing"

	"github.com/catena-dev/catena/sdk/stagetest"
)

func TestConfigurationIsRefused(t *testing.T) {
	t.Parallel()
	stage := Stage("core", "", NewCore)
	for name, c := range map[string]struct {
		config string
		flags  []string
		want   string
	}{
		"none":         {"null", []string{"secure-port=6443", "authorization-mode=Node,RBAC"}, ""},
		"empty":        {"{}", nil, ""},
		"unknown flag": {"null", []string{"secure-prt=1"}, "unknown flag: --secure-prt"},
		"bad flag":     {"null", []string{"secure-port=many"}, "secure-port"},
	} {
		var got []string
		for _, problem := range stage.Validate([]byte(c.config), c.flags) {
			got = append(got, problem.Message)
		}
		if all := strings.Join(got, "; "); (c.want == "") != (all == "") || !strings.Contains(all, c.want) {
			t.Errorf("%s: problems are %q, want %q", name, all, c.want)
		}
	}
	launched := stagetest.Launch(t, stage, stagetest.Options{Config: map[string]int{"colour": 1}})
	if err := launched.Configure(); err == nil || !strings.Contains(err.Error(), "colour") {
		t.Errorf("Configure: %v", err)
	}
}
