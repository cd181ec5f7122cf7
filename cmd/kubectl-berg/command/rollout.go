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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	settle            time.Duration
}

func (r *root) rollout() *cobra.Command {
	var s selection
	o := rolloutOptions{}
	c := &cobra.Command{
		Use:   "rollout CHALLENGE",
		Short: "Bring live instances to their edited Challenge, a few at a time, after a preview",
		Long: `Bring the live instances of a Challenge to what it says now. First it shows whose pods restart, and
asks. Then it goes on by so many at a time: the next one begins when one is well again. One that is not
well after --settle counts as broken by it; where --stop-after are, it stops. The same command goes on
with those that are left.`,
		Example: `  kubectl berg rollout guestbook --dry-run
  kubectl berg rollout guestbook --at-once 5 --yes`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: one(r.completeChallenges),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.atOnce < 1 || o.stopAfter < 1 {
				return console.Errorf(console.ExitUsage, "--at-once and --stop-after must be 1 or more")
			}
			if o.settle < time.Second {
				return console.Errorf(console.ExitUsage, "--settle %s: must be a second or longer", o.settle)
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
	f.DurationVar(&o.settle, "settle", 5*time.Minute, "how long one may take until it is well again, a new image included")
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
	found, refused := outdated(live(found))
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
		if err := r.WriteJSON(map[string]any{
			"action": "rollout", "dryRun": true, "challenge": s.challenge, "total": len(found), "pods": pods, "groups": groups, "refused": refused,
		}); err != nil {
			return err
		}
		return verdictOf(len(refused) > 0)
	}
	if r.Format != console.JSON {
		for _, g := range groups {
			r.Printf("%s: %s\n", r.Paint(console.Bold, fmt.Sprintf("%d instances", len(g.Instances))), console.OneLine(g.Summary))
		}
	}
	switch {
	case len(found) == 0 && len(refused) == 0 && r.Format != console.JSON:
		r.Printf("All instances of %s are up to date.\n", s.challenge)
		return nil
	case o.dryRun:
		for _, t := range refused {
			r.Printf("%s %s/%s: %s\n", r.Paint(console.Red, "cannot"), t.Namespace, t.Name, t.Why)
		}
		r.Printf("%d pods restart; nothing was done\n", pods)
		return verdictOf(len(refused) > 0)
	case !o.yes && len(found) > 0:
		if err := r.Confirm(fmt.Sprintf("Roll out to %d instances (%d pods restart)?", len(found), pods)); err != nil {
			return err
		}
	}
	return r.rollOutTo(ctx, c, s, found, refused, restarting, o)
}

// outdated are those that run an earlier state and can be brought to that of today, and those that
// cannot: the operator would never carry their rollout out. Where one was asked for already it is
// about to be carried out.
func outdated(all []*bergv1.ChallengeInstance) (found []*bergv1.ChallengeInstance, refused []bulk.Told) {
	refused = []bulk.Told{}
	for _, i := range all {
		c := meta.FindStatusCondition(i.Status.Conditions, bergv1.ConditionUpToDate)
		switch {
		case c == nil || c.Status != metav1.ConditionFalse:
		case !adoptable(c):
			refused = append(refused, bulk.Told{Namespace: i.Namespace, Name: i.Name, Why: console.OneLine(c.Reason + ": " + c.Message)})
		case !underway(i):
			found = append(found, i)
		}
	}
	return found, refused
}

// adoptable reports whether the operator carries a rollout out, by what it says in UpToDate.
func adoptable(c *metav1.Condition) bool {
	switch c.Reason {
	case bergv1.ReasonChallengeChanged, bergv1.ReasonConfigurationChanged, bergv1.ReasonUpToDate, bergv1.ReasonWaiting:
		return true
	default:
		return false
	}
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
			return preview.Preview{}, console.Errorf(console.ExitForbidden, "you may not read the Challenge %s, and so there is no preview", name)
		}
		challenge, known[at] = found, found
	}
	p, err := preview.Of(i, challenge)
	if err != nil {
		return p, console.Errorf(console.ExitFailed, "instance %s/%s: %w", i.Namespace, i.Name, err)
	}
	return p, nil
}

const (
	// steady is for how long one that restarts pods must look well: its status says so until the
	// old pods are gone, and again before a new one has crashed.
	steady = 5 * time.Second
	// look is how often the time is looked at.
	look = 500 * time.Millisecond
)

