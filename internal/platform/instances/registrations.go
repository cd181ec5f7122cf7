package instances

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/view"
)

// MaxID is the maximum length of an id of a platform, in bytes.
const MaxID = 128

// maxScenario is the maximum length of a scenario, in bytes. It is generous for a reference of an image.
const maxScenario = 1024

// check validates a registration before it is written.
func (s *Store) check(ctx context.Context, r Registration) error {
	switch {
	case r.ID == "" || len(r.ID) > MaxID:
		return Fail(Invalid, "id: must have 1 to %d bytes", MaxID)
	case len(r.Scenario) > maxScenario:
		return Fail(Invalid, "scenario: must have at most %d bytes; give the name of a Challenge", maxScenario)
	case r.Scenario == "":
		return Fail(Invalid, "scenario: is missing; give the name of a Challenge")
	case r.Timeout < 0 || r.Timeout > 0 && r.Timeout < time.Second:
		return Fail(Invalid, "timeout: must be 1s or longer")
	}
	if _, err := s.challenge(ctx, r.Namespace, r.Challenge()); err != nil {
		return fmt.Errorf("scenario: %w", err)
	}
	return nil
}

// Register creates a registration.
func (s *Store) Register(ctx context.Context, r Registration) (Registration, error) {
	if err := s.check(ctx, r); err != nil {
		return r, err
	}
	object := r.configMap()
	err := s.live.Create(ctx, object)
	if apierrors.IsAlreadyExists(err) {
		return r, Fail(Exists, "challenge %s already exists: it is registered in ConfigMap %s/%s", r.ID, r.Namespace, r.Name())
	}
	if err != nil {
		return r, err
	}
	if err := s.seen(ctx, object, false); err != nil {
		return r, err
	}
	return read(object)
}

// Registration returns the registration with an id.
func (s *Store) Registration(ctx context.Context, namespace, endpoint, id string) (Registration, error) {
	if id == "" || len(id) > MaxID {
		return Registration{}, Fail(NotFound, "there is no challenge with this id")
	}
	key := client.ObjectKey{Namespace: namespace, Name: RegistrationName(endpoint, id)}
	object := &corev1.ConfigMap{}
	err := s.cache.Get(ctx, key, object)
	if apierrors.IsNotFound(err) { // another replica may have created it a moment ago
		err = s.live.Get(ctx, key, object)
	}
	if apierrors.IsNotFound(err) || err == nil && object.DeletionTimestamp != nil {
		return Registration{}, Fail(NotFound, "challenge %s is not registered: create it in the platform again, or choose another one", id)
	}
	if err != nil {
		return Registration{}, err
	}
	return read(object)
}

// Ensure returns the registration of a platform that registers nothing itself: its id is the name of a Challenge.
func (s *Store) Ensure(ctx context.Context, namespace, endpoint, challenge string) (Registration, error) {
	r, err := s.Registration(ctx, namespace, endpoint, challenge)
	if !Is(err, NotFound) {
		return r, err
	}
	r, err = s.Register(ctx, Registration{Namespace: namespace, Endpoint: endpoint, ID: challenge, Scenario: challenge})
	if Is(err, Exists) {
		return s.Registration(ctx, namespace, endpoint, challenge)
	}
	return r, err
}

// Registrations returns all registrations of an endpoint, by their ids. It omits ConfigMaps that are not valid
// registrations.
func (s *Store) Registrations(ctx context.Context, namespace, endpoint string) ([]Registration, error) {
	var list corev1.ConfigMapList
	if err := s.cache.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{LabelRegistration: endpoint}); err != nil {
		return nil, err
	}
	all := make([]Registration, 0, len(list.Items))
	for n := range list.Items {
		if r, err := read(&list.Items[n]); err == nil && list.Items[n].DeletionTimestamp == nil {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b Registration) int {
		return cmp.Or(cmp.Compare(len(a.ID), len(b.ID)), strings.Compare(a.ID, b.ID)) // decimals by their value
	})
	return all, nil
}

