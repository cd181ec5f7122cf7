package command

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/bulk"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/cluster"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
)

// annotationExtended holds the ID of the extension that an instance got last, so that one that is
// repeated is not added twice.
const annotationExtended = "kubectl.berg.norelect.ch/extended"

func (r *root) extend() *cobra.Command {
	var s selection
	var m many
	var id, until string
	c := &cobra.Command{
		Use:   "extend TIME NAME... | extend TIME --all | extend --until 23:30 --all",
		Short: "Give instances more time",
		Long: `Give instances more time: TIME is added to what they have. With --until they live until then, and
those that live longer anyway are left alone.

A run marks what it has extended with its ID. Where one was broken off, the same command with --id
and that ID does the rest, and adds nothing twice. The operator's CHALLENGE_MAX_LIFETIME still caps.`,
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
			var by time.Duration
			var err error
			if until == "" {
				if len(args) == 0 {
					return console.Errorf(console.ExitUsage, "by how much? As in: kubectl berg extend 30m --all")
				}
				if by, err = lifetime(args[0]); err != nil {
					return err
				}
				args = args[1:]
			}
			if err := s.check(args, true); err != nil {
				return err
			}
			if err := readableTime(until, r.clock.Now()); err != nil {
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
			if m.dryRun {
				return r.dry("extend", "extend", found)
			}
			if id == "" {
				id = utilrand.String(8)
			}
			var at time.Time
			if until != "" {
				if at, err = pointInTime(until, to.Now()); err != nil {
					return err
				}
			}
			report, err := bulk.Run(ctx, to, r.Console, found, bulk.Action[*bergv1.ChallengeInstance]{
				Verb: "extend", Pace: m.pace, Timeout: m.timeout,
				Do: func(ctx context.Context, i *bergv1.ChallengeInstance) (bulk.Outcome, error) {
					return extendOne(ctx, to, i, by, at, id)
				},
			})
			again := fmt.Sprintf("The same command with --id %s extends the rest, and none twice.", id)
			if !at.IsZero() {
				again = "The same command extends the rest."
			} else {
				report.ID = id
			}
			return bulk.Show(r.Console, report, "extended", again, err)
		},
	}
	s.add(c, r, true)
	m.add(c)
	c.Flags().StringVar(&id, "id", "", "ID of a run that was broken off")
	c.Flags().StringVar(&until, "until", "", "let them live until this hour, as in 23:30, or for this long from now")
	c.MarkFlagsMutuallyExclusive("until", "id")
	return c
}

// extendOne adds to the time of one. It is safe to repeat: the ID goes with the time in one write,
// which fails if somebody has written in between.
func extendOne(ctx context.Context, c *cluster.Cluster, i *bergv1.ChallengeInstance, by time.Duration, until time.Time, id string) (bulk.Outcome, error) {
	if until.IsZero() && i.Annotations[annotationExtended] == id {
		return bulk.Already, nil
	}
	has, known := lives(i)
	switch {
	case !known:
		return bulk.Skip("not started: its time does not run yet"), nil
	case !until.IsZero() && i.Annotations[bergv1.AnnotationFrozen] != "":
		return bulk.Skip("frozen: it does not expire; thaw it first"), nil
	case !until.IsZero():
		by = until.Sub(i.Status.StartedAt.Time).Truncate(time.Second) - has
		if by < time.Second {
			return bulk.Already, nil
		}
	}
	change := map[string]any{"spec": map[string]any{"timeout": timeoutText(has + by)}}
	if until.IsZero() {
		change["metadata"] = map[string]any{"annotations": map[string]any{annotationExtended: id}}
	}
	return bulk.Outcome{}, patchLatest(ctx, c, i, change)
}

// patchLatest writes what was calculated from an instance as it was read. If that was overtaken,
// it is read anew: the error says that there was a conflict, and the caller calculates again.
func patchLatest(ctx context.Context, c *cluster.Cluster, i *bergv1.ChallengeInstance, change map[string]any) error {
	err := patch(ctx, c, i.DeepCopy(), i.ResourceVersion, change)
	if err == nil {
		return nil
	}
	// Whether it was written is not known after a lost answer: the next look tells.
	latest := &bergv1.ChallengeInstance{}
	if getErr := c.Get(ctx, client.ObjectKeyFromObject(i), latest); getErr == nil {
		if latest.UID == i.UID {
			*i = *latest
		}
	}
	return err
}

// lives is how long an instance lives from its start; known is false before that.
func lives(i *bergv1.ChallengeInstance) (d time.Duration, known bool) {
	if i.Status.StartedAt == nil {
		return 0, false
	}
	// The spec goes first: the status may not have followed yet.
	if own, err := time.ParseDuration(i.Spec.Timeout); err == nil && own > 0 {
		return own, true
	}
	if i.Status.ExpiresAt != nil {
		return i.Status.ExpiresAt.Sub(i.Status.StartedAt.Time), true
	}
	// Of one that is frozen: the default that it was started with.
	var pinned struct {
		Defaults struct {
			Timeout metav1.Duration `json:"timeout"`
		} `json:"defaults"`
	}
	if raw := i.Status.ChallengeSnapshot; raw != nil && json.Unmarshal(raw.Raw, &pinned) == nil {
		d = pinned.Defaults.Timeout.Duration
	}
	return d, d > 0
}
