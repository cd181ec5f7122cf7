package instances

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/view"
	"github.com/bergctf/berg-operator/internal/platform/tokens"
)

// show returns the platform's view of an instance. The Challenge may be deleted already: the view then has no static
// flag.
func (s *Store) show(ctx context.Context, r Registration, i *bergv1.ChallengeInstance) (Instance, error) {
	challenge, err := s.challenge(ctx, r.Namespace, i.Spec.ChallengeRef.Name)
	if err != nil && !Is(err, Invalid) {
		return Instance{}, err
	}
	return newInstance(i, r, challenge), nil
}

// current returns the live instance of a source, as the API server has it, and the superseded instances that another
// replica created a moment later. It never reads the cache, since a write follows.
func (s *Store) current(ctx context.Context, r Registration, source string) (current *bergv1.ChallengeInstance, superseded []*bergv1.ChallengeInstance, err error) {
	all, err := s.confirmed(ctx, r, source, "")
	if err != nil {
		return nil, nil, err
	}
	if current, superseded, _ = live(all); current == nil {
		return nil, nil, noInstance(r, source)
	}
	return current, superseded, nil
}

func noInstance(r Registration, source string) error {
	return failPlayers(NotFound, "You have no instance of this challenge.", "source %s has no instance of challenge %s", source, r.ID)
}

// Instance returns the live instance of a source, from the cache. It asks the API server if the cache has none, because
// another replica may have just created it.
func (s *Store) Instance(ctx context.Context, r Registration, source string) (Instance, error) {
	if err := CheckSource(source); err != nil {
		return Instance{}, err
	}
	all, err := s.cached(ctx, r, source)
	if err != nil {
		return Instance{}, err
	}
	current, _, _ := live(all)
	if current == nil {
		if current, _, err = s.current(ctx, r, source); err != nil {
			return Instance{}, err
		}
	}
	return s.show(ctx, r, current)
}

// Stopping reports whether an instance of a source is being deleted, as the cache has it. It may be late by the lag of the
// cache: only the answer to a client depends on it.
func (s *Store) Stopping(ctx context.Context, r Registration, source string) (bool, error) {
	all, err := s.cached(ctx, r, source)
	if err != nil {
		return false, err
	}
	current, _, ending := live(all)
	return current == nil && len(ending) > 0, nil
}

// Sources returns the instances of a source, or with source "" of all, by registration of a token's key.
func (s *Store) Sources(ctx context.Context, g tokens.Grant, source string) ([]Instance, error) {
	registrations, err := s.Registrations(ctx, g)
	if err != nil {
		return nil, err
	}
	byUID := make(map[types.UID]Registration, len(registrations))
	for _, r := range registrations {
		byUID[r.UID] = r
	}
	options := []client.ListOption{client.InNamespace(g.Namespace)}
	if source != "" {
		options = append(options, client.MatchingFields{indexSource: source})
	}
	var list bergv1.ChallengeInstanceList
	if err := s.cache.List(ctx, &list, options...); err != nil {
		return nil, err
	}
	return s.views(ctx, list.Items, byUID)
}

// ByRegistration returns the live instances of a registration.
func (s *Store) ByRegistration(ctx context.Context, r Registration) ([]Instance, error) {
	var list bergv1.ChallengeInstanceList
	err := s.cache.List(ctx, &list, client.InNamespace(r.Namespace), client.MatchingFields{indexRegistration: string(r.UID)})
	if err != nil {
		return nil, err
	}
	return s.views(ctx, list.Items, map[types.UID]Registration{r.UID: r})
}

// views leaves out instances that are ending, and instances of other registrations.
func (s *Store) views(ctx context.Context, items []bergv1.ChallengeInstance, registrations map[types.UID]Registration) ([]Instance, error) {
	all := make([]Instance, 0, len(items))
	for n := range items {
		i := &items[n]
		r, ours := registrations[registrationUID(i)]
		if !ours || view.IsEnding(i) {
			continue
		}
		shown, err := s.show(ctx, r, i)
		if err != nil {
			return nil, err
		}
		all = append(all, shown)
	}
	sortInstances(all)
	return all, nil
}

// Changes returns a channel that gets a value after a change of any instance of a namespace, and a function to call at the end.
func (s *Store) Changes(namespace string) (changed <-chan struct{}, stop func()) {
	return s.changes.Wait(namespaceWaitKey(namespace))
}
