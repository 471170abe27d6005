// Package kubeversion reports which Kubernetes release this program was built
// from. Kubernetes stamps the release into k8s.io/component-base/version with
// linker flags; a program that has Kubernetes as a module, and was built with
// plain go build, would report v0.0.0-master+$Format:%H$, which clients cannot
// parse. The module's version is in the build information of every Go binary,
// so that is where this package takes it from.
//
// component-base/version.SetDynamicVersion is of no use here: it refuses a
// version that differs from the stamped one in more than its suffix. What reads
// component-base/version directly (client-go's
// user agent) therefore still shows the placeholder unless the linker flags are
// given; what clients negotiate by, /version, does not.
package kubeversion

import (
	"runtime/debug"
	"strings"

	"k8s.io/apimachinery/pkg/version"
	"k8s.io/component-base/compatibility"
	baseversion "k8s.io/component-base/version"
)

// placeholder is in what component-base reports when no linker flag has set it.
const placeholder = "$Format:"

// modules are those whose version tells the release, the best witness first,
// with the major version that stands for the v0 of the published libraries.
var modules = []struct{ path, from, to string }{
	{"k8s.io/kubernetes", "v1.", "v1."},
	{"k8s.io/apiserver", "v0.", "v1."},
	{"k8s.io/component-base", "v0.", "v1."},
}

// Release returns the Kubernetes release as a semantic version, such as
// v1.37.0. Linker flags win over the build information. Where neither knows, as
// in a test binary, it is the first release of component-base's minor version.
func Release() string {
	if stamped := baseversion.Get().GitVersion; !strings.Contains(stamped, placeholder) {
		return stamped
	}
	if build, ok := debug.ReadBuildInfo(); ok {
		if release := fromModules(build.Deps); release != "" {
			return release
		}
	}
	return "v" + baseversion.DefaultKubeBinaryVersion + ".0"
}

func fromModules(deps []*debug.Module) string {
	for _, m := range modules {
		for _, dep := range deps {
			if dep.Path != m.path {
				continue
			}
			if dep.Replace != nil {
				dep = dep.Replace
			}
			if rest, ok := strings.CutPrefix(dep.Version, m.from); ok {
				return m.to + rest
			}
		}
	}
	return ""
}

// Info returns what a server has to report at /version: the information of
// effective, with Release where Kubernetes' placeholder is. It is nil if that of
// effective is.
func Info(effective compatibility.EffectiveVersion) *version.Info {
	info := effective.Info()
	if info == nil {
		return nil
	}
	info.GitVersion = Release()
	if strings.Contains(info.GitCommit, placeholder) {
		info.GitCommit = ""
	}
	return info
}

// Effective returns effective with an Info method that reports Release, for
// genericapiserver.Config.EffectiveVersion.
func Effective(effective compatibility.EffectiveVersion) compatibility.EffectiveVersion {
	return released{effective}
}

type released struct{ compatibility.EffectiveVersion }

func (r released) Info() *version.Info { return Info(r.EffectiveVersion) }
