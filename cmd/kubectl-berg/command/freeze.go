package command

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/bulk"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/cluster"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
	"github.com/bergctf/berg-operator/internal/berg/view"
)

// frozenReport is the result of freeze and unfreeze.
type frozenReport struct {
	Challenges bulk.Report `json:"challenges"`
	Instances  bulk.Report `json:"instances"`
}

func (r *root) freeze() *cobra.Command {
	return r.freezing("freeze", "Stop the clock: no new instance starts, and no instance expires",
		`Stop the clock, for example while the network of an event is down. Challenges and live instances get
the annotation berg.norelect.ch/frozen. The operator then starts no new instance of a frozen Challenge
(it stays Pending), and a frozen instance does not expire. Players can continue, and instances can be
ended. Repeat the command to freeze what was created later.`,
		`  kubectl berg freeze -n berg
  kubectl berg freeze -A
  kubectl berg freeze --challenge guestbook`, true)
}

func (r *root) unfreeze() *cobra.Command {
	return r.freezing("unfreeze", "Restart the clock; every instance keeps the time that it had left",
		`Restart the clock. Every instance keeps the time that it had left when it was frozen: the command adds
the frozen time to spec.timeout and to spec.until in the same write. CHALLENGE_MAX_LIFETIME remains the upper
limit.`,
		`  kubectl berg unfreeze -n berg
  kubectl berg unfreeze -A`, false)
}

// freezing is the command of both: they differ in the direction only. They select by namespace and by
// Challenge, which both kinds of object have.
func (r *root) freezing(verb, short, long, example string, freeze bool) *cobra.Command {
	var s selection
	var m bulkOptions
	c := &cobra.Command{
		Use: verb, Short: short, Long: long, Example: example, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s.all = true
			if err := s.check(nil, true); err != nil {
				return err
			}
			return r.freezeAll(cmd.Context(), &s, m, verb, freeze)
		},
	}
	f := c.Flags()
	f.BoolVarP(&s.allNamespaces, "all-namespaces", "A", false, "Challenges and instances in all namespaces")
	f.StringVar(&s.challenge, "challenge", "", "only this Challenge and its instances")
	_ = c.RegisterFlagCompletionFunc("challenge", r.completeChallenges)
	m.add(c)
	return c
}

// freezeAll changes Challenges, and then instances. It does not go on to the instances if the Challenges ended early.
func (r *root) freezeAll(ctx context.Context, s *selection, m bulkOptions, verb string, freeze bool) error {
	c, err := r.open()
	if err != nil {
		return err
	}
	var list bergv1.ChallengeList
	if err := c.List(ctx, &list, s.options(c)...); err != nil {
		return cluster.Explain("list Challenges", err)
	}
	var challenges []*bergv1.Challenge
	for i := range list.Items {
		if s.challenge == "" || list.Items[i].Name == s.challenge {
			challenges = append(challenges, &list.Items[i])
		}
	}
	if s.challenge != "" && len(challenges) == 0 {
		return console.Errorf(console.ExitNotFound, "Challenge %s does not exist", s.challenge)
	}
	if m.dryRun {
		found, err := s.find(ctx, c)
		if err != nil {
			return err
		}
		return r.showDryRun(verb, qualifiedNames(changing(challenges, freeze)), qualifiedNames(changing(live(found), freeze)))
	}
	now := c.Now().UTC().Truncate(time.Second)
	var report frozenReport
	// Challenges first: then no new instance can start after the instances were listed, and an
	// instance that waited for the end of the freeze starts with its full time.
	report.Challenges, err = bulk.Run(ctx, c, r.Console, challenges, bulk.Action[*bergv1.Challenge]{
		Verb: verb + " challenges", Pace: m.pace, Timeout: m.timeout,
		Do: func(ctx context.Context, o *bergv1.Challenge) (bulk.Outcome, error) {
			return freezeChallenge(ctx, c, o, now, freeze)
		},
	})
	if err == nil {
		var found []*bergv1.ChallengeInstance
		if found, err = s.find(ctx, c); err == nil {
			report.Instances, err = bulk.Run(ctx, c, r.Console, live(found), bulk.Action[*bergv1.ChallengeInstance]{
				Verb: verb + " instances", Pace: m.pace, Timeout: m.timeout,
				Do: func(ctx context.Context, i *bergv1.ChallengeInstance) (bulk.Outcome, error) {
					return freezeInstance(ctx, c, i, now, freeze)
				},
			})
		}
	}
	return r.showFrozen(report, freeze, err)
}

