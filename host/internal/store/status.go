package store

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// WriteStatus writes how each server of etcd does, and its alarms.
func WriteStatus(ctx context.Context, o Options, w io.Writer) error {
	client, err := o.Connect()
	if err != nil {
		return err
	}
	defer client.Close()
	var errs []error
	for _, endpoint := range client.Endpoints() {
		s, err := client.Status(ctx, endpoint)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", endpoint, err))
			continue
		}
		fmt.Fprintf(w, "%s: version %s, member %x of cluster %x, leader %x, learner %t, revision %d, raft term %d, index %d, applied %d, database %d bytes, %d in use, quota %d, errors %q\n",
			endpoint, s.Version, s.Header.GetMemberId(), s.Header.GetClusterId(), s.Leader, s.IsLearner,
			s.Header.GetRevision(), s.RaftTerm, s.RaftIndex, s.RaftAppliedIndex,
			s.DbSize, s.DbSizeInUse, s.DbSizeQuota, s.Errors)
	}
	alarms, err := client.AlarmList(ctx)
	if err == nil {
		_, err = fmt.Fprintf(w, "alarms: %v\n", alarms.Alarms)
	}
	return errors.Join(append(errs, err)...)
}
