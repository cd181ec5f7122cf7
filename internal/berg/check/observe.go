package check

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/status"
	"github.com/bergctf/berg-operator/internal/kit/apply"
)

// observe reads all of it, from caches.
func (r *Reconciler) observe(ctx context.Context, c *bergv1.ChallengeCheck, now time.Time) (o Observed, err error) {
	o.Check = c
	if o.Challenge, err = r.challenge(ctx, c); err != nil {
		return o, err
	}
	if o.Players, err = r.playersWaiting(ctx, now); err != nil {
		return o, err
	}
	if c.Status.Run == nil {
		o.RefusedUntil = r.refusals.holds(c, now)
		o.Contenders, err = r.contenders(ctx, now)
		return o, err
	}
	err = r.observeRun(ctx, &o)
	// Events are read from the API server, at intervals of podRetry and only for a Job without a pod: a watch of events would
	// bring those of the whole cluster.
	if err != nil || o.Job == nil || len(o.Pods) > 0 || now.Sub(o.Job.CreationTimestamp.Time) < podRetry {
		return o, err
	}
	o.PodRefused, err = r.podRefusal(ctx, o)
	return o, err
}

// observeRun adds the objects of the current check. An object of the same name that the check does not own is
// reported and never used: a solver must not get into a foreign namespace.
func (r *Reconciler) observeRun(ctx context.Context, o *Observed) error {
	owner := ownerFor(o.Check)
	i, err := apply.Found(ctx, r.Client, client.ObjectKey{Namespace: o.Check.Namespace, Name: instanceName(o.Check)}, &bergv1.ChallengeInstance{})
	if err != nil {
		return err
	}
	if i != nil && !owner.Owns(i) {
		o.Conflicting = "ChallengeInstance " + client.ObjectKeyFromObject(i).String()
	} else if i != nil {
		o.Instance = i
		if o.Unready, err = r.unready(ctx, i); err != nil {
			return err
		}
	}
	ns, err := apply.Found(ctx, r.Client, client.ObjectKey{Name: namespaceName(o.Check)}, &corev1.Namespace{})
	if err != nil || ns == nil {
		return err
	}
	if !namespaceOwner(o.Check).Owns(ns) {
		o.Conflicting = cmp.Or(o.Conflicting, "Namespace "+ns.GetName())
		return nil
	}
	o.Namespace = ns
	j, err := apply.Found(ctx, r.Client, client.ObjectKey{Namespace: namespaceName(o.Check), Name: jobName}, &batchv1.Job{})
	if err != nil || j == nil || !owner.Owns(j) {
		return err
	}
	o.Job = j
	var pods corev1.PodList
	// The operator deletes pods of a check only when it is over: there is no write of its own to wait for.
	err = r.Client.List(ctx, &pods, client.InNamespace(namespaceName(o.Check)), client.DisableReadYourWritesConsistency)
	o.Pods = pods.Items
	return err
}

// podRefusal returns the latest message about the pods of a solver's Job that could not be created.
func (r *Reconciler) podRefusal(ctx context.Context, o Observed) (string, error) {
	var all eventsv1.EventList
	if err := r.Live.List(ctx, &all, client.InNamespace(o.Job.Namespace), client.MatchingFields{"reason": "FailedCreate"}); err != nil {
		return "", err
	}
	return strings.TrimPrefix(status.LatestFailures(all.Items)[o.Job.UID], "Error creating: "), nil
}

// unready are the containers of an instance that run and are not ready, sorted; none where there
// is another reason why it does not run.
func (r *Reconciler) unready(ctx context.Context, i *bergv1.ChallengeInstance) (names []string, err error) {
	if i.Status.Cause != bergv1.CauseNotReadyYet || i.Status.Namespace == "" {
		return nil, nil
	}
	var pods corev1.PodList
	if err := r.Client.List(ctx, &pods, client.InNamespace(i.Status.Namespace), client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency); err != nil {
		return nil, err
	}
	for n := range pods.Items {
		for _, s := range pods.Items[n].Status.ContainerStatuses {
			if s.State.Running != nil && !s.Ready {
				names = append(names, s.Name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// challengeKey is the Challenge that a ChallengeCheck names.
func (r *Reconciler) challengeKey(c *bergv1.ChallengeCheck) types.NamespacedName {
	ref := c.Spec.ChallengeRef
	return types.NamespacedName{Namespace: cmp.Or(ref.Namespace, r.Config.Challenge.Namespace), Name: ref.Name}
}

// challenge returns nil for one that does not exist, and for one that must not be used: no condition
// finds out by a ChallengeCheck which of the two it is.
func (r *Reconciler) challenge(ctx context.Context, c *bergv1.ChallengeCheck) (*bergv1.Challenge, error) {
	return r.challengeIn(ctx, r.Client, c)
}

func (r *Reconciler) challengeIn(ctx context.Context, from client.Reader, c *bergv1.ChallengeCheck) (*bergv1.Challenge, error) {
	key := r.challengeKey(c)
	if !r.Config.Challenge.MayUse(c.Namespace, key.Namespace) {
		return nil, nil
	}
	return apply.Found(ctx, from, key, &bergv1.Challenge{})
}

// contenders are all ChallengeChecks, as far as they want something at the moment.
func (r *Reconciler) contenders(ctx context.Context, now time.Time) ([]contender, error) {
	var all bergv1.ChallengeCheckList
	if err := r.Client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	out := make([]contender, 0, len(all.Items))
	for n := range all.Items {
		c := &all.Items[n]
		me := contender{UID: c.UID, Challenge: r.challengeKey(c), Running: c.Status.Run != nil}
		if !me.Running && c.DeletionTimestamp == nil {
			challenge, err := r.challenge(ctx, c)
			if err != nil {
				return nil, err
			}
			if reason, _ := obstacle(c, challenge, now); reason == "" && r.refusals.holds(c, now).IsZero() {
				me.Due = due(c, challenge)
			}
		}
		out = append(out, me)
	}
	return out, nil
}

// playersWaiting finds out which players wait for capacity.
func (r *Reconciler) playersWaiting(ctx context.Context, now time.Time) (players, error) {
	var all bergv1.ChallengeInstanceList
	if err := r.Client.List(ctx, &all, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency); err != nil {
		return players{}, err
	}
	p := waitingPlayers(all.Items, r.named, now)
	r.named = p.Named
	return p, nil
}
