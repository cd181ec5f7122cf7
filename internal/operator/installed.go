package operator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	authorization "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/internal/kit/backoff"
	"github.com/bergctf/berg-operator/internal/kit/family"
)

// Installation finds out which families a cluster has, for an operator whose settings name none: a family counts if the API
// server serves its kinds and the operator may watch its resources. The CRDs alone do not count: they may belong to another
// operator, or be left over from a family that was removed. It asks the API server and no cache, because without a family there
// is none.
type Installation struct {
	all       []family.Family
	discovery discovery.DiscoveryInterface
	access    authorization.SelfSubjectAccessReviewInterface
	metadata  metadata.Interface
	log       logr.Logger
}

// NewInstallation returns an Installation that detects all families.
func NewInstallation(restConfig *rest.Config, all []family.Family, log logr.Logger) (*Installation, error) {
	discovered, err := discovery.NewDiscoveryClientForConfig(restConfig)
	if err != nil {
		return nil, err
	}
	access, err := authorization.NewForConfig(restConfig)
	if err != nil {
		return nil, err
	}
	objects, err := metadata.NewForConfig(restConfig)
	if err != nil {
		return nil, err
	}
	return &Installation{all, discovered, access.SelfSubjectAccessReviews(), objects, log}, nil
}

// Families returns the families that the cluster has, and whether it has a part of another one.
func (i *Installation) Families(ctx context.Context) (found []family.Family, incomplete bool, err error) {
	for _, f := range i.all {
		state, err := i.inspect(ctx, f)
		if err != nil {
			return nil, false, fmt.Errorf("find out whether %s is installed: %w", f.API, err)
		}
		switch state {
		case whole:
			found = append(found, f)
		case partial:
			incomplete = true
		}
	}
	return found, incomplete, nil
}

// extent is how much of a family a cluster has.
type extent int

const (
	absent extent = iota
	// partial is a family without one of its kinds, or without the rights of the operator.
	partial
	whole
)

// inspect finds out whether all kinds of a family are served, and the operator may watch one: some kinds have optional rights.
func (i *Installation) inspect(ctx context.Context, f family.Family) (extent, error) {
	versions, err := familyKinds(f)
	if err != nil {
		return absent, err
	}
	var resources []schema.GroupVersionResource
	for version, kinds := range versions {
		served, err := i.discovery.ServerResourcesForGroupVersion(version.String())
		if apierrors.IsNotFound(err) {
			return absent, nil
		}
		if err != nil {
			return absent, err
		}
		for _, kind := range kinds {
			index := slices.IndexFunc(served.APIResources, func(r metav1.APIResource) bool { return r.Kind == kind && !strings.Contains(r.Name, "/") })
			if index < 0 {
				return partial, nil
			}
			resources = append(resources, version.WithResource(served.APIResources[index].Name))
		}
	}
	for _, resource := range resources {
		if may, err := i.mayWatch(ctx, resource); err != nil || may {
			return whole, err
		}
	}
	return partial, nil
}

// familyKinds returns the kinds of the family's own group, by version.
func familyKinds(f family.Family) (map[schema.GroupVersion][]string, error) {
	scheme, err := NewScheme(f)
	if err != nil {
		return nil, err
	}
	kinds := map[schema.GroupVersion][]string{}
	for gvk := range scheme.AllKnownTypes() {
		if gvk.Group != f.API || gvk.Version == runtime.APIVersionInternal {
			continue
		}
		instance, err := scheme.New(gvk)
		if err != nil {
			return nil, err
		}
		if _, isObject := instance.(client.Object); isObject {
			kinds[gvk.GroupVersion()] = append(kinds[gvk.GroupVersion()], gvk.Kind)
		}
	}
	return kinds, nil
}

// mayWatch asks the API server, because RBAC is not the only authorizer.
func (i *Installation) mayWatch(ctx context.Context, resource schema.GroupVersionResource) (bool, error) {
	review, err := i.access.Create(ctx, &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "watch", Group: resource.Group, Version: resource.Version, Resource: resource.Resource,
		},
	}}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}

// absentDelays are the delays between checks for a family while there is none.
var absentDelays = backoff.Exponential{First: time.Second, Max: 15 * time.Second}

