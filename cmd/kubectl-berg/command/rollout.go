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
	"github.com/bergctf/berg-operator/internal/berg/view"
)

type rolloutOptions struct {
	bulkOptions
	maxUnavailable, stopAfter int
	readyTimeout              time.Duration
}

func (r *root) rollout() *cobra.Command {
	var s selection
	o := rolloutOptions{}
	c := &cobra.Command{
		Use:   "rollout CHALLENGE",
		Short: "Update running instances to their edited Challenge, a few at a time, after a preview",
		Long: `Update the running instances of a Challenge to its present form. The command first shows which pods
restart, and asks for confirmation. It then updates up to --max-unavailable instances concurrently, and
the next one when one is healthy again. An instance that is not healthy after --ready-timeout counts as
failed. The rollout stops after --stop-after failures. Repeat the command to continue with the rest.`,
		Example: `  kubectl berg rollout guestbook --dry-run
  kubectl berg rollout guestbook --max-unavailable 5 --yes`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: firstArgument(r.completeChallenges),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.maxUnavailable < 1 || o.stopAfter < 1 {
				return console.Errorf(console.ExitUsage, "--max-unavailable and --stop-after must be 1 or more")
			}
			if o.readyTimeout < time.Second {
				return console.Errorf(console.ExitUsage, "--ready-timeout %s: must be a second or longer", o.readyTimeout)
			}
			s.challenge = args[0]
			if err := s.check(nil, true); err != nil {
				return err
			}
			return r.rollOut(cmd.Context(), &s, o)
		},
	}
	f := c.Flags()
	f.BoolVarP(&s.allNamespaces, "all-namespaces", "A", false, "update instances in all namespaces")
	f.StringVarP(&s.selector, "selector", "l", "", "only instances with these labels, as in team=red")
	o.add(c)
	o.addYes(c)
	f.IntVar(&o.maxUnavailable, "max-unavailable", 10, "how many instances may be unhealthy at the same time")
	f.IntVar(&o.stopAfter, "stop-after", 3, "stop after this many failed instances")
	f.DurationVar(&o.readyTimeout, "ready-timeout", 5*time.Minute, "time in which an instance must be healthy again, including the pull of a new image")
	return c
}

// previewGroup is the preview of instances to which the same happens.
type previewGroup struct {
	Summary   string          `json:"summary"`
	Instances []string        `json:"instances"`
	Preview   preview.Preview `json:"preview"`
}

// rollOut previews a rollout, asks for confirmation, and carries it out.
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
	groups, pods, restarting, err := r.previewAll(ctx, c, s.challenge, found)
	if err != nil {
		return err
	}
	if r.Format == console.JSON && o.dryRun {
		if err := r.WriteJSON(map[string]any{
			"action": "rollout", "dryRun": true, "challenge": s.challenge, "total": len(found), "pods": pods, "groups": groups, "refused": refused,
		}); err != nil {
			return err
		}
		return problemError(len(refused) > 0)
	}
	if r.Format != console.JSON {
		for _, g := range groups {
			r.Printf("%s: %s\n", r.Paint(console.Bold, fmt.Sprintf("%d instances", len(g.Instances))), console.OneLine(g.Summary))
		}
	}
	switch {
	case len(found) == 0 && len(refused) == 0 && r.Format != console.JSON:
		r.Printf("All instances of Challenge %s are up to date.\n", s.challenge)
		return nil
	case o.dryRun:
		for _, t := range refused {
			r.Printf("%s %s/%s: %s\n", r.Paint(console.Red, "cannot"), t.Namespace, t.Name, t.Why)
		}
		r.Printf("%d pods restart; nothing was done\n", pods)
		return problemError(len(refused) > 0)
	case !o.yes && len(found) > 0:
		if err := r.Confirm(fmt.Sprintf("Roll out to %d instances (%d pods restart)?", len(found), pods)); err != nil {
			return err
		}
	}
	return r.rollOutTo(ctx, c, s, found, refused, restarting, o)
}

