package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/status"
	"github.com/bergctf/berg-operator/test/lib/invariants"
)

// observer sees every version of every instance, and what its objects tell players,
// and notes what cannot be.
type observer struct {
	client client.WithWatch
	lives  map[string]*life

	mu       sync.Mutex
	last     map[types.UID]*bergv1.ChallengeInstance
	reported map[types.UID]map[string]string
	delays   []time.Duration // from an expiry until the instance was told to end
	versions int
	gaps     int // how often versions may have been missed
	found    []string
	// met are all instances that ever were.
	met map[types.UID]bool
	// started are instances that hold room, startedFew those of the Challenge few, making the checks
	// that are being made, and makingOf those of each Challenge.
	started, startedFew, making *crowd
	makingOf                    map[string]*crowd
	// queued are those that were told to wait for room.
	queued map[types.UID]bool
}

func newObserver(c client.WithWatch, lives []*life) *observer {
	w := &observer{
		client: c, lives: map[string]*life{}, last: map[types.UID]*bergv1.ChallengeInstance{}, reported: map[types.UID]map[string]string{},
		met: map[types.UID]bool{}, queued: map[types.UID]bool{},
		started: newCrowd(roomFor(lives)), startedFew: newCrowd(roomForFew(lives)), making: newCrowd(parallelChecks),
		makingOf: map[string]*crowd{},
	}
	for _, l := range lives {
		w.meet(l)
	}
	return w
}

// meet tells the observer what an instance is meant to go through.
func (w *observer) meet(l *life) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lives[l.name] = l
}

// watch looks on until ctx ends.
func (w *observer) watch(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { w.follow(ctx, &bergv1.ChallengeInstanceList{}) })
	all.Go(func() { w.follow(ctx, &appsv1.DeploymentList{}) })
	all.Go(func() { w.follow(ctx, &gatewayv1.HTTPRouteList{}) })
	all.Go(func() { w.follow(ctx, &gatewayv1.TLSRouteList{}) })
	all.Go(func() { w.follow(ctx, &bergv1.ChallengeCheckList{}) })
	all.Wait()
}

// follow sees every version of every object of a kind. Where the API server forgot
// what was between two looks, it goes on with what there is.
func (w *observer) follow(ctx context.Context, kind client.ObjectList) {
	version := ""
	for ctx.Err() == nil {
		if version == "" {
			now := kind.DeepCopyObject().(client.ObjectList)
			if err := w.client.List(ctx, now); err != nil {
				_ = pause(ctx, poll) // the loop looks whether it is over
				continue
			}
			w.gap(now)
			version = now.GetResourceVersion()
		}
		events, err := w.client.Watch(ctx, kind.DeepCopyObject().(client.ObjectList), &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: version}})
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			version = ""
			continue
		}
		if err != nil {
			_ = pause(ctx, poll)
			continue
		}
		for e := range events.ResultChan() {
			if e.Type == watch.Error {
				version = ""
				break
			}
			object := e.Object.(client.Object)
			version = object.GetResourceVersion()
			w.see(object, e.Type == watch.Deleted)
		}
		events.Stop()
	}
}

// gap takes what there is after versions may have been missed.
func (w *observer) gap(now client.ObjectList) {
	if instances, ok := now.(*bergv1.ChallengeInstanceList); ok {
		w.mu.Lock()
		w.gaps++
		there := map[types.UID]bool{}
		for _, i := range instances.Items {
			there[i.UID] = true
		}
		w.started.keep(there)
		w.startedFew.keep(there)
		for uid, before := range w.last {
			if !there[uid] {
				delete(w.last, uid)
			} else {
				// Conditions may have changed to and fro in between.
				before.Status.Conditions = nil
			}
		}
		w.mu.Unlock()
	}
	if made, ok := now.(*bergv1.ChallengeCheckList); ok {
		there := map[types.UID]bool{}
		for _, c := range made.Items {
			there[c.UID] = c.Status.Run != nil
		}
		w.mu.Lock()
		w.making.keep(there)
		for _, of := range w.makingOf {
			of.keep(there)
		}
		w.mu.Unlock()
	}
	// A list of a kind that this program reads can be taken apart.
	_ = meta.EachListItem(now, func(o runtime.Object) error {
		w.see(o.(client.Object), false)
		return nil
	})
}

func (w *observer) see(object client.Object, gone bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.versions++
	belongsTo := types.UID(object.GetAnnotations()[bergv1.AnnotationInstanceUID])
	switch o := object.(type) {
	case *bergv1.ChallengeInstance:
		w.seeInstance(o, gone)
	case *bergv1.ChallengeCheck:
		w.seeCheck(o, gone)
	case *appsv1.Deployment:
		for _, c := range o.Spec.Template.Spec.Containers {
			for _, m := range c.VolumeMounts {
				w.tell(belongsTo, "path of "+m.Name+" in "+c.Name, m.MountPath)
			}
		}
	case *gatewayv1.HTTPRoute:
		w.tell(belongsTo, "host of HTTPRoute "+o.Name, fmt.Sprint(o.Spec.Hostnames))
	case *gatewayv1.TLSRoute:
		w.tell(belongsTo, "host of TLSRoute "+o.Name, fmt.Sprint(o.Spec.Hostnames))
	}
}

