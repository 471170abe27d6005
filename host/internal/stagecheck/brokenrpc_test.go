//go:build linux

package stagecheck

import (
	"context"
	"errors"
	"strconv"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// Describe and the methods of this file are those of the service, but for the mode.
func (b *broken) Describe(ctx context.Context, r *stagev1.DescribeRequest) (*stagev1.DescribeResponse, error) {
	d, err := b.Service.Describe(ctx, r)
	b.described++
	switch {
	case b.mode == "name":
		d.Name = "other"
	case b.mode == "describe":
		d.Version = strconv.Itoa(b.described)
	case b.mode == "standby":
		d.Standby = true
	}
	return d, err
}

func (b *broken) ValidateConfig(ctx context.Context, r *stagev1.ValidateConfigRequest) (*stagev1.ValidateConfigResponse, error) {
	if b.mode == "config-good" {
		return &stagev1.ValidateConfigResponse{Problems: []*stagev1.ConfigProblem{{Key: "a", Message: "is wrong"}}}, nil
	}
	if b.mode == "config-silent" {
		if string(r.GetConfig()) != nonsense {
			return &stagev1.ValidateConfigResponse{}, nil
		}
		return &stagev1.ValidateConfigResponse{Problems: []*stagev1.ConfigProblem{{Key: "a"}}}, nil
	}
	return b.Service.ValidateConfig(ctx, r)
}

func (b *broken) Configure(ctx context.Context, r *stagev1.ConfigureRequest) (*stagev1.ConfigureResponse, error) {
	if b.mode == "standby" {
		r.Standby = false
	}
	if b.mode == "once" && b.env != nil {
		return &stagev1.ConfigureResponse{}, nil
	}
	return b.Service.Configure(ctx, r)
}

func (b *broken) Watch(r *stagev1.WatchRequest, stream stagev1.Stage_WatchServer) error {
	if b.mode == "watch-silent" {
		<-stream.Context().Done()
		return stream.Context().Err()
	}
	return b.Service.Watch(r, stream)
}

func (b *broken) GatherMetrics(r *stagev1.GatherMetricsRequest, stream stagev1.Stage_GatherMetricsServer) error {
	text := "hello 1\n"
	switch b.mode {
	case "metrics":
		text = "hello{ 1\n"
	case "metrics-name":
		text = "catena_hello 1\n"
	case "metrics-twice":
		text = "hello{a=\"b\"} 1\nhello{a=\"b\"} 2\n"
	}
	return stream.Send(&stagev1.GatherMetricsResponse{Text: []byte(text)})
}

func (b *broken) PrepareRun(ctx context.Context, r *stagev1.PrepareRunRequest) (*stagev1.PrepareRunResponse, error) {
	switch b.mode {
	case "prepare":
		return nil, errors.New("no luck")
	case "unserved":
		return &stagev1.PrepareRunResponse{Claims: []*stagev1.Claim{{Path: "/test", Match: stagev1.Claim_PREFIX}}}, nil
	}
	resp, err := b.Service.PrepareRun(ctx, r)
	if err != nil {
		return nil, err
	}
	switch b.mode {
	case "claim-path":
		resp.Claims = append(resp.Claims, &stagev1.Claim{Path: "relative", Match: stagev1.Claim_EXACT})
	case "claim-match":
		resp.Claims = append(resp.Claims, &stagev1.Claim{Path: "/other", Match: 9})
	case "claim-hooks":
		resp.PostStartHooks = append(resp.PostStartHooks, "start", "start")
	case "watch":
		resp.Claims = append(resp.Claims, &stagev1.Claim{Path: "/other", Match: stagev1.Claim_EXACT})
	}
	return resp, err
}

func (b *broken) Notify(ctx context.Context, r *stagev1.NotifyRequest) (*stagev1.NotifyResponse, error) {
	if b.mode == "optional" {
		return nil, errors.New("what is that?")
	}
	return b.Service.Notify(ctx, r)
}

func (b *broken) CheckHealth(ctx context.Context, r *stagev1.CheckHealthRequest) (*stagev1.CheckHealthResponse, error) {
	if b.mode == "health" {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if b.mode == "health-names" {
		r.Names = nil
	}
	resp, err := b.Service.CheckHealth(ctx, r)
	if b.mode == "health-unknown" {
		for _, result := range resp.GetResults() {
			result.Error = ""
		}
	}
	return resp, err
}

func (b *broken) Drain(ctx context.Context, r *stagev1.DrainRequest) (*stagev1.DrainResponse, error) {
	if b.mode == "drain" {
		return &stagev1.DrainResponse{Running: 1}, nil
	}
	resp, err := b.Service.Drain(ctx, r)
	if b.mode == "drain-closes" {
		_ = b.data.Close()
	}
	return resp, err
}