// previewAll previews the rollout of a Challenge to instances, grouped by its effect. pods is the number of pods that
// restart, restarting has the instances with such pods.
func (r *root) previewAll(ctx context.Context, c *cluster.Cluster, challenge string, instances []*bergv1.ChallengeInstance) (groups []*previewGroup, pods int, restarting map[types.UID]bool, err error) {
	challenges := map[types.NamespacedName]*bergv1.Challenge{}
	groups, restarting = []*previewGroup{}, map[types.UID]bool{}
	bySummary := map[string]*previewGroup{}
	for _, i := range instances {
		p, err := r.previewRollout(ctx, c, i, challenge, challenges)
		if err != nil {
			return nil, 0, nil, err
		}
		pods += p.Restarting()
		restarting[i.UID] = p.Restarting() > 0 || p.Settings || p.Images
		text := p.Summary()
		if bySummary[text] == nil {
			bySummary[text] = &previewGroup{Summary: text, Preview: p}
			groups = append(groups, bySummary[text])
		}
		bySummary[text].Instances = append(bySummary[text].Instances, i.Namespace+"/"+i.Name)
	}
	return groups, pods, restarting, nil
}

// outdated returns the instances that run an earlier version of their Challenge, without instances whose rollout was
// requested already. refused are instances that the operator cannot update.
func outdated(all []*bergv1.ChallengeInstance) (found []*bergv1.ChallengeInstance, refused []bulk.Item) {
	refused = []bulk.Item{}
	for _, i := range all {
		c := meta.FindStatusCondition(i.Status.Conditions, bergv1.ConditionUpToDate)
		switch {
		case c == nil || c.Status != metav1.ConditionFalse:
		case !adoptable(c):
			refused = append(refused, bulk.Item{Namespace: i.Namespace, Name: i.Name, Why: console.OneLine(c.Reason + ": " + c.Message)})
		case !isInProgress(i):
			found = append(found, i)
		}
	}
	return found, refused
}

// adoptable reports whether the operator can carry out a rollout, by the condition UpToDate.
func adoptable(c *metav1.Condition) bool {
	switch c.Reason {
	case bergv1.ReasonChallengeChanged, bergv1.ReasonConfigurationChanged, bergv1.ReasonImageChanged, bergv1.ReasonRevisionMissing, bergv1.ReasonUpToDate, bergv1.ReasonWaiting:
		return true
	default:
		return false
	}
}

// isInProgress reports whether a requested rollout is not carried out yet.
func isInProgress(i *bergv1.ChallengeInstance) bool {
	asked := i.Annotations[bergv1.AnnotationRollout]
	return asked != "" && asked != i.Status.ObservedRollout
}

// previewRollout reads each Challenge once; known has those that were read.
func (r *root) previewRollout(ctx context.Context, c *cluster.Cluster, i *bergv1.ChallengeInstance, name string, known map[types.NamespacedName]*bergv1.Challenge) (preview.Preview, error) {
	reference := key(cmp.Or(i.Spec.ChallengeRef.Namespace, i.Namespace), name)
	challenge := known[reference]
	if challenge == nil {
		found, err := findChallenge(ctx, c, i.Spec.ChallengeRef.Namespace, name)
		if err != nil {
			return preview.Preview{}, err
		}
		if found == nil {
			return preview.Preview{}, console.Errorf(console.ExitForbidden, "you may not read the Challenge %s, which the preview needs", name)
		}
		challenge, known[reference] = found, found
	}
	return preview.Compare(i, challenge), nil
}

const (
	// minReadyTime is how long an instance must be healthy after its pods restart. Its status is healthy
	// until the old pods are gone, and again until a new one crashes.
	minReadyTime = 5 * time.Second
	// pollInterval is the interval at which timeouts are checked.
	pollInterval = 500 * time.Millisecond
)

// progress is the state of an instance that is updated.
type progress struct {
	restarts bool
	// since is the time at which it was first seen with the rollout, or became healthy after that. unhealthySince is
	// the time since which it is not healthy with the rollout.
	since, unhealthySince time.Time
	// annotated reports that it was seen with the ID of the rollout.
	annotated, adopted, healthy bool
	broken                      string
}

// isDone reports whether the rollout of the instance is complete.
func (s *progress) isDone(now time.Time) bool {
	return s.adopted && s.healthy && (!s.restarts || now.Sub(s.since) >= minReadyTime)
}

// timedOut reports whether it was not healthy in time.
func (s *progress) timedOut(now time.Time, readyTimeout time.Duration) bool {
	return (!s.adopted || !s.healthy) && now.Sub(s.unhealthySince) >= readyTimeout
}

// pacer limits how many instances are unhealthy at the same time. The watch calls observe, ready, fail and setConnection; the
// rollout calls the others. mu guards all fields from started on. change has room for one value, which means that something may
// have changed.
type pacer struct {
	options rolloutOptions
	id      string
	now     func() time.Time

	mu      sync.Mutex
	started map[types.UID]*progress
	// superseded are instances that another rollout took over before this one was complete.
	superseded []bulk.Item
	// watching reports that changes are received, failed why they no longer are. disconnected is the time
	// since which there is no connection.
	watching     bool
	failed       error
	disconnected time.Time
	change       chan struct{}
}

