package command

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/bulk"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/cluster"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
)

// many are the options of what is done to many.
type many struct {
	dryRun, yes bool
	pace        float64
	timeout     time.Duration
}

func (m *many) add(c *cobra.Command) {
	f := c.Flags()
	f.BoolVar(&m.dryRun, "dry-run", false, "say what would be done, and do nothing")
	f.Float64Var(&m.pace, "pace", 0, "how many in a second at most; 0: as fast as the API server takes it")
	f.DurationVar(&m.timeout, "patience", 5*time.Minute, "how long to go on without an answer of the API server")
}

func (m *many) addYes(c *cobra.Command) {
	c.Flags().BoolVarP(&m.yes, "yes", "y", false, "do not ask")
}

// plannedReport is that of what would be done.
func plannedReport(verb string, items []*bergv1.ChallengeInstance) bulk.Report {
	return bulk.Report{Action: verb, DryRun: true, Total: len(items)}
}

// dry writes what would be done.
func (r *root) dry(verb, would string, items []*bergv1.ChallengeInstance) error {
	if r.Format == console.JSON {
		type planned struct {
			bulk.Report
			Instances []string `json:"instances"`
		}
		p := planned{Report: plannedReport(verb, items), Instances: []string{}}
		for _, i := range items {
			p.Instances = append(p.Instances, i.Namespace+"/"+i.Name)
		}
		return r.WriteJSON(p)
	}
	for _, i := range items {
		r.Printf("would %s %s/%s\n", would, i.Namespace, i.Name)
	}
	r.Printf("%d instances; nothing was done\n", len(items))
	return nil
}

// patch merges into exactly this instance. With a version it fails if somebody was faster.
func patch(ctx context.Context, c *cluster.Cluster, i *bergv1.ChallengeInstance, version string, change map[string]any) error {
	metadata, _ := change["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
	}
	metadata["uid"] = i.UID
	if version != "" {
		metadata["resourceVersion"] = version
	}
	change["metadata"] = metadata
	return patchObject(ctx, c, i, change)
}

// patchObject merges into an object, of which the change may name the UID. That another one has
// its name by now means that it is gone.
func patchObject(ctx context.Context, c *cluster.Cluster, o client.Object, change map[string]any) error {
	body, err := json.Marshal(change)
	if err != nil {
		return err
	}
	uid := o.GetUID()
	err = c.Patch(ctx, o, client.RawPatch(types.MergePatchType, body))
	if !apierrors.IsConflict(err) {
		return err
	}
	latest := o.DeepCopyObject().(client.Object)
	if read := c.Get(ctx, client.ObjectKeyFromObject(o), latest); read == nil && latest.GetUID() != uid {
		return apierrors.NewNotFound(bergv1.GroupVersion.WithResource("challengeinstances").GroupResource(), o.GetName())
	}
	return err
}

