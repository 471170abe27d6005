package decode

import (
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/catena-dev/catena/host/internal/bounds"
)

// fieldBound bounds a field: its length in bytes, if it is a text, and how often it occurs in one message, if it is a list.
type fieldBound struct{ bytes, count int }

// fieldBounds returns the bounds of a field of a message that stages send. All texts and lists have some: a test goes
// through stage.proto. What the host cuts is bounded by its message alone.
func fieldBounds(name protoreflect.FullName) fieldBound {
	switch name {
	case "catena.stage.v1.DescribeResponse.name":
		return fieldBound{bytes: bounds.Name}
	case "catena.stage.v1.DescribeResponse.version", "catena.stage.v1.DescribeResponse.sdk":
		return fieldBound{bytes: bounds.Line}
	case "catena.stage.v1.DescribeResponse.summary":
		return fieldBound{bytes: bounds.Summary}
	case "catena.stage.v1.DescribeResponse.config_schema":
		return fieldBound{bytes: bounds.Schema}

	case "catena.stage.v1.Needs.claims":
		return fieldBound{count: bounds.Needs}
	case "catena.stage.v1.Needs.flags":
		return fieldBound{bytes: bounds.Name, count: bounds.Needs}
	case "catena.stage.v1.Needs.files":
		return fieldBound{bytes: bounds.FilePath, count: bounds.Needs}

	case "catena.stage.v1.Kubernetes.release", "catena.stage.v1.Kubernetes.emulation_version",
		"catena.stage.v1.Kubernetes.min_compatibility_version":
		return fieldBound{bytes: bounds.Name}
	case "catena.stage.v1.Kubernetes.flags", "catena.stage.v1.Kubernetes.feature_gates", "catena.stage.v1.Kubernetes.admission_plugins":
		return fieldBound{bytes: bounds.Name, count: bounds.Features}
	case "catena.stage.v1.Kubernetes.kinds":
		return fieldBound{count: bounds.Kinds}
	case "catena.stage.v1.Kubernetes.Kind.group", "catena.stage.v1.Kubernetes.Kind.kind", "catena.stage.v1.Kubernetes.Kind.storage_version":
		return fieldBound{bytes: bounds.Name}
	case "catena.stage.v1.Kubernetes.Kind.versions", "catena.stage.v1.Kubernetes.Kind.served":
		return fieldBound{bytes: bounds.Name, count: bounds.KindVersions}

	case "catena.stage.v1.ValidateConfigResponse.problems":
		return fieldBound{count: bounds.Problems}
	case "catena.stage.v1.ConfigProblem.key":
		return fieldBound{bytes: bounds.Line}
	case "catena.stage.v1.ConfigProblem.message": // cut
		return fieldBound{bytes: bounds.ProblemsMessage}

	case "catena.stage.v1.ConfigureResponse.listed_paths", "catena.stage.v1.PrepareRunResponse.listed_paths",
		"catena.stage.v1.ClaimsChanged.listed_paths":
		return fieldBound{bytes: bounds.Line, count: bounds.ListedPaths}
	case "catena.stage.v1.ConfigureResponse.claims", "catena.stage.v1.PrepareRunResponse.claims", "catena.stage.v1.ClaimsChanged.claims":
		return fieldBound{count: bounds.Claims}
	case "catena.stage.v1.Claim.path": // claims that are too long do not count
		return fieldBound{bytes: bounds.ReportMessage}

	case "catena.stage.v1.PrepareRunResponse.post_start_hooks", "catena.stage.v1.PrepareRunResponse.pre_shutdown_hooks",
		"catena.stage.v1.PrepareRunResponse.mux_and_discovery_signals", "catena.stage.v1.Event.signaled":
		return fieldBound{bytes: bounds.Name, count: bounds.Hooks}
	case "catena.stage.v1.PrepareRunResponse.health_checks":
		return fieldBound{count: bounds.Hooks}
	case "catena.stage.v1.HealthCheck.name", "catena.stage.v1.HealthCheck.server_check", "catena.stage.v1.HealthCheck.group":
		return fieldBound{bytes: bounds.Name}

	case "catena.stage.v1.Event.resource_sizes":
		return fieldBound{count: 2 * bounds.ResourceSizes} // those of other groups do not count
	case "catena.stage.v1.ResourceSize.resource": // sizes of names that are too long do not count
		return fieldBound{bytes: bounds.ReportMessage}

	case "catena.stage.v1.CheckHealthResponse.results":
		return fieldBound{count: bounds.Hooks}
	case "catena.stage.v1.HealthResult.name":
		return fieldBound{bytes: bounds.Name}
	case "catena.stage.v1.HealthResult.error": // cut
		return fieldBound{bytes: bounds.HealthMessage}

	case "catena.stage.v1.GatherMetricsResponse.text":
		return fieldBound{bytes: bounds.MetricsPiece}
	case "catena.stage.v1.GetDebugPageResponse.content_type":
		return fieldBound{bytes: bounds.Name}
	case "catena.stage.v1.GetDebugPageResponse.body":
		return fieldBound{bytes: bounds.PagePiece}
	}
	return fieldBound{}
}
