package front

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

func TestCommandLineRecordsWhatIsGiven(t *testing.T) {
	t.Parallel()
	line := NewCommandLine("kube-apiserver")
	flags := pflag.NewFlagSet("kube-apiserver", pflag.ContinueOnError)
	for _, set := range line.Sets.FlagSets {
		flags.AddFlagSet(set)
	}
	err := flags.Parse([]string{
		"--bind-address=127.0.0.1", "--bind-address", "127.0.0.2", // the last one counts
		"--authorization-mode=Node,RBAC", "--authorization-mode=Webhook", // one adds to the other
		"--profiling", "--allow-privileged=false",
		"--service-cluster-ip-range=10.0.0.0/24,fd00::/108",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{
		"bind-address":             {"127.0.0.2"},
		"authorization-mode":       {"Node,RBAC", "Webhook"},
		"profiling":                {"true"},
		"allow-privileged":         {"false"},
		"service-cluster-ip-range": {"10.0.0.0/24,fd00::/108"},
	}
	if diff := cmp.Diff(want, line.Given()); diff != "" {
		t.Errorf("given (-want +got):\n%s", diff)
	}
}
