package system

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// klogLine is a line of klog's text format, as collectors of logs take it apart.
var klogLine = regexp.MustCompile(`^[IWEF]\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ [^ \]]+:\d+\] `)

// What reads the log of kube-apiserver can read Catena's, from the first line to the last.
func TestLogFormats(t *testing.T) {
	t.Parallel()
	for format, check := range map[string]func(string) error{"text": isKlogText, "json": isKlogJSON} {
		for name, path := range map[string]string{"kube-apiserver": kubeAPIServerPath(t), "catena": asKubeAPIServer(t)} {
			t.Run(name+" "+format, func(t *testing.T) {
				t.Parallel()
				k := newKubeAPIServer(t, cluster.Options{Flags: map[string]string{"logging-format": format}})
				if err := k.Start(t.Context(), path); err != nil {
					t.Fatal(err)
				}
				stopped(t, k)
				text, err := os.ReadFile(k.Process().Log)
				if err != nil {
					t.Fatal(err)
				}
				lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
				for _, line := range lines {
					if err := check(line); err != nil {
						t.Errorf("%v: %s", err, line)
					}
				}
				if len(lines) < 20 {
					t.Errorf("it logs %d lines", len(lines))
				}
			})
		}
	}
}

func isKlogText(line string) error {
	if !klogLine.MatchString(line) {
		return fmt.Errorf("no klog header")
	}
	return nil
}

func isKlogJSON(line string) error {
	var fields struct {
		TS          *json.Number
		Caller, Msg *string
	}
	if err := json.Unmarshal([]byte(line), &fields); err != nil {
		return err
	}
	if fields.TS == nil || fields.Caller == nil || fields.Msg == nil {
		return fmt.Errorf("a key is missing")
	}
	return nil
}
