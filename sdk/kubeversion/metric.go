package kubeversion

import (
	"k8s.io/component-base/compatibility"
	"k8s.io/component-base/metrics"
)

// AddBuildInfo makes the metric kubernetes_build_info, as kube-apiserver has it, and has it registered.
// The package of component-base that does so when it is imported takes the stamped version.
func AddBuildInfo(register func(...metrics.Registerable), effective compatibility.EffectiveVersion) {
	gauge := metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name:           "kubernetes_build_info",
		Help:           "A metric with a constant '1' value labeled by major, minor, git version, git commit, git tree state, build date, Go version, and compiler from which Kubernetes was built, and platform on which it is running.",
		StabilityLevel: metrics.BETA,
	}, []string{"major", "minor", "git_version", "git_commit", "git_tree_state", "build_date", "go_version", "compiler", "platform"})
	register(gauge)
	i := Info(effective)
	gauge.WithLabelValues(i.Major, i.Minor, i.GitVersion, i.GitCommit, i.GitTreeState, i.BuildDate, i.GoVersion,
		i.Compiler, i.Platform).Set(1)
}