func (w *observer) seeCheck(c *bergv1.ChallengeCheck, gone bool) {
	of := w.makingOf[c.Spec.ChallengeRef.Name]
	if of == nil {
		of = newCrowd(1)
		w.makingOf[c.Spec.ChallengeRef.Name] = of
	}
	for _, crowd := range []*crowd{w.making, of} {
		if err := crowd.see(c.UID, c.Name, c.Status.Run != nil && !gone); err != nil {
			w.found = append(w.found, fmt.Sprintf("ChallengeCheck %s of Challenge %s is being made: %s", c.Name, c.Spec.ChallengeRef.Name, err))
		}
	}
}

func (w *observer) seeInstance(after *bergv1.ChallengeInstance, gone bool) {
	before := w.last[after.UID]
	if before == nil {
		before = &bergv1.ChallengeInstance{}
	}
	w.last[after.UID] = after.DeepCopy()
	if err := invariants.Violations(before, after); err != nil {
		w.violation(after, "%s\n  conditions: %s", err, conditions(after))
	}
	for _, s := range after.Status.Services {
		w.tell(after.UID, "address of "+s.Name, fmt.Sprintf("%s:%d", s.Hostname, s.Port))
	}
	w.checkEnd(before, after)
	w.met[after.UID] = true
	if status.Queued(after) {
		w.queued[after.UID] = true
	}
	holds := after.Status.InstanceID != "" && !gone
	if err := w.started.see(after.UID, after.Name, holds); err != nil {
		w.violation(after, "it has been started: %s", err)
	}
	if err := w.startedFew.see(after.UID, after.Name, holds && after.Spec.ChallengeRef.Name == few); err != nil {
		w.violation(after, "it has been started: %s of Challenge %s", err, few)
	}
	if gone {
		// One that was never started has nothing that could be left over.
		if after.Status.Phase != bergv1.PhaseTerminated && after.Status.StartedAt != nil {
			w.violation(after, "it is gone, and was %s last", after.Status.Phase)
		}
		delete(w.last, after.UID)
	}
}

// checkEnd checks that nothing ends unless it was asked to, or its time is over.
func (w *observer) checkEnd(before, after *bergv1.ChallengeInstance) {
	l := w.lives[after.Name]
	if l == nil {
		return
	}
	const none = bergv1.TerminationReason("")
	was, is := before.Spec.TerminationReason, after.Spec.TerminationReason
	timedOut := was == none && is == bergv1.TerminationTimeout
	// The end does not hang on the write of its reason, which the storm may swallow.
	unexplained := before.DeletionTimestamp == nil && after.DeletionTimestamp != nil && is == none && !l.asked.Load()
	if !timedOut && !unexplained {
		return
	}
	expiry := expiryOf(after)
	switch {
	case expiry == nil:
		w.violation(after, "it is deleted without a request: its time never began")
	case time.Now().Before(*expiry):
		w.violation(after, "it is deleted %s too early, without a request", time.Until(*expiry))
	default:
		w.delays = append(w.delays, time.Since(*expiry))
	}
}

func expiryOf(i *bergv1.ChallengeInstance) *time.Time {
	timeout, err := time.ParseDuration(i.Spec.Timeout)
	if err != nil || i.Status.StartedAt == nil {
		return nil
	}
	at := i.Status.StartedAt.Add(timeout)
	return &at
}

// tell notes what an object of an instance tells, which must not change in its life.
func (w *observer) tell(uid types.UID, key, value string) {
	if uid == "" || value == "" {
		return
	}
	if w.reported[uid] == nil {
		w.reported[uid] = map[string]string{}
	}
	if was, known := w.reported[uid][key]; known && was != value {
		w.found = append(w.found, fmt.Sprintf("instance %s: the %s was %s and is %s", uid, key, was, value))
	}
	w.reported[uid][key] = value
}

func (w *observer) violation(i *bergv1.ChallengeInstance, format string, args ...any) {
	w.found = append(w.found, fmt.Sprintf("%s %s (%s): %s", i.Name, i.Status.Phase, i.ResourceVersion, fmt.Sprintf(format, args...)))
}

// violations returns an error with the violations found, nil if there are none.
func (w *observer) violations() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.found) == 0 {
		return nil
	}
	const most = 10
	return fmt.Errorf("%d times something that cannot be:\n%s", len(w.found), strings.Join(w.found[:min(len(w.found), most)], "\n"))
}

func conditions(i *bergv1.ChallengeInstance) string {
	var b strings.Builder
	for _, c := range i.Status.Conditions {
		fmt.Fprintf(&b, "%s=%s/%s (%s); ", c.Type, c.Status, c.Reason, c.Message)
	}
	return b.String()
}