// progress is what is known of one to which was rolled out.
type progress struct {
	restarts bool
	// since is when it was seen with the rollout, or when it became well after that; unwell is
	// from when on it has not been well with it.
	since, unwell time.Time
	// marked says that it was seen with the rollout's ID.
	marked, adopted, well bool
	broken                string
}

// fine reports whether the rollout is behind it.
func (s *progress) fine(now time.Time) bool {
	return s.adopted && s.well && (!s.restarts || now.Sub(s.since) >= steady)
}

// late reports whether it has had its time.
func (s *progress) late(now time.Time, settle time.Duration) bool {
	return (!s.adopted || !s.well) && now.Sub(s.unwell) >= settle
}

// pacer knows which of those that were begun are not well yet.
type pacer struct {
	options rolloutOptions
	id      string
	now     func() time.Time

	mu    sync.Mutex
	begun map[types.UID]*progress
	// taken are those that somebody else's rollout took over before this one was behind them.
	taken []bulk.Told
	// watching says that changes are told, failed why they are not any more, lost since when there
	// is no connection.
	watching bool
	failed   error
	lost     time.Time
	change   chan struct{}
}

func (p *pacer) begin(uid types.UID, restarts bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.begun[uid] == nil {
		p.begun[uid] = &progress{restarts: restarts, unwell: p.now()}
	}
}

// forget leaves out one to which nothing was written.
func (p *pacer) forget(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.begun, uid)
}

// ready notes that changes are told from now on.
func (p *pacer) ready() (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watching = true
	p.wake()
	return false, nil
}

// fail notes that changes are not told any more.
func (p *pacer) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed = err
	p.wake()
}

// lose notes that there is no connection, and, with nil, that there is one again: nobody's time
// runs in between, as nobody knows what became of them.
func (p *pacer) lose(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err != nil && p.lost.IsZero():
		p.lost = p.now()
	case err == nil && !p.lost.IsZero():
		for _, seen := range p.begun {
			seen.unwell = seen.unwell.Add(p.now().Sub(p.lost))
		}
		p.lost = time.Time{}
	}
	p.wake()
}

// see takes up what became of one.
func (p *pacer) see(i *bergv1.ChallengeInstance, gone bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.wake()
	seen := p.begun[i.UID]
	if seen == nil {
		return
	}
	now := p.now()
	fine := seen.fine(now)
	asked := i.Annotations[bergv1.AnnotationRollout]
	seen.marked = seen.marked || asked == p.id
	switch {
	case gone || i.DeletionTimestamp != nil || i.Spec.TerminationReason != "":
		delete(p.begun, i.UID)
		return
	case seen.marked && asked != p.id:
		delete(p.begun, i.UID)
		if !fine {
			p.taken = append(p.taken, bulk.Told{Namespace: i.Namespace, Name: i.Name, Why: console.OneLine("taken over by another rollout: " + asked)})
		}
		return
	}
	if !seen.adopted {
		seen.adopted = i.Status.ObservedRollout == p.id
		seen.since = now
	}
	healthy := meta.IsStatusConditionTrue(i.Status.Conditions, bergv1.ConditionHealthy) && i.Status.Phase == bergv1.PhaseRunning
	switch {
	case healthy && !seen.well:
		seen.since = now
	case !healthy && fine:
		seen.unwell = now
	}
	seen.well = healthy
	seen.broken = brokenBy(i, seen)
}

// brokenBy is why one will hardly become well by itself, "" while it may.
func brokenBy(i *bergv1.ChallengeInstance, seen *progress) string {
	if !seen.adopted {
		if c := meta.FindStatusCondition(i.Status.Conditions, bergv1.ConditionUpToDate); c != nil && !adoptable(c) {
			return c.Reason
		}
		return ""
	}
	why := problemOf(i)
	if seen.well || why == bergv1.ReasonPodsNotReady || why == bergv1.ReasonStarting {
		return ""
	}
	return why
}

func (p *pacer) wake() {
	select {
	case p.change <- struct{}{}:
	default:
	}
}

// tally is how those are that were begun.
type tally struct {
	// pending are not well yet, and busy those of them that have some time left. broken are those
	// that hardly become well, or have had their time, and why is the reason of one.
	pending, busy, broken int
	why                   string
}

