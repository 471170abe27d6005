package cli

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/catena-dev/catena/host/internal/declared"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// parseAttachments takes what --attach was given: NAME or NAME=DIRECTORY.
func parseAttachments(values []string) (declared.Attachments, error) {
	all := declared.Attachments{}
	for _, value := range values {
		name, dir, given := strings.Cut(value, "=")
		if name == "" || given && dir == "" {
			return nil, fmt.Errorf("--attach %s: want the name of a stage, or NAME=DIRECTORY", value)
		}
		if all[name] != "" {
			return nil, fmt.Errorf("--attach: stage %q is named twice", name)
		}
		if !given {
			dir = stagev1.DebugDir(name)
		}
		abs, err := filepath.Abs(dir)
		if err != nil {
			return nil, fmt.Errorf("--attach %s: %w", value, err)
		}
		all[name] = abs
	}
	return all, nil
}