// Await returns the families that the cluster has, as soon as there is one, or with the error of ctx. Until then the probes
// report alive and not ready.
func (i *Installation) Await(ctx context.Context, probes string) ([]family.Family, error) {
	found, _, err := i.Families(ctx)
	if err != nil || len(found) > 0 {
		return found, err
	}
	stop, err := serveAlive(probes, "no API of the operator is installed", i.log)
	if err != nil {
		return nil, err
	}
	defer stop()
	i.log.Info("no API of the operator is installed: install the CRDs and the rights of one, or name it in ENABLED_APIS")
	for attempt := 1; ; attempt++ {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(absentDelays.After(attempt)):
		}
		if found, _, err = i.Families(ctx); err != nil || len(found) > 0 {
			return found, err
		}
	}
}

// completionDelays are the delays between checks after a CRD has changed: it is served after its last event, and the rights
// of its family may be installed later. They grow so far that the checks for a CRD of another operator cost next to nothing.
var completionDelays = backoff.Exponential{First: 500 * time.Millisecond, Max: 5 * time.Minute}

// completionChecks is the number of checks that follow a change: two minutes of them.
const completionChecks = 8

// AwaitChange returns nil when the cluster no longer has exactly the families that run: one was installed or removed, and
// the process has to start again. Otherwise it returns the error of ctx. It follows the CRDs of the cluster, without
// storing them; without the right to do so an administrator restarts the operator.
func (i *Installation) AwaitChange(ctx context.Context, running []family.Family) error {
	definitions := apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")
	if may, err := i.mayWatch(ctx, definitions); err != nil || !may {
		i.log.Info("CRDs are not followed: restart the operator after you install another of its APIs", "error", err)
		<-ctx.Done()
		return ctx.Err()
	}
	changes := definitionStore{apiNames(i.all), make(chan bool, 1)}
	crds := i.metadata.Resource(definitions)
	reflector := cache.NewReflectorWithOptions(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return crds.List(ctx, options)
		},
		WatchFuncWithContext: crds.Watch,
	}, &metav1.PartialObjectMetadata{}, changes, cache.ReflectorOptions{Name: "APIs of the operator"})
	go reflector.RunWithContext(ctx)

	checks := 0
	var retry <-chan time.Time // nil: the next check is after a change
	for {
		listed := false
		select {
		case <-ctx.Done():
			return ctx.Err()
		case event := <-changes.happened:
			checks, listed = 0, !event
		case <-retry:
			checks++
		}
		found, incomplete, err := i.Families(ctx)
		if listed && err == nil && !incomplete {
			checks = completionChecks // nothing is being installed
		}
		// The process starts again instead of adding controllers: a manager cannot remove any, and a cache cannot get another
		// scheme.
		if err == nil && !slices.Equal(apiNames(found), apiNames(running)) {
			i.log.Info("an API was installed or removed: the operator starts again", "before", apiNames(running), "now", apiNames(found))
			return nil
		}
		// After completionChecks without a change only an event leads to the next check, so that an operator that is left alone
		// asks nothing.
		retry = nil
		if err != nil || incomplete || checks < completionChecks {
			retry = time.After(completionDelays.After(checks + 1))
		}
	}
}

func apiNames(all []family.Family) []string {
	apis := make([]string, len(all))
	for i, f := range all {
		apis[i] = f.API
	}
	return apis
}

// definitionStore is a store of CRDs that keeps none, and reports changes to CRDs of some API groups.
type definitionStore struct {
	groups []string
	// happened has capacity for one change: true for an event, false for a list.
	happened chan bool
}

var _ cache.ReflectorStore = definitionStore{}

// event goes by the name alone, so that the store needs no content of a CRD.
func (s definitionStore) event(object any) error {
	if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = unknown.Obj
	}
	definition, ok := object.(metav1.Object)
	if !ok {
		return fmt.Errorf("%T has no metadata", object)
	}
	// A CRD is named <plural>.<group>.
	if _, group, _ := strings.Cut(definition.GetName(), "."); slices.Contains(s.groups, group) {
		s.send(true)
	}
	return nil
}

// send replaces a change that nothing has received yet.
func (s definitionStore) send(isEvent bool) {
	select {
	case earlier := <-s.happened:
		isEvent = isEvent || earlier
	default:
	}
	s.happened <- isEvent
}

// Add, Update and Delete report an event.
func (s definitionStore) Add(object any) error    { return s.event(object) }
func (s definitionStore) Update(object any) error { return s.event(object) }
func (s definitionStore) Delete(object any) error { return s.event(object) }

// Replace reports a list, after the start and after a connection was lost. Each CRD in it that is not served yet has events
// to come.
func (s definitionStore) Replace([]any, string) error {
	s.send(false)
	return nil
}

// Resync does nothing: nothing is kept.
func (definitionStore) Resync() error { return nil }
