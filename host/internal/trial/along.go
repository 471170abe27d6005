package trial

import (
	"cmp"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/declared"
	"github.com/catena-dev/catena/host/internal/process"
	"github.com/catena-dev/catena/host/internal/supervisor"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// Along returns what takes the controllers along when core goes to a binary that serves another minor release than
// theirs, since they must not be newer than what they are clients of. It is nil for other stages.
func (r *Releases) Along(cfg *config.Config, stage string) supervisor.Along {
	if stage != config.Core {
		return nil
	}
	return func(core supervisor.Spec, next *stagev1.DescribeResponse, other *supervisor.Spec) (string, error) {
		if other.Name != config.Controllers {
			return "", nil
		}
		binary := r.controllersFor(core, next)
		if binary == "" {
			return "", nil
		}
		return "core serves another minor release of Kubernetes", declared.SetBinary(cfg, other, binary, "")
	}
}

// controllersFor returns the binary to which the controllers go with a process of core: the file beside its own, or
// this program if it is that. It is empty if core goes to no other minor release, if they are of that, or if there is no
// such file.
func (r *Releases) controllersFor(core supervisor.Spec, next *stagev1.DescribeResponse) string {
	release := next.GetKubernetes().GetRelease()
	if core.Name != config.Core || release == "" {
		return ""
	}
	is := cmp.Or(supervisor.Emulates(core.Process, release), minorOf(release))
	was, err := r.Minor(core.Name)
	present, noControllers := r.Stages.Description(config.Controllers)
	if err != nil || noControllers != nil || was == is || minorOf(present.GetVersion()) == is {
		return ""
	}
	beside := filepath.Join(filepath.Dir(core.Binary), process.BinaryPrefix+config.Controllers)
	if _, err := os.Stat(beside); err == nil {
		return beside
	}
	if process.IsOwn(core.Binary) {
		return config.BuiltinBinary
	}
	return ""
}

// minorOf is the minor release of a release of Kubernetes, such as 1.37; empty if it is malformed.
func minorOf(release string) string {
	v, err := version.ParseSemantic(release)
	if err != nil {
		return ""
	}
	return version.MajorMinor(v.Major(), v.Minor()).String()
}
