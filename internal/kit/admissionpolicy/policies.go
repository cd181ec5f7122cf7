package admissionpolicy

import (
	"context"
	"fmt"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	kitcache "github.com/bergctf/berg-operator/internal/kit/cache"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// Policies are the policies that the families of one process follow. It watches only these, each by its name, so that the
// operator needs no right to other policies; and none if no family asks for one.
type Policies struct {
	mgr    ctrl.Manager
	scheme *runtime.Scheme

	mu       sync.Mutex
	followed map[string]*Policy
}

// New returns Policies without a watch.
func New(mgr ctrl.Manager) (*Policies, error) {
	scheme := runtime.NewScheme()
	if err := admissionregistrationv1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	return &Policies{mgr: mgr, scheme: scheme, followed: map[string]*Policy{}}, nil
}

// Follow opens the watches of a policy and of its binding, which must have the same name. All callers of one name share them. It is to be
// called before the manager starts, and needs the right to list and watch both by their name. install is the command that
// installs the policy; it is part of messages.
func (p *Policies) Follow(ctx context.Context, name, install string) (*Policy, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if followed := p.followed[name]; followed != nil {
		return followed, nil
	}
	// RBAC allows list and watch of a name only if the request selects that name, so each policy needs a cache with its own field
	// selector.
	own, err := kitcache.OfReplica(p.mgr, cache.Options{Scheme: p.scheme, DefaultFieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name)})
	if err != nil {
		return nil, fmt.Errorf("follow the admission policy %s: %w", name, err)
	}
	if err := reconcile.Open(ctx, own, kinds()...); err != nil {
		return nil, err
	}
	followed := &Policy{name: name, install: install, cache: own}
	p.followed[name] = followed
	return followed, nil
}

func kinds() []client.Object {
	return []client.Object{&admissionregistrationv1.ValidatingAdmissionPolicy{}, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}}
}

// Policy is a policy that is followed, and its binding.
type Policy struct {
	name, install string
	cache         cache.Cache
}

// Watch has a controller call handle for each change of the policies and their bindings.
func Watch(controllers *builder.Builder, handle handler.EventHandler, policies ...*Policy) *builder.Builder {
	for _, p := range policies {
		for _, kind := range kinds() {
			// The API server also writes a status, when it has checked the types of a policy.
			controllers = controllers.WatchesRawSource(source.Kind(p.cache, kind, handle, predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, reconcile.Replaced)))
		}
	}
	return controllers
}

// Missing returns a sentence for administrators about the first of some policies that is not in force; empty if all are.
func Missing(ctx context.Context, policies ...*Policy) (string, error) {
	for _, p := range policies {
		gap, err := Read(ctx, p.cache, p.name)
		if err != nil {
			return "", fmt.Errorf("read the admission policy %s: %w", p.name, err)
		}
		if gap != "" {
			return fmt.Sprintf("The admission policy %s is not in force: %s. Nothing new starts that relies on it until an administrator installs it: %s", p.name, gap, p.install), nil
		}
	}
	return "", nil
}

// Read reads a policy and the binding of its name, and returns the Gap of both.
func Read(ctx context.Context, reader client.Reader, name string) (gap string, err error) {
	policy, binding := &admissionregistrationv1.ValidatingAdmissionPolicy{}, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
	key := client.ObjectKey{Name: name}
	if err := reader.Get(ctx, key, policy); apierrors.IsNotFound(err) {
		policy = nil
	} else if err != nil {
		return "", err
	}
	if err := reader.Get(ctx, key, binding); apierrors.IsNotFound(err) {
		binding = nil
	} else if err != nil {
		return "", err
	}
	return Gap(policy, binding), nil
}
