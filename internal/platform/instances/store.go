package instances

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/redact"
	"github.com/bergctf/berg-operator/internal/platform/changes"
)

// The indexes of the cache.
const (
	// indexPair finds the instances of a registration's UID and a source.
	indexPair = "pair"
	// indexRegistration finds the instances of a registration's UID.
	indexRegistration = "registration"
	// indexSource finds the instances of a source.
	indexSource = "source"
)

// Options are the limits and timeouts of the Store.
type Options struct {
	// Namespaces of platforms. Default: none, which serves none.
	Namespaces []string
	// BootWait is the maximum time to wait for a start. The caller sets it; the platform API uses 45s.
	BootWait time.Duration
	// ReadWait is the maximum time that a read waits for an instance that starts.
	ReadWait time.Duration
	// Allow reports whether a source may start, renew or stop an instance now. Nil: always.
	Allow func(source string) bool
	// Clock of the Store. Nil: the real one.
	Clock clock.WithTicker
	// Log of what organisers should know. Nil: none.
	Log *slog.Logger
}

// Store manages the instances of all platforms. Its methods may be called concurrently, and by several replicas.
type Store struct {
	options Options
	cache   cache.Cache
	// live reads and writes without the cache.
	live client.Client
	// changes tells those who wait that the cache has something new. It carries no content.
	changes changes.Changes
}

// Scheme has the kinds that the API reads and writes.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(bergv1.AddToScheme(scheme))
	return scheme
}

// New returns a Store for a cluster. Start fills its cache.
func New(config *rest.Config, options Options) (*Store, error) {
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	if options.Log == nil {
		options.Log = slog.New(slog.DiscardHandler)
	}
	namespaces := map[string]cache.Config{}
	for _, name := range options.Namespaces {
		namespaces[name] = cache.Config{}
	}
	registered, err := labels.NewRequirement(LabelRegistration, selection.Exists, nil)
	if err != nil {
		return nil, err
	}
	scheme := Scheme()
	shared := ptr.To(true) // no caller modifies objects from the cache, so they need no copy
	cached, err := cache.New(config, cache.Options{
		Scheme: scheme, DefaultNamespaces: namespaces, DefaultTransform: Trim, DefaultUnsafeDisableDeepCopy: shared,
		ByObject: map[client.Object]cache.ByObject{
			&corev1.ConfigMap{}: {Label: labels.NewSelector().Add(*registered)},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("make the cache: %w", err)
	}
	direct, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("make the client: %w", err)
	}
	return &Store{options: options, cache: cached, live: redact.Client(direct)}, nil
}

// Trim reduces objects to the fields that the API and the live page read, before the cache stores them. Others may write as large
// objects as they like. It keeps a flag only in instances whose platform may ask for it. A field that a reader of the cache newly
// needs must be kept here.
func Trim(object any) (any, error) {
	if o, ok := object.(client.Object); ok {
		trimMetadata(o)
	}
	switch o := object.(type) {
	case *bergv1.ChallengeInstance:
		o.Status.PendingChanges, o.Status.Start = nil, nil
		o.Status.Seed, o.Status.NamespaceTokenHash = "", ""
		if registrationUID(o) == "" {
			o.Spec.Flag = ""
		}
	case *bergv1.Challenge:
		o.Spec = trimSpec(&o.Spec)
	case *corev1.ConfigMap:
		o.BinaryData = nil
		for key, value := range o.Data {
			if len(value) > maxValue || !slices.Contains(dataKeys, key) {
				delete(o.Data, key)
			}
		}
	}
	return object, nil
}

// maxValue is the maximum length of an annotation, and of a value of a registration, in the cache. What this API writes is shorter.
const maxValue = 1 << 10

// trimMetadata keeps the labels and annotations that are read, and the owner of an instance.
func trimMetadata(o client.Object) {
	o.SetManagedFields(nil)
	o.SetFinalizers(nil)
	o.SetLabels(only(o.GetLabels(), LabelRegistration, bergv1.LabelSource))
	o.SetAnnotations(only(o.GetAnnotations(), AnnotationRenewedAt, bergv1.AnnotationFrozen))
	var owners []metav1.OwnerReference
	if controller := metav1.GetControllerOf(o); controller != nil {
		owners = append(owners, *controller)
	}
	o.SetOwnerReferences(owners)
}

// only returns the entries with some keys. A long value is cut.
func only(all map[string]string, keys ...string) map[string]string {
	kept := map[string]string{}
	for _, key := range keys {
		if value, ok := all[key]; ok {
			kept[key] = strings.Clone(value[:min(len(value), maxValue)])
		}
	}
	return kept
}

// trimSpec reduces the spec of a Challenge to the fields for flags and for the resources of its instances: no variable,
// no command.
func trimSpec(spec *bergv1.ChallengeSpec) bergv1.ChallengeSpec {
	kept := bergv1.ChallengeSpec{
		Flag: spec.Flag, FlagFormat: spec.FlagFormat, DynamicFlagMode: spec.DynamicFlagMode, DisplayName: spec.DisplayName, MaxInstances: spec.MaxInstances,
	}
	for _, c := range spec.Containers {
		container := bergv1.Container{
			Hostname: c.Hostname, DynamicFlag: c.DynamicFlag, ResourceRequests: c.ResourceRequests, ResourceLimits: c.ResourceLimits,
		}
		for _, p := range c.Ports {
			container.Ports = append(container.Ports, bergv1.Port{Port: p.Port, Type: p.Type, Protocol: p.Protocol})
		}
		kept.Containers = append(kept.Containers, container)
	}
	return kept
}

// Watch lets a handler follow the objects of a kind that the cache holds. synced reports whether the handler has all that exist.
func (s *Store) Watch(ctx context.Context, kind client.Object, handler toolscache.ResourceEventHandler) (synced toolscache.InformerSynced, err error) {
	informer, err := s.cache.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watch %T: %w", kind, err)
	}
	registration, err := informer.AddEventHandler(handler)
	if err != nil {
		return nil, err
	}
	return registration.HasSynced, nil
}

