package command

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/bulk"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/cluster"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/preview"
)

type rolloutOptions struct {
	many
	atOnce, stopAfter int
}

func (r *root) rollout() *cobra.Command {
	var s selection
	o := rolloutOptions{}
	c := &cobra.Command{
		Use:   "rollout CHALLENGE",
		Short: "Bring live instances to their edited Challenge, a few at a time, after a preview",
		Long: `Bring the live instances of a Challenge to what it says now. First it shows whose pods restart, and
asks. Then it goes on by so many at a time: the next one begins when one is well again. Where some are
not well afterwards it stops. The same command goes on with those that are left.`,
		Example: `  kubectl berg rollout guestbook --dry-run
  kubectl berg rollout guestbook --at-once 5 --yes`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: one(r.completeChallenges),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.atOnce < 1 || o.stopAfter < 1 {
				return console.Fail(console.ExitUsage, "--at-once and --stop-after must be 1 or more")
			}
			s.challenge = args[0]
			if err := s.check(nil, true); err != nil {
				return err
			}
			return r.rollOut(cmd.Context(), &s, o)
		},
	}
	f := c.Flags()
	f.BoolVarP(&s.allNamespaces, "all-namespaces", "A", false, "instances in all namespaces")
	f.StringVarP(&s.selector, "selector", "l", "", "only instances with these labels")
	o.add(c)
	o.addYes(c)
	f.IntVar(&o.atOnce, "at-once", 10, "how many may be not well again at a time")
	f.IntVar(&o.stopAfter, "stop-after", 3, "stop when so many are broken by it")
	return c
}

// group is what happens to some instances alike.
type previewGroup struct {
	Summary   string          `json:"summary"`
	Instances []string        `json:"instances"`
	Preview   preview.Preview `json:"preview"`
}

func (r *root) rollOut(ctx context.Context, s *selection, o rolloutOptions) error {
	c, err := r.open()
	if err != nil {
		return err
	}
	found, err := s.find(ctx, c)
	if err != nil {
		return err
	}
	found = slices.DeleteFunc(live(found), func(i *bergv1.ChallengeInstance) bool {
		return !meta.IsStatusConditionFalse(i.Status.Conditions, bergv1.ConditionUpToDate) || underway(i)
	})
	challenges := map[types.NamespacedName]*bergv1.Challenge{}
	var groups []*previewGroup
	bySummary := map[string]*previewGroup{}
	pods := 0
	restarting := map[types.UID]bool{}
	for _, i := range found {
		p, err := r.previewOf(ctx, c, i, s.challenge, challenges)
		if err != nil {
			return err
		}
		pods += p.Restarting()
		restarting[i.UID] = p.Restarting() > 0 || p.Settings
		text := p.Summary()
		if bySummary[text] == nil {
			bySummary[text] = &previewGroup{Summary: text, Preview: p}
			groups = append(groups, bySummary[text])
		}
		bySummary[text].Instances = append(bySummary[text].Instances, i.Namespace+"/"+i.Name)
	}
	if r.Format == console.JSON && o.dryRun {
		if groups == nil {
			groups = []*previewGroup{}
		}
		return r.WriteJSON(map[string]any{"action": "rollout", "dryRun": true, "challenge": s.challenge, "total": len(found), "pods": pods, "groups": groups})
	}
	if r.Format != console.JSON {
		for _, g := range groups {
			r.Printf("%s: %s\n", r.Paint(console.Bold, fmt.Sprintf("%d instances", len(g.Instances))), console.Clean(g.Summary))
		}
	}
	switch {
	case len(found) == 0 && r.Format != console.JSON:
		r.Printf("All instances of %s are up to date.\n", s.challenge)
		return nil
	case o.dryRun:
		r.Printf("%d pods restart; nothing was done\n", pods)
		return nil
	case !o.yes && len(found) > 0:
		if err := r.Confirm(fmt.Sprintf("Roll out to %d instances (%d pods restart)?", len(found), pods)); err != nil {
			return err
		}
	}
	return r.rollOutTo(ctx, c, s, found, restarting, o)
}

// underway reports whether a rollout was asked for that is not carried out yet.
func underway(i *bergv1.ChallengeInstance) bool {
	asked := i.Annotations[bergv1.AnnotationRollout]
	return asked != "" && asked != i.Status.ObservedRollout
}

func (r *root) previewOf(ctx context.Context, c *cluster.Cluster, i *bergv1.ChallengeInstance, name string, known map[types.NamespacedName]*bergv1.Challenge) (preview.Preview, error) {
	at := key(cmp.Or(i.Spec.ChallengeRef.Namespace, i.Namespace), name)
	challenge := known[at]
	if challenge == nil {
		found, err := findChallenge(ctx, c, i.Spec.ChallengeRef.Namespace, name)
		if err != nil {
			return preview.Preview{}, err
		}
		if found == nil {
			return preview.Preview{}, console.Fail(console.ExitForbidden, "you may not read the Challenge %s, and so there is no preview", name)
		}
		challenge, known[at] = found, found
	}
	p, err := preview.Of(i, challenge)
	if err != nil {
		return p, console.Fail(console.ExitFailed, "instance %s/%s: %w", i.Namespace, i.Name, err)
	}
	return p, nil
}