// changing are the objects that freeze or unfreeze changes.
func changing[T client.Object](all []T, freeze bool) []T {
	return slices.DeleteFunc(slices.Clone(all), func(o T) bool { return view.IsFrozen(o) == freeze })
}

// showFrozen prints both reports, and returns the error of the run first.
func (r *root) showFrozen(report frozenReport, freeze bool, err error) error {
	done := "froze"
	if !freeze {
		done = "unfroze"
	}
	if r.Format != console.JSON {
		bulk.Print(r.Console, report.Challenges, done+" Challenges:")
		bulk.Print(r.Console, report.Instances, done+" instances:")
	} else if err := r.WriteJSON(report); err != nil {
		return err
	}
	const hint = "Repeat the command for the rest."
	if err := bulk.Error(report.Instances, hint, err); err != nil {
		return err
	}
	return bulk.Error(report.Challenges, hint, nil)
}

// freezeChallenge freezes or unfreezes a Challenge. A repeated run leaves the time of the first freeze unchanged. Unfreezing
// needs no time of the Challenge: it has no clock.
func freezeChallenge(ctx context.Context, c *cluster.Cluster, o *bergv1.Challenge, now time.Time, freeze bool) (bulk.Outcome, error) {
	if view.IsFrozen(o) == freeze {
		return bulk.Already, nil
	}
	var value any
	if freeze {
		value = now.Format(time.RFC3339)
	}
	return bulk.Outcome{}, annotate(ctx, c, o.DeepCopy(), value)
}

// annotate sets the annotation of exactly this object, or removes it.
func annotate(ctx context.Context, c *cluster.Cluster, o client.Object, value any) error {
	return patchObject(ctx, c, o, map[string]any{"metadata": map[string]any{
		"uid": o.GetUID(), "annotations": map[string]any{bergv1.AnnotationFrozen: value},
	}})
}

// freezeInstance stops the clock of an instance, or restarts it with the time that was left. An annotation that is no time is
// removed, and nothing is restored: the frozen time is not known.
func freezeInstance(ctx context.Context, c *cluster.Cluster, i *bergv1.ChallengeInstance, now time.Time, freeze bool) (bulk.Outcome, error) {
	since := i.Annotations[bergv1.AnnotationFrozen]
	switch {
	case (since != "") == freeze:
		return bulk.Already, nil
	case freeze:
		return bulk.Outcome{}, annotate(ctx, c, i.DeepCopy(), now.Format(time.RFC3339))
	}
	change := map[string]any{"metadata": map[string]any{"annotations": map[string]any{bergv1.AnnotationFrozen: nil}}}
	if from, err := time.Parse(time.RFC3339, since); err == nil {
		change["spec"] = restoreTime(i, from, now)
	}
	// With its resourceVersion: the times may have changed since it was read.
	return bulk.Outcome{}, patchLatest(ctx, c, i, change)
}

// restoreTime returns spec.timeout and spec.until of an instance that was frozen for a time, later by that time.
func restoreTime(i *bergv1.ChallengeInstance, from, now time.Time) map[string]any {
	spec := map[string]any{}
	if until := i.Spec.Until; until != nil && now.After(from) {
		spec["until"] = until.Add(now.Sub(from).Truncate(time.Second)).UTC().Format(time.RFC3339)
	}
	if lifetime, known := timeoutLifetime(i); known {
		if begin := view.TimeoutFrom(i); begin.After(from) {
			from = begin.Time
		}
		if stopped := now.Sub(from).Truncate(time.Second); stopped > 0 {
			spec["timeout"] = timeoutText(lifetime + stopped)
		}
	}
	return spec
}
