package auditheader

import (
	"maps"
	"slices"
	"strings"
)

// hostDomain is the domain of the annotations that the host writes.
const hostDomain = "catena.dev"

// OwnDomain returns the domain of the annotations that a stage may add whatever it does with a request.
func OwnDomain(stage string) string { return stage + ".stage." + hostDomain }

// Restrict returns what of the part a stage may add, and what is left out: the keys of annotations, and names of other members.
//
//   - Every stage may add annotations in its own domain.
//   - One that serves the request itself may also say what the request was about, and add annotations in all domains but Kubernetes' and
//     the host's.
//   - If it may also have paths of the Kubernetes API, it may add what Kubernetes' handlers do. What Kubernetes' filters add is the
//     host's to say.
func (p Part) Restrict(stage string, serves, kubernetes bool) (allowed Part, dropped []string) {
	allowed = p
	if !serves {
		allowed = Part{Annotations: p.Annotations}
		for name, is := range map[string]bool{
			"objectRef": p.ObjectRef != nil, "requestObject": len(p.RequestObject) > 0,
			"responseObject": len(p.ResponseObject) > 0, "responseStatus": p.ResponseStatus != nil,
		} {
			if is {
				dropped = append(dropped, name)
			}
		}
	}
	allowed.Annotations = maps.Clone(p.Annotations)
	maps.DeleteFunc(allowed.Annotations, func(key, _ string) bool {
		if mayAnnotate(stage, key, serves, kubernetes) {
			return false
		}
		dropped = append(dropped, key)
		return true
	})
	slices.Sort(dropped)
	return allowed, dropped
}

// Cut leaves out the annotations for which there is no room, in bytes, in the order of their keys, and returns these.
func (p Part) Cut(room int) (dropped []string) {
	for _, key := range slices.Sorted(maps.Keys(p.Annotations)) {
		if room -= len(key) + len(p.Annotations[key]); room < 0 {
			delete(p.Annotations, key)
			dropped = append(dropped, key)
		}
	}
	return dropped
}

func mayAnnotate(stage, key string, serves, kubernetes bool) bool {
	domain, _, found := strings.Cut(strings.ToLower(key), "/")
	switch {
	case found && domain == OwnDomain(stage):
		return true
	case !serves || within(domain, hostDomain):
		return false
	case kubernetes:
		return domain != "authorization.k8s.io" && domain != "apiserver.latency.k8s.io"
	}
	return found && isDomain(domain) && !within(domain, "kubernetes.io") && !within(domain, "k8s.io")
}

func within(domain, other string) bool {
	return domain == other || strings.HasSuffix(domain, "."+other)
}

// isDomain reports whether s looks like no other domain than it is.
func isDomain(s string) bool {
	return s != "" && !strings.HasSuffix(s, ".") && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '.'
	})
}
