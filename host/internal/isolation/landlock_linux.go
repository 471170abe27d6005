package isolation

import (
	"fmt"
	"os"
	"slices"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
)

// landlockConfigs has, for each version of the ABI that is used, what it can restrict.
func landlockConfigs() []landlock.Config {
	return []landlock.Config{
		landlock.V1, landlock.V2, landlock.V3, landlock.V4, landlock.V5, landlock.V6, landlock.V7, landlock.V8, landlock.V9,
	}
}

// landlockVersion is 0 if there is no Landlock.
func landlockVersion() int {
	version, err := ll.LandlockGetABIVersion()
	if err != nil || version < 0 {
		return 0
	}
	return min(version, len(landlockConfigs()))
}

// applyLandlock restricts this process to what is in reach. Where the process has a view of its
// own, nothing else is there, and Landlock is the second wall; it is the only one otherwise.
func applyLandlock(l *launch) error {
	config := landlockConfigs()[l.Landlock-1]
	if l.Network {
		config.HandledAccessNet = 0
	}
	if l.Landlock >= 7 { // the machine's audit is not for a stage to fill
		config = config.DisableLoggingForOriginatingProcess().DisableLoggingForSubdomains()
	}
	if err := config.Restrict(landlockRules(l)...); err != nil {
		return fmt.Errorf("landlock: %w", err)
	}
	return nil
}

func landlockRules(l *launch) []landlock.Rule {
	var rules []landlock.Rule
	view := l.View
	if l.Namespaces {
		rules = append(rules, connectable(l, landlock.RODirs("/")))
	} else {
		view = append(slices.Clone(view), ofProcess()...)
	}
	for _, e := range view {
		if e.Link != "" {
			continue // where it leads is in the view, or is not allowed
		}
		info, err := os.Stat(e.Path)
		if err != nil {
			continue // it is optional, or has been found missing before
		}
		if rule, ok := landlockRule(l, e, info.IsDir()); ok {
			rules = append(rules, rule)
		}
	}
	return rules
}

// ofProcess is what the process itself reads of itself in /proc, without what tells of others: the sockets of the
// network namespace, and where they are.
func ofProcess() []entry {
	var all []entry
	for _, name := range []string{
		"auxv", "cgroup", "cmdline", "comm", "environ", "fd", "fdinfo", "io", "limits", "maps", "mountinfo", "mounts",
		"oom_score", "oom_score_adj", "smaps", "smaps_rollup", "stat", "statm", "status",
	} {
		all = append(all, entry{Path: "/proc/self/" + name, Access: readOnly})
	}
	return all
}

func landlockRule(l *launch, e entry, isDir bool) (landlock.FSRule, bool) {
	switch {
	case e.Access == partial, e.Access == private && !l.Namespaces:
		return landlock.FSRule{}, false
	case e.Access == readOnly && isDir:
		return landlock.RODirs(e.Path), true
	case e.Access == readOnly:
		return connectable(l, landlock.ROFiles(e.Path)), true
	case !isDir:
		return landlock.RWFiles(e.Path), true
	}
	rule := connectable(l, landlock.RWDirs(e.Path))
	if l.Landlock >= 2 {
		rule = rule.WithRefer()
	}
	return rule, true
}

// connectable allows to connect to sockets, which Landlock governs from version 9 on.
func connectable(l *launch, rule landlock.FSRule) landlock.FSRule {
	if l.Landlock >= 9 {
		return rule.WithResolveUnix()
	}
	return rule
}