// begin counts an instance as not healthy. It must come before the write, and may be repeated for the same instance: the time in
// which it must be healthy begins with the first attempt.
func (p *pacer) begin(uid types.UID, restarts bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.started[uid] == nil {
		p.started[uid] = &progress{restarts: restarts, unhealthySince: p.now()}
	}
}

// forget removes an instance whose write failed for certain. After a transient error the write may have succeeded, so
// the instance stays counted.
func (p *pacer) forget(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.started, uid)
}

// ready is called when all existing instances are known. No update starts before, because the pacer could not see its
// effect.
func (p *pacer) ready() (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watching = true
	p.notify()
	return false, nil
}

// fail is called when changes are no longer received.
func (p *pacer) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed = err
	p.notify()
}

// setConnection is called with an error when the connection is lost, and with nil when it is back. No
// timeout runs in between, because the state of the instances is not known.
func (p *pacer) setConnection(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err != nil && p.disconnected.IsZero():
		p.disconnected = p.now()
	case err == nil && !p.disconnected.IsZero():
		for _, seen := range p.started {
			seen.unhealthySince = seen.unhealthySince.Add(p.now().Sub(p.disconnected))
		}
		p.disconnected = time.Time{}
	}
	p.notify()
}

// observe records a change of an instance. An event may be older than the pacer's own write: only after the ID of this
// rollout was seen does another ID mean that another rollout has taken over. An instance that has ended is no failure of the
// rollout, and is not counted any more. One that is complete and then becomes unhealthy counts again, with a new time limit.
func (p *pacer) observe(i *bergv1.ChallengeInstance, gone bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.notify()
	seen := p.started[i.UID]
	if seen == nil {
		return
	}
	now := p.now()
	done := seen.isDone(now)
	asked := i.Annotations[bergv1.AnnotationRollout]
	seen.annotated = seen.annotated || asked == p.id
	switch {
	case gone || view.IsEnding(i):
		delete(p.started, i.UID)
		return
	case seen.annotated && asked != p.id:
		delete(p.started, i.UID)
		if !done {
			p.superseded = append(p.superseded, bulk.Item{Namespace: i.Namespace, Name: i.Name, Why: console.OneLine("superseded by another rollout: " + asked)})
		}
		return
	}
	if !seen.adopted {
		seen.adopted = i.Status.ObservedRollout == p.id
		seen.since = now
	}
	healthy := meta.IsStatusConditionTrue(i.Status.Conditions, bergv1.ConditionHealthy) && i.Status.Phase == bergv1.PhaseRunning
	switch {
	case healthy && !seen.healthy:
		seen.since = now
	case !healthy && done:
		seen.unhealthySince = now
	}
	seen.healthy = healthy
	seen.broken = brokenBy(i, seen)
}

// brokenBy returns the reason for which an instance cannot become healthy without help, "" if it may.
func brokenBy(i *bergv1.ChallengeInstance, seen *progress) string {
	if !seen.adopted {
		if c := meta.FindStatusCondition(i.Status.Conditions, bergv1.ConditionUpToDate); c != nil && !adoptable(c) {
			return c.Reason
		}
		return ""
	}
	problem := string(view.FirstReason(i))
	if seen.healthy || problem == bergv1.ReasonPodsNotReady || problem == bergv1.ReasonStarting {
		return ""
	}
	return problem
}

// notify must not block: the caller holds mu.
func (p *pacer) notify() {
	// One waiting value is enough: the reader looks at all instances after each one.
	select {
	case p.change <- struct{}{}:
	default:
	}
}

// counts are numbers of started instances.
type counts struct {
	// pending are the instances that are not healthy yet, and busy the pending instances that have time left. broken
	// are the instances that cannot become healthy or have timed out, with one of their reasons.
	pending, busy, broken int
	reason                string
}

// count counts the started instances by their state. While the connection is lost, the time stands still, so that no
// instance times out unseen.
func (p *pacer) count() counts {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	if !p.disconnected.IsZero() {
		now = p.disconnected
	}
	var t counts
	for _, seen := range p.started {
		if seen.isDone(now) {
			continue
		}
		t.pending++
		timedOut := seen.timedOut(now, p.options.readyTimeout)
		if !timedOut {
			t.busy++
		}
		switch {
		case seen.broken != "":
			t.broken, t.reason = t.broken+1, seen.broken
		case timedOut:
			t.broken++
			if t.reason == "" {
				t.reason = "not healthy within " + console.Duration(p.options.readyTimeout)
			}
		}
	}
	return t
}

