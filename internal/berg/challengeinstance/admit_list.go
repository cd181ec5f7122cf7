package challengeinstance

import (
	"context"
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/admission"
)

// startedLister returns the started instances of every owner, or at least of the owners of pending instances.
type startedLister func(ctx context.Context, pending []bergv1.ChallengeInstance, everyOwner bool) ([]admission.Instance, error)

// list returns the instances that were not started, and a function that lists the started ones. The instances must not be
// modified.
//
// The cached list has waited for all writes of this process. Only the API server is sure to show starts of the previous
// leader and starts without an answer: until the admitter is synced, its list decides. A missed start would let one owner
// have two instances, or exceed a limit.
func (a *admitter) list(ctx context.Context) (pending []bergv1.ChallengeInstance, listStarted startedLister, err error) {
	var cached bergv1.ChallengeInstanceList
	if err := a.Starts.List(ctx, &cached, client.MatchingFields{indexPending: isPending}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("list the instances that wait: %w", err)
	}
	// Without a pending instance in the cache nothing is decided, so an idle leader never lists the API server.
	if a.synced || len(cached.Items) == 0 {
		return cached.Items, a.started, nil
	}
	// The cache is read after this list. If it shows the newest version here, it will show it in every later round.
	pending, running, newest, err := a.listLive(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("list all instances: %w", err)
	}
	all, err := a.instances(ctx)
	if err != nil {
		return nil, nil, err
	}
	for n := range all {
		// Events come in the order of versions. A cache that shows the newest listed version has received all earlier ones.
		a.synced = a.synced || objectVersion(&all[n]) >= newest
	}
	return pending, func(context.Context, []bergv1.ChallengeInstance, bool) ([]admission.Instance, error) {
		return running, nil
	}, nil
}

// listLive lists all instances of the API server, and returns the newest version of an instance. Pages bound the memory,
// and a started instance is reduced to the fields of the decision.
func (a *admitter) listLive(ctx context.Context) (pending []bergv1.ChallengeInstance, running []admission.Instance, newest uint64, err error) {
	for next, hasNext := "", true; hasNext; hasNext = next != "" {
		var page bergv1.ChallengeInstanceList
		if err := a.Live.List(ctx, &page, client.Limit(instancesPerPage), client.Continue(next)); err != nil {
			return nil, nil, 0, err
		}
		next = page.Continue
		for n := range page.Items {
			i := &page.Items[n]
			newest = max(newest, objectVersion(i))
			if isStarted(i) {
				running = append(running, a.admissionInstance(i))
			} else if i.Status.InstanceID == "" {
				pending = append(pending, *i)
			}
		}
	}
	return pending, running, newest, nil
}

// started reads the cache: the instances of every owner if a limit counts them, else of the owners of pending instances
// only. To list 10,000 instances takes 13 ms on a busy machine, as long as the operator otherwise works on one start.
func (a *admitter) started(ctx context.Context, pending []bergv1.ChallengeInstance, everyOwner bool) ([]admission.Instance, error) {
	var lists [][]client.ListOption
	if everyOwner {
		lists = append(lists, nil)
	} else {
		lists = append(lists, []client.ListOption{client.MatchingFields{indexPrepared: isPending}})
		owners := sets.New[string]()
		for n := range pending {
			if owner := pending[n].Spec.OwnerID; !owners.Has(owner) {
				owners.Insert(owner)
				lists = append(lists, []client.ListOption{client.MatchingFields{indexOwner: owner}})
			}
		}
	}
	var all []admission.Instance
	for _, list := range lists {
		found, err := a.instances(ctx, list...)
		if err != nil {
			return nil, err
		}
		for n := range found {
			if isStarted(&found[n]) {
				all = append(all, a.admissionInstance(&found[n]))
			}
		}
	}
	return all, nil
}

// instances reads the cache after list, which has waited for all writes.
func (a *admitter) instances(ctx context.Context, opts ...client.ListOption) ([]bergv1.ChallengeInstance, error) {
	var all bergv1.ChallengeInstanceList
	err := a.Starts.List(ctx, &all, append(opts, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency)...)
	return all.Items, err
}

// objectVersion returns the resource version as a number. Versions of one kind are ordered; a version that is no number is
// 0, older than all others.
func objectVersion(o client.Object) uint64 {
	n, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return n
}