func (r *root) end() *cobra.Command {
	var s selection
	var m many
	var after, reason string
	var wait bool
	c := &cobra.Command{
		Use:   "end NAME...",
		Short: "End instances, now or after a time",
		Long: `End instances: the reason is left in spec.terminationReason, and the operator deletes them.

With --after they get a time instead: the operator ends them then, whether this command still runs or
not; those that end before anyway are left alone. --node takes those of a node, before it is drained.`,
		Example: `  kubectl berg end alice-guestbook
  kubectl berg end --all -A --after 30m      # the event is over in half an hour
  kubectl berg end --node worker-3 --yes && kubectl drain worker-3 --ignore-daemonsets
  kubectl berg end --challenge guestbook --pace 5`,
		ValidArgsFunction: r.completeInstances,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			if err := s.check(args, true); err != nil {
				return err
			}
			why := bergv1.TerminationReason(reason)
			if why != bergv1.TerminationAdmin && why != bergv1.TerminationUserRequest {
				return console.Errorf(console.ExitUsage, "--reason %s: must be %s or %s", reason, bergv1.TerminationAdmin, bergv1.TerminationUserRequest)
			}
			if err := readableTime(after, r.clock.Now()); err != nil {
				return err
			}
			to, err := r.open()
			if err != nil {
				return err
			}
			found, err := s.find(ctx, to)
			if err != nil {
				return err
			}
			found = live(found)
			var at time.Time
			if after != "" {
				if at, err = pointInTime(after, to.Now()); err != nil {
					return err
				}
			}
			if m.dryRun {
				return r.dry("end", "end", found)
			}
			if len(found) > 0 && len(s.names) == 0 && !m.yes {
				question := fmt.Sprintf("End %d instances now?", len(found))
				if after != "" {
					question = fmt.Sprintf("End %d instances at %s, or before?", len(found), at.Local().Format(time.DateTime))
				}
				if err := r.Confirm(question); err != nil {
					return err
				}
			}
			report, err := bulk.Run(ctx, to, r.Console, found, bulk.Action[*bergv1.ChallengeInstance]{
				Verb: "end", Pace: m.pace, Timeout: m.timeout,
				Do: func(ctx context.Context, i *bergv1.ChallengeInstance) (bulk.Outcome, error) {
					if at.IsZero() {
						return endNow(ctx, to, i, why)
					}
					return endAt(ctx, to, i, at)
				},
			})
			if err == nil && wait && at.IsZero() && len(report.Failed) == 0 {
				err = r.awaitGone(ctx, to, &s, found, m.timeout)
			}
			return bulk.Show(r.Console, report, "ended", "The same command ends the rest.", err)
		},
	}
	s.add(c, r, true)
	m.add(c)
	m.addYes(c)
	c.Flags().StringVar(&after, "after", "", "not now but after this time, as in 30m, or at an hour, as in 23:30")
	c.Flags().StringVar(&reason, "reason", string(bergv1.TerminationAdmin), "what spec.terminationReason says: AdminTermination or UserRequest")
	c.Flags().BoolVar(&wait, "wait", false, "wait until they are gone")
	_ = c.RegisterFlagCompletionFunc("reason", cobra.FixedCompletions([]string{string(bergv1.TerminationAdmin), string(bergv1.TerminationUserRequest)}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// readableTime looks whether a point in time that may be left out can be understood, before anybody
// is asked; what it means is a question to the cluster's clock.
func readableTime(text string, now time.Time) error {
	if text == "" {
		return nil
	}
	_, err := pointInTime(text, now)
	return err
}

// pointInTime reads a time from now, or the next time that it is an hour.
func pointInTime(text string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil && d > 0 {
		return now.Add(d), nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil && t.After(now) {
		return t, nil
	}
	if t, err := time.Parse("15:04", text); err == nil {
		local := now.Local()
		at := time.Date(local.Year(), local.Month(), local.Day(), t.Hour(), t.Minute(), 0, 0, time.Local)
		if !at.After(now) {
			at = at.AddDate(0, 0, 1)
		}
		return at, nil
	}
	return time.Time{}, console.Errorf(console.ExitUsage, "%q: must be a time from now such as 30m, an hour such as 23:30, or a time to come such as 2030-01-31T18:00:00Z", text)
}

func endNow(ctx context.Context, c *cluster.Cluster, i *bergv1.ChallengeInstance, reason bergv1.TerminationReason) (bulk.Outcome, error) {
	return bulk.Outcome{}, patch(ctx, c, i.DeepCopy(), "", map[string]any{"spec": map[string]any{"terminationReason": reason}})
}

// endAt shortens the time of one that would live longer.
func endAt(ctx context.Context, c *cluster.Cluster, i *bergv1.ChallengeInstance, at time.Time) (bulk.Outcome, error) {
	if i.Status.StartedAt == nil {
		return bulk.Skip("its time does not run yet: end it without --after"), nil
	}
	if i.Annotations[bergv1.AnnotationFrozen] != "" {
		return bulk.Skip("frozen: thaw it first, or end it without --after"), nil
	}
	if i.Status.ExpiresAt != nil && !i.Status.ExpiresAt.After(at) {
		return bulk.Already, nil
	}
	left := at.Sub(i.Status.StartedAt.Time).Truncate(time.Second)
	if left < time.Second {
		left = time.Second
	}
	if i.Spec.Timeout == timeoutText(left) {
		return bulk.Already, nil
	}
	return bulk.Outcome{}, patch(ctx, c, i.DeepCopy(), "", map[string]any{"spec": map[string]any{"timeout": timeoutText(left)}})
}

// awaitGone waits until the resources are gone.
func (r *root) awaitGone(ctx context.Context, c *cluster.Cluster, s *selection, all []*bergv1.ChallengeInstance, patience time.Duration) error {
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
		Begun: func() (bool, error) {
			for uid := range left {
				if !seen[uid] {
					gone(uid)
				}
			}
			return len(left) == 0, nil
		},
		Lost: r.tellLost, Timeout: patience,
	}, s.options(c)...)
	return cluster.Explain(fmt.Sprintf("wait for the end of %d instances", len(left)), err)
}