// waitForSlot waits until the next instance may be updated. It stops a rollout that breaks instances. Instances that have timed
// out free their slots, so that a few failures below the limit do not hold the rest back.
func (p *pacer) waitForSlot(ctx context.Context) error {
	for {
		t := p.count()
		watching, err := p.connectionState()
		switch {
		case err != nil:
			return err
		case t.broken >= p.options.stopAfter:
			return console.Errorf(console.ExitProblem, "stopped: %d instances are unhealthy after the rollout (%s). For details: kubectl berg why --all", t.broken, t.reason)
		case watching && t.busy < p.options.maxUnavailable:
			return nil
		}
		if err := p.wait(ctx); err != nil {
			return err
		}
	}
}

// waitForAll waits until the last instances are healthy or have failed. What has failed already comes before a lost connection,
// because it is known.
func (p *pacer) waitForAll(ctx context.Context) error {
	// For instances that keep changing between healthy and unhealthy.
	deadline := p.now().Add(2 * p.options.readyTimeout)
	for {
		t := p.count()
		_, err := p.connectionState()
		switch {
		case t.pending == 0:
			return nil
		case t.broken == t.pending:
			return console.Errorf(console.ExitProblem, "%d instances are unhealthy after the rollout (%s). For details: kubectl berg why --all", t.broken, t.reason)
		case err != nil:
			return err
		case p.now().After(deadline):
			return console.Errorf(console.ExitTimeout, "%d instances are not healthy yet. For details: kubectl berg why --all", t.pending)
		}
		if err := p.wait(ctx); err != nil {
			return err
		}
	}
}

// connectionState reports whether changes are received, and why they no longer will be.
func (p *pacer) connectionState() (watching bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed == nil && !p.disconnected.IsZero() && p.now().Sub(p.disconnected) >= p.options.timeout {
		return false, console.Errorf(console.ExitUnreachable, "gave up: no answer from the API server for %s", console.Duration(p.options.timeout))
	}
	return p.watching, p.failed
}

// wait returns after a change, and at the latest after pollInterval, because time limits pass without a change.
func (p *pacer) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-p.change:
	case <-time.After(pollInterval):
	}
	return nil
}

// rollOutTo requests the rollout of instances one after another, while a watch reports their health to the pacer. One worker
// sends the requests, because waitForSlot counts only what has begun.
func (r *root) rollOutTo(ctx context.Context, c *cluster.Cluster, s *selection, found []*bergv1.ChallengeInstance, refused []bulk.Item, restarting map[types.UID]bool, o rolloutOptions) error {
	p := &pacer{
		options: o, id: r.clock.Now().UTC().Format("20060102T150405.000Z"), now: r.clock.Now,
		started: map[types.UID]*progress{}, change: make(chan struct{}, 1),
	}
	watching, stop := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() {
		err := c.Follow(watching, cluster.Follower{
			Changed: func(change cluster.Change) (bool, error) {
				p.observe(change.Instance, change.Gone)
				return false, nil
			},
			Synced: p.ready, Lost: p.setConnection, Timeout: o.timeout,
		}, s.options(c)...)
		if watching.Err() == nil {
			p.fail(cluster.Explain("follow the instances", err))
		}
	})
	report, err := bulk.Run(ctx, c, r.Console, found, bulk.Action[*bergv1.ChallengeInstance]{
		Verb: "rollout", Pace: o.pace, Timeout: o.timeout, Workers: 1, Halt: p.waitForSlot,
		Do: func(ctx context.Context, i *bergv1.ChallengeInstance) (bulk.Outcome, error) {
			// Before the write, so that the pacer misses no event that follows from it.
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
		err = p.waitForAll(ctx)
	}
	stop()
	group.Wait()
	report.ID = p.id
	report.Total += len(refused)
	report.Done -= len(p.superseded)
	report.Skipped = slices.Concat(report.Skipped, p.superseded, refused)
	if err == nil && len(refused) > 0 {
		err = console.Errorf(console.ExitProblem, "%d instances cannot be updated to the present Challenge. For what to fix: kubectl berg why --all", len(refused))
	}
	return bulk.Show(r.Console, report, "rolled out to", "Repeat the command to continue with the rest.", err)
}
