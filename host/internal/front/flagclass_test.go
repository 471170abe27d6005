package front

import (
	"regexp"
	"testing"

	"github.com/spf13/pflag"

	"github.com/catena-dev/catena/host/internal/grants"
)

// The flags that have a class are kube-apiserver's, and each of its flags that by its name is one of a file has that class.
func TestFlagClasses(t *testing.T) {
	t.Parallel()
	f, err := parseFlags(nil, KubernetesDefaults())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range grants.ClassifiedFlags() {
		if f.all.Lookup(name) == nil {
			t.Errorf("kube-apiserver has no flag %s", name)
		}
	}
	ofFile := regexp.MustCompile(`(^|-)(file|cafile|certfile|keyfile|config|certificate|cert|key|authority)(-file)?$`)
	f.all.VisitAll(func(flag *pflag.Flag) {
		if known := grants.FlagIs(flag.Name, grants.FlagFile|grants.FlagPair); ofFile.MatchString(flag.Name) && !known && flag.Name != "runtime-config" {
			t.Errorf("flag %s has no class: %s", flag.Name, flag.Usage)
		}
	})
}
