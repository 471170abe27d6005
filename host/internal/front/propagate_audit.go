package front

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	authnv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"

	"github.com/catena-dev/catena/host/internal/auditheader"
	"github.com/catena-dev/catena/host/internal/bounds"
	"github.com/catena-dev/catena/host/internal/relay"
)

// addAudit adds a stage's part to the audit event of its request, as far as the event's
// level, and what the stage does with the request, allow.
func addAudit(ctx context.Context, from relay.Sender, value string) {
	ac := audit.AuditContextFrom(ctx)
	if !ac.Enabled() {
		return
	}
	added, err := auditheader.Parse(value)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Stage sent a malformed audit header", "auditID", ac.AuditID())
		return
	}
	added, dropped := added.Restrict(from.Stage, from.Serves, from.Kubernetes)
	if !from.Kubernetes {
		room := bounds.AuditAnnotations
		for key, value := range ac.GetEventAnnotations() {
			room -= len(key) + len(value)
		}
		dropped = append(dropped, added.Cut(room)...)
	}
	if len(dropped) > 0 {
		klog.FromContext(ctx).V(2).Info("Left out of an audit event what the stage may not add", "stage", from.Stage,
			"serves", from.Serves, "leftOut", dropped, "auditID", ac.AuditID())
	}
	audit.AddAuditAnnotationsMap(ctx, added.Annotations)
	logRequest(ctx, added.ObjectRef, added.RequestObject)
	if added.ResponseStatus != nil || len(added.ResponseObject) > 0 {
		ac.LogResponseObject(added.ResponseStatus, unknown(added.ResponseObject))
	}
}

func unknown(raw json.RawMessage) *runtime.Unknown {
	if len(raw) == 0 {
		return nil
	}
	return &runtime.Unknown{Raw: raw, ContentType: runtime.ContentTypeJSON}
}

// addLatency adds durations that a stage has measured, NAME=NANOSECONDS separated by
// commas, to those of its request.
func addLatency(ctx context.Context, from relay.Sender, value string) {
	trackers, ok := request.LatencyTrackersFrom(ctx)
	if !ok {
		return
	}
	for item := range strings.SplitSeq(value, ",") {
		name, number, _ := strings.Cut(item, "=")
		nanoseconds, err := strconv.ParseInt(number, 10, 64)
		took := time.Duration(nanoseconds)
		if !from.Serves {
			took = min(took, from.Had)
		}
		if tracker := trackerOf(trackers, strings.TrimSpace(name)); err == nil && tracker != nil && took > 0 {
			tracker.TrackDuration(took)
		}
	}
}

func trackerOf(t *request.LatencyTrackers, name string) request.DurationTracker {
	switch name {
	case "mutating-webhook":
		return t.MutatingWebhookTracker
	case "validating-webhook":
		return t.ValidatingWebhookTracker
	case "authorization":
		return t.AuthorizationTracker
	case "etcd":
		return t.StorageTracker
	case "transform-response-object":
		return t.TransformTracker
	case "serialize-response-object":
		return t.SerializationTracker
	case "response-write":
		return t.ResponseWriteTracker
	case "decode-response-object":
		return t.DecodeTracker
	default:
		return nil
	}
}

// auditAttributes are the attributes of a request with another user.
type auditAttributes struct {
	authorizer.Attributes
	user user.Info
}

func (a auditAttributes) GetUser() user.Info { return a.user }

func eventUser(info authnv1.UserInfo) user.Info {
	extra := make(map[string][]string, len(info.Extra))
	for k, v := range info.Extra {
		extra[k] = v
	}
	return &user.DefaultInfo{Name: info.Username, UID: info.UID, Groups: info.Groups, Extra: extra}
}