const (
	// settling is how long instances may take until they are well again.
	settling = time.Minute
	// steady is for how long one that restarts pods must look well: its status says so until the
	// old pods are gone, and again before a new one has crashed.
	steady = 5 * time.Second
	// look is how often the time is looked at.
	look = 500 * time.Millisecond
)

// progress is what is known of one to which was rolled out.
type progress struct {
	restarts bool
	// since is when it was seen with the rollout, or when it became well after that.
	since         time.Time
	adopted, well bool
	broken        string
}

// pacer knows which of those that were begun are not well yet.
type pacer struct {
	options rolloutOptions
	id      string
	now     func() time.Time

	mu     sync.Mutex
	begun  map[types.UID]*progress
	change chan struct{}
}

func (p *pacer) begin(uid types.UID, restarts bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begun[uid] = &progress{restarts: restarts}
}

// see takes up what became of one.
func (p *pacer) see(i *bergv1.ChallengeInstance, gone bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	seen := p.begun[i.UID]
	if seen == nil {
		return
	}
	if gone {
		delete(p.begun, i.UID)
		p.wake()
		return
	}
	if !seen.adopted {
		seen.adopted = i.Status.ObservedRollout == p.id
		seen.since = p.now()
	}
	healthy := meta.IsStatusConditionTrue(i.Status.Conditions, bergv1.ConditionHealthy) && i.Status.Phase == bergv1.PhaseRunning
	if healthy && !seen.well {
		seen.since = p.now()
	}
	seen.well = healthy
	seen.broken = ""
	if seen.adopted && !healthy {
		if why := problemOf(i); why != "" && why != bergv1.ReasonPodsNotReady && why != bergv1.ReasonStarting {
			seen.broken = why
		}
	}
	p.wake()
}

func (p *pacer) wake() {
	select {
	case p.change <- struct{}{}:
	default:
	}
}

// count says how many are not well yet, and how many are broken, and by what.
func (p *pacer) count() (busy, broken int, why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	for _, seen := range p.begun {
		if seen.broken != "" {
			broken, why = broken+1, seen.broken
		}
		if !seen.adopted || !seen.well || seen.restarts && now.Sub(seen.since) < steady {
			busy++
		}
	}
	return busy, broken, why
}

// halt waits until a further one may begin; it ends a rollout that breaks instances.
func (p *pacer) halt(ctx context.Context) error {
	for {
		busy, broken, why := p.count()
		switch {
		case broken >= p.options.stopAfter:
			return console.Fail(console.ExitProblem, "stopped: %d instances are not well after it (%s): kubectl berg why --all says more", broken, why)
		case busy < p.options.atOnce:
			return nil
		}
		if err := p.wait(ctx); err != nil {
			return err
		}
	}
}

// settle waits until the last ones are well, or clearly are not.
func (p *pacer) settle(ctx context.Context) error {
	deadline := p.now().Add(settling)
	for {
		busy, broken, why := p.count()
		switch {
		case busy == 0:
			return nil
		case broken == busy:
			return console.Fail(console.ExitProblem, "%d instances are not well after it (%s): kubectl berg why --all says more", broken, why)
		case p.now().After(deadline):
			return console.Fail(console.ExitTimeout, "%d instances are not well again yet: kubectl berg why --all says more", busy)
		}
		if err := p.wait(ctx); err != nil {
			return err
		}
	}
}

func (p *pacer) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-p.change:
	case <-time.After(look):
	}
	return nil
}

func (r *root) rollOutTo(ctx context.Context, c *cluster.Cluster, s *selection, found []*bergv1.ChallengeInstance, restarting map[types.UID]bool, o rolloutOptions) error {
	p := &pacer{
		options: o, id: r.clock.Now().UTC().Format("20060102T150405.000Z"), now: r.clock.Now,
		begun: map[types.UID]*progress{}, change: make(chan struct{}, 1),
	}
	watching, stop := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() {
		_ = c.Follow(watching, cluster.Follower{
			Changed: func(change cluster.Change) (bool, error) {
				p.see(change.Instance, change.Gone)
				return false, nil
			},
		}, s.options(c)...)
	})
	report, err := bulk.Run(ctx, c, r.Console, found, bulk.Action[*bergv1.ChallengeInstance]{
		Verb: "rollout", Pace: o.pace, Patience: o.patience, Workers: 1, Halt: p.halt,
		Do: func(ctx context.Context, i *bergv1.ChallengeInstance) (bulk.Outcome, error) {
			p.begin(i.UID, restarting[i.UID])
			return bulk.Outcome{}, patch(ctx, c, i.DeepCopy(), "", map[string]any{
				"metadata": map[string]any{"annotations": map[string]any{bergv1.AnnotationRollout: p.id}},
			})
		},
	})
	if err == nil {
		err = p.settle(ctx)
	}
	stop()
	group.Wait()
	report.ID = p.id
	return bulk.Show(r.Console, report, "rolled out to", "The same command goes on with the rest.", err)
}