// Update changes a registration and its live instances: they get the new timeout and until, and adopt their Challenge
// when its tag has changed. A different Challenge affects only new instances. change must have no side effects: after a
// conflict it is called again with the newer version. Nothing is written if it returns an error.
func (s *Store) Update(ctx context.Context, namespace, endpoint, id string, change func(*Registration) error) (Registration, error) {
	var before, after Registration
	for {
		object := &corev1.ConfigMap{}
		err := s.live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: RegistrationName(endpoint, id)}, object)
		if apierrors.IsNotFound(err) || len(id) > MaxID {
			return before, Fail(NotFound, "challenge %s is not registered: create it first", id)
		}
		if err != nil {
			return before, err
		}
		if before, err = read(object); err != nil {
			return before, err
		}
		after = before
		if err := change(&after); err != nil {
			return before, err
		}
		after.ID, after.Endpoint, after.Namespace, after.UID = before.ID, before.Endpoint, before.Namespace, before.UID
		if err := s.check(ctx, after); err != nil {
			return before, err
		}
		if after != before {
			as := after.configMap()
			object.Data = as.Data
			metaSet(&object.Labels, bergv1.LabelManagedBy, bergv1.ManagedByAPI)
			delete(object.Labels, bergv1.LabelPrepullChallenge)
			maps.Copy(object.Labels, as.Labels)
			err = s.live.Update(ctx, object) // the resource version makes concurrent updates conflict, so none is lost
			if apierrors.IsConflict(err) {
				continue
			}
			if err != nil {
				return before, err
			}
		}
		if err := s.seen(ctx, object, true); err != nil {
			return before, err
		}
		break
	}
	return after, s.follow(ctx, before, after)
}

// follow updates live instances after a change of their registration. It reads the cache: an instance that another
// replica creates at the same moment may be missing and keeps the earlier values.
func (s *Store) follow(ctx context.Context, before, after Registration) error {
	times := before.Timeout != after.Timeout || !before.Until.Equal(after.Until)
	rollout := before.Scenario != after.Scenario && before.Challenge() == after.Challenge()
	if !times && !rollout {
		return nil
	}
	var list bergv1.ChallengeInstanceList
	err := s.cache.List(ctx, &list, client.InNamespace(after.Namespace), client.MatchingFields{indexRegistration: string(after.UID)})
	if err != nil {
		return err
	}
	for n := range list.Items {
		i := &list.Items[n]
		if view.IsEnding(i) {
			continue
		}
		changed := i.DeepCopy()
		if times {
			changed.Spec.Timeout = after.timeout(startOrNow(i, s.options.Clock.Now()), renewedAt(i))
		}
		if rollout {
			metaSet(&changed.Annotations, bergv1.AnnotationRollout, RolloutValue(after.Scenario))
		}
		if err := s.patch(ctx, i, changed); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("instance %s: %w", i.Name, err)
		}
	}
	return nil
}

// Unregister deletes a registration. Kubernetes' garbage collector then deletes its instances, also if the API ends
// right after it. The UID as a precondition protects a new registration of the same id. Unregister returns when the
// cache has seen the deletion, or after ReadWait.
func (s *Store) Unregister(ctx context.Context, namespace, endpoint, id string) error {
	r, err := s.Registration(ctx, namespace, endpoint, id)
	if err != nil {
		return err
	}
	object := r.configMap()
	err = s.live.Delete(ctx, object, client.Preconditions{UID: &r.UID})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return Fail(NotFound, "challenge %s is not registered any more", id)
	}
	if err != nil {
		return err
	}
	return s.until(ctx, waitKey(object), func() (bool, error) {
		found := &corev1.ConfigMap{}
		err := s.cache.Get(ctx, client.ObjectKeyFromObject(object), found)
		return err != nil || found.UID != r.UID || found.DeletionTimestamp != nil, client.IgnoreNotFound(err)
	})
}

// startOrNow is the time at which the lifetime of an instance starts: now if the operator has not started it yet.
func startOrNow(i *bergv1.ChallengeInstance, now time.Time) time.Time {
	if i.Status.StartedAt != nil {
		return i.Status.StartedAt.Time
	}
	return now
}

func metaSet(to *map[string]string, key, value string) {
	copied := map[string]string{key: value}
	for k, v := range *to {
		if k != key {
			copied[k] = v
		}
	}
	*to = copied
}
