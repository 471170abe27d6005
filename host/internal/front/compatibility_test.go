package front

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

var update = flag.Bool("update", false, "write docs/compatibility.md and docs/metrics.md")

// The processes that use a flag.
const (
	byHost   = "host"
	byStages = "stages"
	byAll    = "host, stages"
	byCore   = "core"
)

// usedBy says which processes use the flags of a group of kube-apiserver's help.
var usedBy = map[string]string{
	"generic": byHost, "etcd": byStages, "secure serving": byHost, "auditing": byHost, "features": byAll, "authentication": "host, core",
	"authorization": byAll, "API enablement": byStages, "egress selector": byStages, "admission": byStages, "metrics": byAll, "logs": byAll,
	"traces": byAll, "misc": byCore, "global": byHost,
}

// flagNotes are what usedBy does not say of a flag.
var flagNotes = map[string]struct{ by, difference string }{
	"emulated-version":                            {by: byAll},
	"emulation-forward-compatible":                {by: byAll},
	"feature-gates":                               {by: byAll},
	"min-compatibility-version":                   {by: byAll},
	"runtime-config-emulation-forward-compatible": {by: byStages},
	"min-request-timeout":                         {by: byStages},
	"storage-initialization-timeout":              {by: byStages},
	"advertise-address":                           {by: byAll},
	"etcd-servers":                                {by: byAll, difference: "Without it, etcd is embedded in the host. The host waits for the cluster before it starts stages."},
	"etcd-cafile":                                 {by: byAll},
	"etcd-certfile":                               {by: byAll},
	"etcd-keyfile":                                {by: byAll},
	"cert-dir":                                    {by: byHost, difference: "Has the directory catena too, unless --catena-data-dir names another or it cannot be written."},
	"enable-priority-and-fairness":                {by: "host, core"},
	"debug-socket-path":                           {by: byAll, difference: "The host's socket is there; each stage has its own in the directory of its process."},
	"client-ca-file":                              {by: "host, core"},
	"log-json-info-buffer-size":                   {by: "none", difference: "No effect: Catena does not buffer its log."},
	"log-json-split-stream":                       {by: "none", difference: "No effect: the log goes to standard error."},
	"log-text-info-buffer-size":                   {by: "none", difference: "No effect: Catena does not buffer its log."},
	"log-text-split-stream":                       {by: "none", difference: "No effect: the log goes to standard error."},
	"log-flush-frequency":                         {by: "none", difference: "No effect: Catena does not buffer its log."},
	"logging-format":                              {by: byHost, difference: "klog's headers, or JSON with the keys of Kubernetes. The source file and its line are the name of the process and 1; a message of klog.Infof is quoted."},
	"aggregator-reject-forwarding-redirect":       {by: "aggregator"},
	"enable-aggregator-routing":                   {by: "aggregator"},
	"proxy-client-cert-file":                      {by: "stages"},
	"proxy-client-key-file":                       {by: "stages"},
	"peer-ca-file":                                {by: "aggregator", difference: "Has no effect in a chain without aggregator, core or extensions."},
	"endpoint-reconciler-type": {by: byCore, difference: "`none` by default if nobody else can reach the address of the " +
		"server, as on a machine without a network, where kube-apiserver does not start. Not with `catena apiserver`."},
	"peer-advertise-ip":                {by: byCore, difference: "Advertised to the other servers of the cluster. kube-apiserver 1.37 advertises --advertise-address in its place."},
	"peer-advertise-port":              {by: byCore, difference: "As peer-advertise-ip."},
	"service-cluster-ip-range":         {by: "host, core"},
	"service-account-signing-key-file": {by: "host, core"},
	"service-account-signing-endpoint": {by: "host, core"},
	"enable-logs-handler":              {by: byHost},
}

// docs/compatibility.md has each flag of kube-apiserver, the processes that use it, and any difference. Those without one
// have a row for each set of processes.
func TestCompatibilityDocument(t *testing.T) {
	t.Parallel()
	line := NewCommandLine("kube-apiserver")
	var out bytes.Buffer
	known, alike := map[string]bool{}, map[string][]string{}
	for _, group := range line.Sets.Order {
		set := line.Sets.FlagSets[group]
		if usedBy[group] == "" {
			t.Errorf("no process uses the flags of %q", group)
		}
		set.VisitAll(func(f *pflag.Flag) {
			known[f.Name] = true
			by, note := usedBy[group], flagNotes[f.Name]
			if f.Hidden || f.Name == "help" {
				return
			}
			if note.by != "" {
				by = note.by
			}
			difference := note.difference
			if f.Deprecated != "" {
				difference = strings.TrimSpace("Deprecated. " + difference)
			}
			if difference == "" {
				alike[by] = append(alike[by], "`--"+f.Name+"`")
				return
			}
			fmt.Fprintf(&out, "| `--%s` | %s | %s |\n", f.Name, by, difference)
		})
	}
	for _, by := range slices.Sorted(maps.Keys(alike)) {
		fmt.Fprintf(&out, "| %s | %s | |\n", strings.Join(alike[by], ", "), by)
	}
	for name := range flagNotes {
		if !known[name] {
			t.Errorf("kube-apiserver has no flag %s", name)
		}
	}
	checkTable(t, filepath.Join("..", "..", "..", "docs", "compatibility.md"), out.String(), "go test ./host/internal/front -run Compatibility -update")
}

// checkTable compares the table of a document, or writes it with -update.
func checkTable(t *testing.T, path, rows, command string) {
	t.Helper()
	const head = "|---|---|---|\n"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, after, ok := strings.Cut(string(text), head)
	if !ok {
		t.Fatalf("%s has no table", path)
	}
	lines := strings.SplitAfter(after, "\n")
	end := slices.IndexFunc(lines, func(line string) bool { return !strings.HasPrefix(line, "|") })
	want := before + head + rows + strings.Join(lines[end:], "")
	if want == string(text) {
		return
	}
	if !*update {
		t.Fatalf("%s is out of date; write it with: %s", path, command)
	}
	if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}