// Start fills the cache and keeps it current until ctx is done.
func (s *Store) Start(ctx context.Context) error {
	for name, extract := range map[string]func(*bergv1.ChallengeInstance) string{
		indexPair:         func(i *bergv1.ChallengeInstance) string { return instancePair(i) },
		indexRegistration: func(i *bergv1.ChallengeInstance) string { return string(registrationUID(i)) },
		indexSource:       func(i *bergv1.ChallengeInstance) string { return i.Labels[bergv1.LabelSource] },
	} {
		err := s.cache.IndexField(ctx, &bergv1.ChallengeInstance{}, name, func(o client.Object) []string {
			i, ok := o.(*bergv1.ChallengeInstance)
			if !ok {
				return nil
			}
			return []string{extract(i)}
		})
		if err != nil {
			return fmt.Errorf("index %s: %w", name, err)
		}
	}
	for kind, handler := range map[client.Object]toolscache.ResourceEventHandler{
		&corev1.ConfigMap{}: s.handler(), &bergv1.ChallengeInstance{}: s.handler(), &bergv1.Challenge{}: toolscache.ResourceEventHandlerFuncs{},
	} {
		if _, err := s.Watch(ctx, kind, handler); err != nil {
			return err
		}
	}
	return s.cache.Start(ctx)
}

// Synced waits until the cache is complete, and reports whether it is.
func (s *Store) Synced(ctx context.Context) bool { return s.cache.WaitForCacheSync(ctx) }

// registrationUID is the UID of the registration that owns an instance; "" if none does.
func registrationUID(i *bergv1.ChallengeInstance) types.UID {
	for _, o := range i.OwnerReferences {
		if o.Kind == "ConfigMap" && o.APIVersion == "v1" && o.Controller != nil && *o.Controller {
			return o.UID
		}
	}
	return ""
}

func instancePair(i *bergv1.ChallengeInstance) string {
	return pair(registrationUID(i), i.Labels[bergv1.LabelSource])
}

func pair(registration types.UID, source string) string { return string(registration) + "/" + source }

// cached returns the instances of a pair, as the cache has them. It is good for answers. A decision to write needs confirmed.
func (s *Store) cached(ctx context.Context, r Registration, source string) ([]bergv1.ChallengeInstance, error) {
	var list bergv1.ChallengeInstanceList
	err := s.cache.List(ctx, &list, client.InNamespace(r.Namespace), client.MatchingFields{indexPair: pair(r.UID, source)})
	return list.Items, err
}

