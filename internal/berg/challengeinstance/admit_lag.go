package challengeinstance

import (
	"context"
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/admission"
)

// catchUp reports whether the cache shows all that the previous leader has written: it may lag behind. All
// instances are listed from the API server once, and those that the cache shows in an older version, or not at
// all, are looked for until they are seen or gone.
func (a *admitter) catchUp(ctx context.Context) (bool, error) {
	if a.caughtUp {
		return true, nil
	}
	if a.listed == nil {
		listed := admission.Listed{}
		page := &metav1.PartialObjectMetadataList{}
		page.SetGroupVersionKind(bergv1.GroupVersion.WithKind("ChallengeInstanceList"))
		for hasNext := true; hasNext; hasNext = page.Continue != "" {
			if err := a.Live.List(ctx, page, client.Limit(instancesPerPage), client.Continue(page.Continue)); err != nil {
				return false, fmt.Errorf("list the instances of the previous leader: %w", err)
			}
			for n := range page.Items {
				i := &page.Items[n]
				listed[i.UID] = admission.Instance{UID: i.UID, Key: client.ObjectKeyFromObject(i), Version: objectVersion(i)}
			}
		}
		a.listed = listed
	}
	cached, err := a.instances(ctx)
	if err != nil {
		return false, err
	}
	all := make([]admission.Instance, len(cached))
	for n := range cached {
		all[n] = admission.Instance{UID: cached[n].UID, Version: objectVersion(&cached[n])}
	}
	unseen := a.listed.Unseen(all)
	a.caughtUp = true
	for _, i := range unseen {
		live, err := a.live(ctx, i)
		if err != nil {
			return false, err
		}
		if live == nil {
			delete(a.listed, i.UID)
			continue
		}
		a.caughtUp = false
	}
	if a.caughtUp {
		a.listed = nil
	}
	return a.caughtUp, nil
}

// live returns an instance as the API server has it, nil if it is gone.
func (a *admitter) live(ctx context.Context, i admission.Instance) (*bergv1.ChallengeInstance, error) {
	var found bergv1.ChallengeInstanceList
	if err := a.Live.List(ctx, &found, client.InNamespace(i.Key.Namespace), client.MatchingFields{"metadata.name": i.Key.Name}); err != nil {
		return nil, fmt.Errorf("read instance %s: %w", i.Key, err)
	}
	for n := range found.Items {
		if found.Items[n].UID == i.UID {
			return &found.Items[n], nil
		}
	}
	return nil, nil
}

// resolve asks the API server whether instances were started of whose start no answer came.
func (a *admitter) resolve(ctx context.Context, unknown []admission.Instance) error {
	for _, i := range unknown {
		live, err := a.live(ctx, i)
		switch {
		case err != nil:
			return err
		case live != nil && live.Status.InstanceID != "":
			a.starts.Wrote(i.UID, objectVersion(live))
		default:
			a.starts.NotWritten(i.UID)
		}
	}
	return nil
}

// objectVersion is the resource version as a number. Those of one kind are ordered.
func objectVersion(o client.Object) uint64 {
	n, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return n
}
