package command

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilrand "k8s.io/apimachinery/pkg/util/rand"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/bulk"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/cluster"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
	"github.com/bergctf/berg-operator/internal/berg/view"
)

// annotationExtended has the ID of the last extension of an instance, so that a repeated command does
// not extend it twice.
const annotationExtended = "kubectl.berg.norelect.ch/extended"

// dateWithZone is the format of a point in time.
const dateWithZone = "2006-01-02 15:04:05 -07:00"

func (r *root) extend() *cobra.Command {
	var s selection
	var m bulkOptions
	var id, until string
	c := &cobra.Command{
		Use:   "extend TIME NAME... | extend TIME --all | extend --until 23:30 --all",
		Short: "Give instances more time",
		Long: `Give instances more time: TIME is added to their timeout. With --until they expire at that time, and
instances that expire later are not changed. A spec.until that is earlier moves with it.

Each run has an ID and stores it on the instances that it extends. If a run is interrupted, repeat the
command with --id and that ID: it extends the rest, and no instance twice. The operator's
CHALLENGE_MAX_LIFETIME remains the upper limit.`,
		Example: `  kubectl berg extend 30m alice-guestbook
  kubectl berg extend 30m --all -A
  kubectl berg extend 30m -l team=red
  kubectl berg extend --until 23:30 --challenge guestbook`,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 0 && until == "" {
				return []string{"15m", "30m", "1h", "2h"}, cobra.ShellCompDirectiveNoFileComp
			}
			return r.completeInstances(cmd, args, prefix)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			var extension time.Duration
			var err error
			if until == "" {
				if len(args) == 0 {
					return console.Errorf(console.ExitUsage, "TIME is missing, as in: kubectl berg extend 30m --all")
				}
				if extension, err = parseLifetime(args[0]); err != nil {
					return err
				}
				args = args[1:]
			}
			if err := s.check(args, true); err != nil {
				return err
			}
			to, found, end, err := r.liveAt(ctx, &s, until)
			if err != nil {
				return err
			}
			if !end.IsZero() { // the expiry may be tomorrow, and the user in another time zone
				r.Notef("new expiry: %s", end.Local().Format(dateWithZone))
			}
			if m.dryRun {
				return r.showDryRun("extend", nil, qualifiedNames(found))
			}
			if id == "" {
				id = utilrand.String(8)
			}
			report, err := bulk.Run(ctx, to, r.Console, found, bulk.Action[*bergv1.ChallengeInstance]{
				Verb: "extend", Pace: m.pace, Timeout: m.timeout,
				Do: func(ctx context.Context, i *bergv1.ChallengeInstance) (bulk.Outcome, error) {
					return extendOne(ctx, to, i, extension, end, id)
				},
			})
			hint := fmt.Sprintf("Repeat the command with --id %s: it extends the rest, and no instance twice.", id)
			if !end.IsZero() {
				hint = "Repeat the command to extend the rest."
			} else {
				report.ID = id
			}
			return bulk.Show(r.Console, report, "extended", hint, err)
		},
	}
	s.add(c, r, true)
	m.add(c)
	c.Flags().StringVar(&id, "id", "", "ID of an interrupted run, to extend the rest")
	c.Flags().StringVar(&until, "until", "", "new expiry: a time of day such as 23:30, or a duration from now such as 2h")
	c.MarkFlagsMutuallyExclusive("until", "id")
	return c
}

// extendOne extends one instance. It is safe to repeat: it writes the ID together with the timeout, and
// the write fails if the instance has changed since. With a point in time no ID is necessary: the expiry says whether it is done.
// i is replaced by the latest version after an error.
func extendOne(ctx context.Context, c *cluster.Cluster, i *bergv1.ChallengeInstance, extension time.Duration, until time.Time, id string) (bulk.Outcome, error) {
	if until.IsZero() && i.Annotations[annotationExtended] == id {
		return bulk.Already, nil
	}
	lifetime, known := instanceLifetime(i)
	switch {
	case !known:
		return bulk.Skip("not started: its timeout does not run yet"), nil
	case !until.IsZero() && view.IsFrozen(i):
		return bulk.Skip("frozen, so it does not expire: unfreeze it first"), nil
	case !until.IsZero():
		from := view.TimeoutFrom(i)
		if i.Status.ReadyAt == nil {
			from = i.Status.StartedAt // the timeout may begin later, then the instance ends later than asked for, never earlier
		}
		extension = until.Sub(from.Time).Truncate(time.Second) - lifetime
		if extension < time.Second {
			return bulk.Already, nil
		}
	}
	spec := map[string]any{"timeout": timeoutText(lifetime + extension)}
	if end := view.TimeoutFrom(i).Add(lifetime + extension); i.Spec.Until != nil && i.Spec.Until.Time.Before(end) {
		spec["until"] = metav1.NewTime(end)
	}
	change := map[string]any{"spec": spec}
	if until.IsZero() {
		change["metadata"] = map[string]any{"annotations": map[string]any{annotationExtended: id}}
	}
	return bulk.Outcome{}, patchLatest(ctx, c, i, change)
}
