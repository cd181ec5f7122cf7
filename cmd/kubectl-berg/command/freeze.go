package command

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/bulk"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/cluster"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
)

// frozen is what freeze and thaw report.
type frozenReport struct {
	Challenges bulk.Report `json:"challenges"`
	Instances  bulk.Report `json:"instances"`
}

func (r *root) freeze() *cobra.Command {
	return r.freezing("freeze", "Stop the clock: no new instance starts, and none expires",
		`Stop the clock, as while the network of an event is down. Challenges and live instances get the
annotation berg.norelect.ch/frozen: the operator starts no new instance of such a Challenge, which waits
in Pending instead, and ends no such instance because its time is over. Players play on, and instances
can be ended. Whatever is created later is caught by the same command again.`,
		`  kubectl berg freeze -n berg
  kubectl berg freeze -A
  kubectl berg freeze --challenge guestbook`, true)
}

func (r *root) unfreeze() *cobra.Command {
	return r.freezing("thaw", "Let the clock go on; every instance keeps the time that it had left",
		`Let the clock go on. Every instance has the time left that it had when it was frozen: it goes into
spec.timeout, in the same write. CHALLENGE_MAX_LIFETIME still caps.`,
		`  kubectl berg thaw -n berg
  kubectl berg thaw -A`, false)
}

func (r *root) freezing(verb, short, long, example string, freeze bool) *cobra.Command {
	var s selection
	var m many
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
	f.BoolVarP(&s.allNamespaces, "all-namespaces", "A", false, "in all namespaces")
	f.StringVar(&s.challenge, "challenge", "", "only this Challenge and its instances")
	_ = c.RegisterFlagCompletionFunc("challenge", r.completeChallenges)
	m.add(c)
	return c
}

func (r *root) freezeAll(ctx context.Context, s *selection, m many, verb string, freeze bool) error {
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
		return console.Errorf(console.ExitNotFound, "there is no Challenge %s", s.challenge)
	}
	if m.dryRun {
		found, err := s.find(ctx, c)
		if err != nil {
			return err
		}
		return r.dryFreeze(verb, freeze, challenges, live(found))
	}
	at := c.Now().UTC().Truncate(time.Second)
	var report frozenReport
	// While they are frozen no new instance can slip in behind the list of instances; while they
	// thaw, one that was waiting starts with all of its time.
	report.Challenges, err = bulk.Run(ctx, c, r.Console, challenges, bulk.Action[*bergv1.Challenge]{
		Verb: verb + " challenges", Pace: m.pace, Timeout: m.timeout,
		Do: func(ctx context.Context, o *bergv1.Challenge) (bulk.Outcome, error) {
			return freezeChallenge(ctx, c, o, at, freeze)
		},
	})
	if err == nil {
		var found []*bergv1.ChallengeInstance
		if found, err = s.find(ctx, c); err == nil {
			report.Instances, err = bulk.Run(ctx, c, r.Console, live(found), bulk.Action[*bergv1.ChallengeInstance]{
				Verb: verb + " instances", Pace: m.pace, Timeout: m.timeout,
				Do: func(ctx context.Context, i *bergv1.ChallengeInstance) (bulk.Outcome, error) {
					return freezeInstance(ctx, c, i, at, freeze)
				},
			})
		}
	}
	return r.showFrozen(report, freeze, err)
}

// dryFreeze writes what would be done: those that are as they should be are left out.
func (r *root) dryFreeze(verb string, freeze bool, challenges []*bergv1.Challenge, instances []*bergv1.ChallengeInstance) error {
	type planned struct {
		bulk.Report
		Challenges []string `json:"challenges"`
		Instances  []string `json:"instances"`
	}
	p := planned{Challenges: changing(challenges, freeze), Instances: changing(instances, freeze)}
	p.Report = bulk.Report{Action: verb, DryRun: true, Total: len(p.Challenges) + len(p.Instances)}
	if r.Format == console.JSON {
		return r.WriteJSON(p)
	}
	for _, name := range p.Challenges {
		r.Printf("would %s Challenge %s\n", verb, name)
	}
	for _, name := range p.Instances {
		r.Printf("would %s instance %s\n", verb, name)
	}
	r.Printf("%d Challenges and %d instances; nothing was done\n", len(p.Challenges), len(p.Instances))
	return nil
}

// changing are the names of those that are not yet as they should be.
func changing[T client.Object](all []T, freeze bool) []string {
	names := []string{}
	for _, o := range all {
		if (o.GetAnnotations()[bergv1.AnnotationFrozen] != "") != freeze {
			names = append(names, o.GetNamespace()+"/"+o.GetName())
		}
	}
	return names
}

func (r *root) showFrozen(report frozenReport, freeze bool, err error) error {
	done := "froze"
	if !freeze {
		done = "thawed"
	}
	if r.Format == console.JSON {
		if err := r.WriteJSON(report); err != nil {
			return err
		}
	}
	const rest = "The same command does the rest."
	plain := *r.Console
	if r.Format == console.JSON {
		plain.Format, plain.Out, plain.Err = console.Text, discard{}, discard{}
	}
	first := bulk.Show(&plain, report.Challenges, done+" Challenges:", rest, nil)
	if second := bulk.Show(&plain, report.Instances, done+" instances:", rest, err); second != nil {
		return second
	}
	return first
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

func freezeChallenge(ctx context.Context, c *cluster.Cluster, o *bergv1.Challenge, at time.Time, freeze bool) (bulk.Outcome, error) {
	is := o.Annotations[bergv1.AnnotationFrozen] != ""
	if is == freeze {
		return bulk.Already, nil
	}
	var value any
	if freeze {
		value = at.Format(time.RFC3339)
	}
	return bulk.Outcome{}, annotate(ctx, c, o.DeepCopy(), value)
}

// annotate sets the annotation of exactly this object, or takes it off.
func annotate(ctx context.Context, c *cluster.Cluster, o client.Object, value any) error {
	return patchObject(ctx, c, o, map[string]any{"metadata": map[string]any{
		"uid": o.GetUID(), "annotations": map[string]any{bergv1.AnnotationFrozen: value},
	}})
}

// freezeInstance stops the clock of one, or lets it go on with the time that was left.
func freezeInstance(ctx context.Context, c *cluster.Cluster, i *bergv1.ChallengeInstance, at time.Time, freeze bool) (bulk.Outcome, error) {
	since := i.Annotations[bergv1.AnnotationFrozen]
	switch {
	case (since != "") == freeze:
		return bulk.Already, nil
	case freeze:
		return bulk.Outcome{}, annotate(ctx, c, i.DeepCopy(), at.Format(time.RFC3339))
	}
	change := map[string]any{"metadata": map[string]any{"annotations": map[string]any{bergv1.AnnotationFrozen: nil}}}
	began, err := time.Parse(time.RFC3339, since)
	if has, known := lives(i); known && err == nil {
		if i.Status.StartedAt.After(began) {
			began = i.Status.StartedAt.Time
		}
		if stood := at.Sub(began).Truncate(time.Second); stood > 0 {
			change["spec"] = map[string]any{"timeout": timeoutText(has + stood)}
		}
	}
	// With the lock: in between somebody may have given it more time.
	return bulk.Outcome{}, patchLatest(ctx, c, i, change)
}
