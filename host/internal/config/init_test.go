package config

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// settingsOf are the values of the configuration in a text, without those of the flags of kube-apiserver.
func settingsOf(t *testing.T, text string) map[string]any {
	t.Helper()
	p := &problems{}
	c, err := load([]*layer{parseLayer("init.yaml", []byte(text), p)}, Options{}, p)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	all := map[string]any{}
	for _, s := range c.Effective() {
		if !strings.HasPrefix(s.Key, "apiserver.") {
			all[s.Key] = s.Value
		}
	}
	return all
}

// commentedKey is a key in a comment: there may be an even number of spaces before it, not one as in prose.
var commentedKey = regexp.MustCompile(`(?m)^#((?:  )*[a-zA-Z-]+:)`)

// What is a comment in the initial configuration is the default, and what is not are directories and the chain.
func TestInitialHasTheDefaults(t *testing.T) {
	t.Parallel()
	for _, installed := range []bool{false, true} {
		text := string(Initial(installed))
		initial := settingsOf(t, text)
		if n := len(commentedKey.FindAllString(text, -1)); n < 20 {
			t.Errorf("only %d keys in comments", n)
		}
		if diff := cmp.Diff(initial, settingsOf(t, commentedKey.ReplaceAllString(text, "$1"))); diff != "" {
			t.Errorf("comments that are no defaults (-default +comment):\n%s", diff)
		}
		want := settingsOf(t, "apiVersion: "+APIVersion+"\nkind: "+Kind)
		if installed {
			for _, stage := range BuiltinStages() {
				delete(want, "stages."+stage+".binary")
			}
			for _, key := range []string{"dataDir", "runtimeDir", "pluginDirs"} {
				if cmp.Equal(initial[key], want[key]) {
					t.Errorf("%s is the default", key)
				}
				delete(initial, key)
				delete(want, key)
			}
		}
		if diff := cmp.Diff(want, initial); diff != "" {
			t.Errorf("installed %t: not as without a configuration (-without +initial):\n%s", installed, diff)
		}
	}
}