func (p *pacer) count() tally {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	if !p.lost.IsZero() {
		now = p.lost
	}
	var t tally
	for _, seen := range p.begun {
		if seen.fine(now) {
			continue
		}
		t.pending++
		late := seen.late(now, p.options.settle)
		if !late {
			t.busy++
		}
		switch {
		case seen.broken != "":
			t.broken, t.why = t.broken+1, seen.broken
		case late:
			t.broken++
			if t.why == "" {
				t.why = "not within " + console.Duration(p.options.settle)
			}
		}
	}
	return t
}

// halt waits until a further one may begin; it ends a rollout that breaks instances.
func (p *pacer) halt(ctx context.Context) error {
	for {
		t := p.count()
		watching, err := p.line()
		switch {
		case err != nil:
			return err
		case t.broken >= p.options.stopAfter:
			return console.Errorf(console.ExitProblem, "stopped: %d instances are not well after it (%s): kubectl berg why --all says more", t.broken, t.why)
		case watching && t.busy < p.options.atOnce:
			return nil
		}
		if err := p.wait(ctx); err != nil {
			return err
		}
	}
}

// settle waits until the last ones are well, or clearly are not.
func (p *pacer) settle(ctx context.Context) error {
	// Each has its time; this is for those that are well and unwell by turns.
	deadline := p.now().Add(2 * p.options.settle)
	for {
		t := p.count()
		_, err := p.line()
		switch {
		case t.pending == 0:
			return nil
		case t.broken == t.pending:
			return console.Errorf(console.ExitProblem, "%d instances are not well after it (%s): kubectl berg why --all says more", t.broken, t.why)
		case err != nil:
			return err
		case p.now().After(deadline):
			return console.Errorf(console.ExitTimeout, "%d instances are not well again yet: kubectl berg why --all says more", t.pending)
		}
		if err := p.wait(ctx); err != nil {
			return err
		}
	}
}

// line reports whether changes are told, and why they will not be any more.
func (p *pacer) line() (watching bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed == nil && !p.lost.IsZero() && p.now().Sub(p.lost) >= p.options.timeout {
		return false, console.Errorf(console.ExitUnreachable, "no answer from the API server for %s, given up", console.Duration(p.options.timeout))
	}
	return p.watching, p.failed
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

func (r *root) rollOutTo(ctx context.Context, c *cluster.Cluster, s *selection, found []*bergv1.ChallengeInstance, refused []bulk.Told, restarting map[types.UID]bool, o rolloutOptions) error {
	p := &pacer{
		options: o, id: r.clock.Now().UTC().Format("20060102T150405.000Z"), now: r.clock.Now,
		begun: map[types.UID]*progress{}, change: make(chan struct{}, 1),
	}
	watching, stop := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() {
		err := c.Follow(watching, cluster.Follower{
			Changed: func(change cluster.Change) (bool, error) {
				p.see(change.Instance, change.Gone)
				return false, nil
			},
			Begun: p.ready, Lost: p.lose, Timeout: o.timeout,
		}, s.options(c)...)
		if watching.Err() == nil {
			p.fail(cluster.Explain("follow the instances", err))
		}
	})
	report, err := bulk.Run(ctx, c, r.Console, found, bulk.Action[*bergv1.ChallengeInstance]{
		Verb: "rollout", Pace: o.pace, Timeout: o.timeout, Workers: 1, Halt: p.halt,
		Do: func(ctx context.Context, i *bergv1.ChallengeInstance) (bulk.Outcome, error) {
			p.begin(i.UID, restarting[i.UID])
			err := patch(ctx, c, i.DeepCopy(), "", map[string]any{
				"metadata": map[string]any{"annotations": map[string]any{bergv1.AnnotationRollout: p.id}},
			})
			if err != nil && !cluster.Transient(err) {
				p.forget(i.UID)
			}
			return bulk.Outcome{}, err
		},
	})
	if err == nil {
		err = p.settle(ctx)
	}
	stop()
	group.Wait()
	report.ID = p.id
	report.Total += len(refused)
	report.Done -= len(p.taken)
	report.Skipped = slices.Concat(report.Skipped, p.taken, refused)
	if err == nil && len(refused) > 0 {
		err = console.Errorf(console.ExitProblem, "%d instances cannot be brought to the Challenge as it is now: kubectl berg why --all says what to mend", len(refused))
	}
	return bulk.Show(r.Console, report, "rolled out to", "The same command goes on with the rest.", err)
}
