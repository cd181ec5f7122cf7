package instances

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/rules"
	"github.com/bergctf/berg-operator/internal/berg/view"
	"github.com/bergctf/berg-operator/internal/platform/tokens"
)

// MaxID is the maximum length of an id of a platform, in bytes.
const MaxID = 128

// maxScenario is the maximum length of a scenario, in bytes. It is generous for a reference of an image.
const maxScenario = 1024

// refusalWindow is the time after a refused creation in which a deletion of the same id is refused, too: a platform cleans up
// what it could not create, and would end the instances of the registration that exists.
const refusalWindow = time.Minute

// check validates a registration before it is written. before is the registration that it replaces; empty for a new one.
func (s *Store) check(ctx context.Context, r, before Registration) error {
	now := s.options.Clock.Now()
	switch {
	case r.ID == "" || len(r.ID) > MaxID:
		return Fail(Invalid, "id: must have 1 to %d bytes", MaxID)
	case len(r.Scenario) > maxScenario:
		return Fail(Invalid, "scenario: must have at most %d bytes; give the name of a Challenge", maxScenario)
	case r.Scenario == "":
		return Fail(Invalid, "scenario: is missing; give the name of a Challenge")
	case r.Timeout < 0 || r.Timeout > 0 && r.Timeout < time.Second:
		return Fail(Invalid, "timeout: must be 1s or longer")
	case r.expired(now) && !r.Until.Equal(before.Until):
		return Fail(Invalid, "until: %s is in the past, it is %s now: give a later time, or none", r.UntilText, now.UTC().Format(time.RFC3339))
	}
	challenge, err := s.challenge(ctx, r.Namespace, r.Challenge())
	if err != nil {
		return fmt.Errorf("scenario: %w", err)
	}
	if r.Min > 0 && (r.Min != before.Min || r.Max != before.Max || r.Scenario != before.Scenario) {
		if err := s.checkWarm(ctx, r, client.ObjectKeyFromObject(challenge)); err != nil {
			return err
		}
	}
	if r.Scenario == before.Scenario || whyNotAccepted(challenge) == "" {
		return nil
	}
	key := client.ObjectKeyFromObject(challenge) // it may be corrected already
	challenge = &bergv1.Challenge{}
	if err := s.live.Get(ctx, key, challenge); err != nil {
		return client.IgnoreNotFound(err)
	}
	if text := whyNotAccepted(challenge); text != "" {
		return Fail(Invalid, "scenario: Challenge %s is not accepted. %s. Correct it: kubectl berg lint shows each field",
			challenge.Name, strings.TrimSuffix(text, "."))
	}
	return nil
}

// checkWarm says why min and max of a platform cannot have the effect of spec.warm. It reads the whole Challenge, which the cache
// does not have.
func (s *Store) checkWarm(ctx context.Context, r Registration, key client.ObjectKey) error {
	c := &bergv1.Challenge{}
	if err := s.live.Get(ctx, key, c); err != nil {
		return err
	}
	if w := c.Spec.Warm; w != nil && (int64(w.Min) != r.Min || int64(w.Max) != r.Max) {
		return Fail(Invalid, "min, max: Challenge %s has spec.warm with min %d and max %d, which comes first: set min to 0, or to the same values", c.Name, w.Min, w.Max)
	}
	bounded := func(n int64) int32 { return int32(min(n, math.MaxInt32)) }
	c.Spec.Warm = &bergv1.Warm{Min: bounded(r.Min), Max: bounded(r.Max)}
	for _, err := range rules.ValidateWarm(c) {
		return Fail(Invalid, "min, max: no instance of Challenge %s can be prepared. %s: %s", c.Name, err.Field, err.Detail)
	}
	return nil
}

// whyNotAccepted returns why a Challenge is not accepted, "" if it is, or if the operator has not checked its latest edit.
func whyNotAccepted(c *bergv1.Challenge) string {
	accepted := meta.FindStatusCondition(c.Status.Conditions, bergv1.ChallengeConditionAccepted)
	if accepted == nil || accepted.Status != metav1.ConditionFalse || accepted.ObservedGeneration < c.Generation {
		return ""
	}
	return accepted.Message
}

// Register creates a registration.
func (s *Store) Register(ctx context.Context, r Registration) (Registration, error) {
	r, err := s.register(ctx, r)
	if !Is(err, Exists) {
		return r, err
	}
	if err := s.rememberRefusal(ctx, r); err != nil {
		return r, err
	}
	return r, Fail(Exists, "challenge %s already exists: the platform with the token key %q registered it, in ConfigMap %s/%s. Give another platform, a rehearsal "+
		"or a new database a token key of its own. If the old one is not needed, delete the ConfigMap, which ends its instances", r.ID, r.Token, r.Namespace, r.Name())
}

// The creation decides between two replicas: one of them gets AlreadyExists.
func (s *Store) register(ctx context.Context, r Registration) (Registration, error) {
	if err := s.check(ctx, r, Registration{}); err != nil {
		return r, err
	}
	object := r.configMap()
	err := s.live.Create(ctx, object)
	if apierrors.IsAlreadyExists(err) {
		return r, Fail(Exists, "challenge %s already exists", r.ID)
	}
	if err != nil {
		return r, err
	}
	if err := s.seen(ctx, object, false); err != nil {
		return r, err
	}
	return read(object)
}

// rememberRefusal stores the time of a refused creation in the registration that exists.
func (s *Store) rememberRefusal(ctx context.Context, r Registration) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		object := &corev1.ConfigMap{}
		if err := s.live.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: r.Name()}, object); err != nil {
			return client.IgnoreNotFound(err)
		}
		metaSet(&object.Data, keyRefused, s.options.Clock.Now().UTC().Format(time.RFC3339))
		return client.IgnoreNotFound(s.live.Update(ctx, object))
	})
}