// confirmed returns the instances of a pair, as the API server has them. With a token, which is a resource version, it
// returns exactly the state of that version, and fails if the API server has compacted it; with "" the current state.
func (s *Store) confirmed(ctx context.Context, r Registration, source, token string) ([]bergv1.ChallengeInstance, error) {
	options := &client.ListOptions{
		Namespace:     r.Namespace,
		LabelSelector: labels.SelectorFromSet(labels.Set{LabelRegistration: r.Name(), bergv1.LabelSource: source}),
	}
	if token != "" {
		options.Raw = exactly(token)
	}
	var list bergv1.ChallengeInstanceList
	if err := s.live.List(ctx, &list, options); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(i bergv1.ChallengeInstance) bool { return registrationUID(&i) != r.UID }), nil
}

// exactly are options for the state at a resource version.
func exactly(version string) *metav1.ListOptions {
	return &metav1.ListOptions{ResourceVersion: version, ResourceVersionMatch: metav1.ResourceVersionMatchExact}
}

// challenge returns a Challenge, from the cache if it is there.
func (s *Store) challenge(ctx context.Context, namespace, name string) (*bergv1.Challenge, error) {
	found := &bergv1.Challenge{}
	key := client.ObjectKey{Namespace: namespace, Name: name}
	err := s.cache.Get(ctx, key, found)
	if apierrors.IsNotFound(err) && name != "" {
		err = s.live.Get(ctx, key, found)
	}
	if apierrors.IsNotFound(err) || name == "" {
		return nil, s.unknownChallenge(ctx, namespace, name)
	}
	return found, err
}

// unknownChallenge returns an error that lists the existing Challenges.
func (s *Store) unknownChallenge(ctx context.Context, namespace, name string) error {
	const limit = 50
	names, err := s.Challenges(ctx, namespace)
	if err != nil {
		return err
	}
	switch {
	case len(names) == 0:
		return Fail(Invalid, "there is no Challenge %q: namespace %s has none. Apply the Challenge first", name, namespace)
	case len(names) > limit:
		names = append(names[:limit:limit], "…")
	}
	return Fail(Invalid, "there is no Challenge %q in namespace %s. Those that exist: %s", name, namespace, strings.Join(names, ", "))
}

// Challenges returns the names of all Challenges of a namespace, sorted.
func (s *Store) Challenges(ctx context.Context, namespace string) ([]string, error) {
	var list bergv1.ChallengeList
	if err := s.cache.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	names := make([]string, 0, len(list.Items))
	for _, c := range list.Items {
		names = append(names, c.Name)
	}
	slices.Sort(names)
	return names, nil
}

// waitKey is the key under which changes of an object are announced: the pair of an instance, or the name of a
// registration.
func waitKey(o client.Object) string {
	if i, ok := o.(*bergv1.ChallengeInstance); ok {
		return instancePair(i)
	}
	return o.GetNamespace() + "/" + o.GetName()
}

// namespaceWaitKey is the key under which changes of any instance of a namespace are announced.
func namespaceWaitKey(namespace string) string { return "instances of " + namespace }

// handler announces changes of instances and registrations. The key of a namespace also gets the creation and deletion
// of a registration, because only instances with a registration are shown. It does not get updates of a registration,
// whose content is not shown.
func (s *Store) handler() toolscache.ResourceEventHandler {
	notify := func(object any, all bool) {
		if gone, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
			object = gone.Obj
		}
		o, ok := object.(client.Object)
		if !ok {
			return
		}
		keys := []string{waitKey(o)}
		i, isInstance := o.(*bergv1.ChallengeInstance)
		if isInstance && registrationUID(i) == "" {
			return
		}
		if isInstance || all {
			keys = append(keys, namespaceWaitKey(o.GetNamespace()))
		}
		s.changes.Happened(keys...)
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { notify(object, true) },
		UpdateFunc: func(_, object any) { notify(object, false) },
		DeleteFunc: func(object any) { notify(object, true) },
	}
}
