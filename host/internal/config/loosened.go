package config

import (
	"fmt"
	"slices"
	"strings"
)

// Loosened is a layer that takes the authorization away that an earlier one has set.
type Loosened struct {
	// Mode is what holds now; Source has set it, or undone what Before had set.
	Mode           string
	Source, Before string
}

// alwaysAllow is the mode of authorization that allows everything.
const alwaysAllow = "AlwaysAllow"

// loosened looks for that in the layers of the operator, in their order. open reports whether everything is allowed by
// default.
func loosened(layers []*layer, open bool) *Loosened {
	var found *Loosened
	strict := "" // the layer that has set authorization, while it holds
	for _, l := range layers {
		mode, where, isSet := authorizationOf(l)
		if !isSet {
			continue
		}
		isOpen := open
		if mode != "" {
			isOpen = slices.Contains(strings.Split(mode, ","), alwaysAllow)
		} else if open {
			mode = alwaysAllow
		}
		switch {
		case isOpen && strict != "":
			found, strict = &Loosened{Mode: mode, Source: where, Before: strict}, ""
		case !isOpen:
			found, strict = nil, where
		}
	}
	return found
}

// authorizationOf returns what a layer says of authorization, empty if it undoes what earlier ones say.
func authorizationOf(l *layer) (mode, where string, isSet bool) {
	section, ok := l.values["apiserver"]
	if !ok {
		return "", "", false
	}
	path := []string{"apiserver"}
	if section != nil {
		for _, name := range []string{"authorization-mode", "authorization-config"} {
			v, ok := asMap(section)[name]
			if !ok {
				continue
			}
			path, isSet = []string{"apiserver", name}, true
			if list, ok := v.([]string); ok {
				mode = strings.Join(list, ",")
			}
		}
		if !isSet {
			return "", "", false
		}
	}
	where = l.source
	if line := l.line(path); line > 0 {
		where = fmt.Sprintf("%s:%d", l.source, line)
	}
	return mode, where, true
}