// Registration returns the registration with an id.
func (s *Store) Registration(ctx context.Context, g tokens.Grant, id string) (Registration, error) {
	if id == "" || len(id) > MaxID {
		return Registration{}, Fail(NotFound, "there is no challenge with this id")
	}
	key := client.ObjectKey{Namespace: g.Namespace, Name: RegistrationName(g, id)}
	object := &corev1.ConfigMap{}
	err := s.cache.Get(ctx, key, object)
	if apierrors.IsNotFound(err) { // another replica may have created it a moment ago
		err = s.live.Get(ctx, key, object)
	}
	if apierrors.IsNotFound(err) || err == nil && object.DeletionTimestamp != nil {
		return Registration{}, errUnregistered(g, id)
	}
	if err != nil {
		return Registration{}, err
	}
	return read(object)
}

// errUnregistered names the ways to register a challenge.
func errUnregistered(g tokens.Grant, id string) error {
	remedy := "start an instance of it first"
	if g.Endpoint == tokens.EndpointChallManager {
		remedy = "create it in the platform again. When you move an event, register all challenges with the plugin's page Import"
	}
	return Fail(NotFound, "challenge %s is not registered for the token key %q: %s", id, g.Name, remedy)
}

// Ensure returns the registration of a platform that registers nothing itself: its id is the name of a Challenge. It is called
// for each request, and writes only for the first one of a Challenge.
func (s *Store) Ensure(ctx context.Context, g tokens.Grant, challenge string) (Registration, error) {
	r, err := s.Registration(ctx, g, challenge)
	if !Is(err, NotFound) {
		return r, err
	}
	r = NewRegistration(g, challenge)
	r.Scenario = challenge
	r, err = s.register(ctx, r)
	if Is(err, Exists) { // another replica was faster
		return s.Registration(ctx, g, challenge)
	}
	return r, err
}

// Registrations returns all registrations of a token's key, by their ids. It omits ConfigMaps that are not valid
// registrations.
func (s *Store) Registrations(ctx context.Context, g tokens.Grant) ([]Registration, error) {
	var list corev1.ConfigMapList
	if err := s.cache.List(ctx, &list, client.InNamespace(g.Namespace), client.MatchingLabels{LabelRegistration: g.Endpoint}); err != nil {
		return nil, err
	}
	all := make([]Registration, 0, len(list.Items))
	for n := range list.Items {
		if r, err := read(&list.Items[n]); err == nil && r.Token == g.Name && list.Items[n].DeletionTimestamp == nil {
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
// conflict it is called again with the newer version. Nothing is written if it returns an error. It repeats until no other client
// writes in between, or ctx ends.
func (s *Store) Update(ctx context.Context, g tokens.Grant, id string, change func(*Registration) error) (Registration, error) {
	var before, after Registration
	for {
		object := &corev1.ConfigMap{}
		err := s.live.Get(ctx, client.ObjectKey{Namespace: g.Namespace, Name: RegistrationName(g, id)}, object)
		if apierrors.IsNotFound(err) || len(id) > MaxID {
			return before, errUnregistered(g, id)
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
		after.ID, after.Endpoint, after.Token, after.Namespace, after.UID = before.ID, before.Endpoint, before.Token, before.Namespace, before.UID
		if err := s.check(ctx, after, before); err != nil {
			return before, err
		}
		if after != before {
			as := after.configMap()
			object.Data = as.Data
			metaSet(&object.Labels, bergv1.LabelManagedBy, bergv1.ManagedByAPI)
			delete(object.Labels, bergv1.LabelPrepullChallenge)
			delete(object.Labels, bergv1.LabelWarm)
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
// replica creates at the same moment may be missing and keeps the earlier values. If it fails half-way, the registration has the
// new values and the remaining instances keep the earlier ones: a repeated call finds no difference.
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
			changed.Spec.Timeout, changed.Spec.Until = after.timeout(startOrNow(i, s.options.Clock.Now()), renewedAt(i)), after.latestEnd()
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
func (s *Store) Unregister(ctx context.Context, g tokens.Grant, id string) error {
	object := &corev1.ConfigMap{}
	err := s.live.Get(ctx, client.ObjectKey{Namespace: g.Namespace, Name: RegistrationName(g, id)}, object)
	if apierrors.IsNotFound(err) || len(id) > MaxID || err == nil && object.DeletionTimestamp != nil {
		return errUnregistered(g, id)
	}
	if err != nil {
		return err
	}
	refused, err := time.Parse(time.RFC3339, object.Data[keyRefused])
	if err == nil && s.options.Clock.Since(refused) < refusalWindow {
		return Fail(Refused, "challenge %s exists since before its creation was refused, so it is kept: delete it a minute later, or delete ConfigMap %s/%s", id, g.Namespace, object.Name)
	}
	uid := object.UID
	err = s.live.Delete(ctx, object, client.Preconditions{UID: &uid})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return Fail(NotFound, "challenge %s is not registered any more", id)
	}
	if err != nil {
		return err
	}
	return s.until(ctx, waitKey(object), func() (bool, error) {
		found := &corev1.ConfigMap{}
		err := s.cache.Get(ctx, client.ObjectKeyFromObject(object), found)
		return err != nil || found.UID != uid || found.DeletionTimestamp != nil, client.IgnoreNotFound(err)
	})
}

// startOrNow is the time at which the lifetime of an instance starts: now if it has not started yet.
func startOrNow(i *bergv1.ChallengeInstance, now time.Time) time.Time {
	if begin := view.TimeoutFrom(i); begin != nil && begin.Time.Before(now) {
		return begin.Time
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
