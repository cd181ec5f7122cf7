package command

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/bulk"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/cluster"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
	"github.com/bergctf/berg-operator/internal/berg/view"
)

func (r *root) end() *cobra.Command {
	var s selection
	var m bulkOptions
	var after, reason string
	var wait bool
	c := &cobra.Command{
		Use:   "end NAME...",
		Short: "End instances, now or later",
		Long: `End instances: the command sets spec.terminationReason, and the operator deletes them.

With --after the command shortens spec.timeout instead, and the operator ends the instances at that
time, whether or not this command still runs. Instances that end earlier are not changed. Use --node
before you drain a node.`,
		Example: `  kubectl berg end alice-guestbook
  kubectl berg end --all -A --after 30m      # the event ends in half an hour
  kubectl berg end --node worker-3 --yes && kubectl drain worker-3 --ignore-daemonsets
  kubectl berg end --challenge guestbook --pace 5`,
		ValidArgsFunction: r.completeInstances,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			if err := s.check(args, true); err != nil {
				return err
			}
			ended := bergv1.TerminationReason(reason)
			if ended != bergv1.TerminationAdmin && ended != bergv1.TerminationUserRequest {
				return console.Errorf(console.ExitUsage, "--reason %s: must be %s or %s", reason, bergv1.TerminationAdmin, bergv1.TerminationUserRequest)
			}
			to, found, end, err := r.liveAt(ctx, &s, after)
			if err != nil {
				return err
			}
			if !end.IsZero() {
				r.Notef("end at the latest: %s", end.Local().Format(dateWithZone))
			}
			if m.dryRun {
				return r.showDryRun("end", nil, qualifiedNames(found))
			}
			if len(found) > 0 && len(s.names) == 0 && !m.yes {
				question := fmt.Sprintf("End %d instances now?", len(found))
				if after != "" {
					question = fmt.Sprintf("End %d instances at %s or earlier?", len(found), end.Local().Format(dateWithZone))
				}
				if err := r.Confirm(question); err != nil {
					return err
				}
			}
			report, err := bulk.Run(ctx, to, r.Console, found, bulk.Action[*bergv1.ChallengeInstance]{
				Verb: "end", Pace: m.pace, Timeout: m.timeout,
				Do: func(ctx context.Context, i *bergv1.ChallengeInstance) (bulk.Outcome, error) {
					if end.IsZero() {
						return endNow(ctx, to, i, ended)
					}
					return endAt(ctx, to, i, end)
				},
			})
			if err == nil && wait && end.IsZero() && len(report.Failed) == 0 {
				err = r.waitGone(ctx, to, &s, found, m.timeout)
			}
			return bulk.Show(r.Console, report, "ended", "Repeat the command to end the rest.", err)
		},
	}
	s.add(c, r, true)
	m.add(c)
	m.addYes(c)
	c.Flags().StringVar(&after, "after", "", "end them later: after a duration such as 30m, or at a time of day such as 23:30")
	c.Flags().StringVar(&reason, "reason", string(bergv1.TerminationAdmin), "value of spec.terminationReason: AdminTermination or UserRequest")
	c.Flags().BoolVar(&wait, "wait", false, "wait until the instances are gone")
	_ = c.RegisterFlagCompletionFunc("reason", cobra.FixedCompletions([]string{string(bergv1.TerminationAdmin), string(bergv1.TerminationUserRequest)}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// endNow may be repeated: the same reason changes nothing. The operator deletes the instance.
func endNow(ctx context.Context, c *cluster.Cluster, i *bergv1.ChallengeInstance, reason bergv1.TerminationReason) (bulk.Outcome, error) {
	return bulk.Outcome{}, patch(ctx, c, i.DeepCopy(), "", map[string]any{"spec": map[string]any{"terminationReason": reason}})
}

// endAt shortens the timeout of an instance that would expire later. It does not compute from the timeout, so it needs no
// resourceVersion: a repeated write has the same value.
func endAt(ctx context.Context, c *cluster.Cluster, i *bergv1.ChallengeInstance, end time.Time) (bulk.Outcome, error) {
	if i.Status.StartedAt == nil {
		return bulk.Skip("not started, so it has no expiry: end it without --after"), nil
	}
	if view.IsFrozen(i) {
		return bulk.Skip("frozen: unfreeze it first, or end it without --after"), nil
	}
	if i.Status.ExpiresAt != nil && !i.Status.ExpiresAt.After(end) {
		return bulk.Already, nil
	}
	if view.TimeoutFrom(i).After(end) { // not ready yet, with CHALLENGE_TIMEOUT_FROM=ready: no timeout ends it so early
		return bulk.Outcome{}, patch(ctx, c, i.DeepCopy(), "", map[string]any{"spec": map[string]any{"until": metav1.NewTime(end)}})
	}
	left := max(time.Second, end.Sub(view.TimeoutFrom(i).Time).Truncate(time.Second))
	if i.Spec.Timeout == timeoutText(left) {
		return bulk.Already, nil
	}
	return bulk.Outcome{}, patch(ctx, c, i.DeepCopy(), "", map[string]any{"spec": map[string]any{"timeout": timeoutText(left)}})
}

// waitGone waits until the instances are gone. An instance that the first list no longer has is gone, too. Without the first
// list, it returns an error after the timeout.
func (r *root) waitGone(ctx context.Context, c *cluster.Cluster, s *selection, all []*bergv1.ChallengeInstance, timeout time.Duration) error {
	waiting, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	left := map[types.UID]bool{}
	for _, i := range all {
		left[i.UID] = true
	}
	if len(left) == 0 {
		return nil
	}
	progress := r.Progress(r.clock, "gone", len(left))
	defer progress.Finish()
	seen := map[types.UID]bool{}
	gone := func(uid types.UID) bool {
		if left[uid] {
			delete(left, uid)
			progress.Add(1)
		}
		return len(left) == 0
	}
	err := c.Follow(waiting, cluster.Follower{
		Changed: func(change cluster.Change) (bool, error) {
			seen[change.Instance.UID] = true
			return change.Gone && gone(change.Instance.UID), nil
		},
		Synced: func() (bool, error) {
			for uid := range left {
				if !seen[uid] {
					gone(uid)
				}
			}
			return len(left) == 0, nil
		},
		Lost: r.reportConnection, Timeout: timeout,
	}, s.options(c)...)
	return cluster.Explain(fmt.Sprintf("wait for the end of %d instances", len(left)), err)
}
