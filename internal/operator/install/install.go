// Package install installs what a bundle of the Operator Lifecycle Manager cannot contain: admission policies, and the binding of a Role in
// the operator's own namespace, whose name the bundle does not know. It runs with an account of its own, because an operator that
// can change the policies that limit it has no limits.
package install

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	"sigs.k8s.io/yaml"

	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/admissionpolicy"
	"github.com/bergctf/berg-operator/internal/operator"
)

// Command, as the first argument of the program, runs the installer. The next argument is the name of the operator's account, of its
// Role and of its PriorityClass.
const Command = "install"

// installer keeps the policies in force and the Role bound. It writes only what differs. It holds no lease. Several replicas
// write the same, by server-side apply.
type installer struct {
	client.Client
	namespace, account string
	policies           []*unstructured.Unstructured
	followed           map[string]*admissionpolicy.Policy
	installed          atomic.Bool
}

// New returns a manager that installs the policies of manifests, ready to start.
func New(ctx context.Context, restConfig *rest.Config, process config.Process, account string, manifests []byte, skipNameValidation bool) (ctrl.Manager, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{admissionregistrationv1.AddToScheme, rbacv1.AddToScheme, schedulingv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	own := cache.ByObject{Namespaces: map[string]cache.Config{process.Namespace: {FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, account)}}}
	mgr, err := ctrl.NewManager(restConfig, ctrl.Options{
		Scheme: scheme, HealthProbeBindAddress: "0", Metrics: server.Options{BindAddress: "0"}, // operator.ServeProbes serves them
		Cache:      cache.Options{ByObject: map[client.Object]cache.ByObject{&rbacv1.Role{}: own, &rbacv1.RoleBinding{}: own}},
		Client:     client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&schedulingv1.PriorityClass{}}}},
		Controller: ctrlconfig.Controller{SkipNameValidation: ptr.To(skipNameValidation)},
	})
	if err != nil {
		return nil, fmt.Errorf("make the manager: %w", err)
	}
	i := &installer{Client: mgr.GetClient(), namespace: process.Namespace, account: account, followed: map[string]*admissionpolicy.Policy{}}
	if i.policies, err = parse(manifests); err != nil {
		return nil, err
	}
	follower, err := admissionpolicy.New(mgr)
	if err != nil {
		return nil, err
	}
	for _, p := range i.policies {
		if i.followed[p.GetName()], err = follower.Follow(ctx, p.GetName(), admissionpolicy.Install); err != nil {
			return nil, err
		}
	}
	enqueue := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{{}} })
	controllers := ctrl.NewControllerManagedBy(mgr).Named(Command).
		Watches(&rbacv1.Role{}, enqueue).Watches(&rbacv1.RoleBinding{}, enqueue).
		WatchesRawSource(source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			queue.Add(reconcile.Request{}) // before there is any object
			return nil
		}))
	err = admissionpolicy.Watch(controllers, enqueue, slices.Collect(maps.Values(i.followed))...).Complete(i)
	if err != nil {
		return nil, fmt.Errorf("set up the installer: %w", err)
	}
	return mgr, operator.ServeProbes(mgr, process.HealthProbeBindAddress, i.ready)
}

// parse returns the objects of a YAML file.
func parse(manifests []byte) (objects []*unstructured.Unstructured, err error) {
	for document := range strings.SplitSeq(string(manifests), "\n---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
			return nil, fmt.Errorf("parse the admission policies: %w", err)
		}
		if o.GetName() == "" { // a comment
			continue
		}
		objects = append(objects, o)
	}
	return objects, nil
}

func (i *installer) ready(*http.Request) error {
	if !i.installed.Load() {
		return errors.New("not everything is installed: the log says what is missing")
	}
	return nil
}

// Reconcile installs what differs. Policies of a later version stay.
func (i *installer) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	// An error of one object does not stop the others: each policy that is in force limits the operator.
	errs := []error{i.bind(ctx)}
	for _, p := range i.policies {
		missing, err := admissionpolicy.Missing(ctx, i.followed[p.GetName()])
		if err == nil && missing != "" {
			err = i.write(ctx, p)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("install %s %s: %w", p.GetKind(), p.GetName(), err))
		}
	}
	err := errors.Join(errs...)
	i.installed.Store(err == nil)
	return reconcile.Result{}, err
}

// write applies a policy, or its binding. The PriorityClass of each package that installs them owns them: they are deleted with
// the last. An owner reference to a cluster-scoped object of the package makes the garbage collector remove the policies with it:
// the installer is gone by then.
func (i *installer) write(ctx context.Context, policy *unstructured.Unstructured) error {
	class := &schedulingv1.PriorityClass{}
	if err := i.Get(ctx, client.ObjectKey{Name: i.account}, class); err != nil {
		return err
	}
	object := policy.DeepCopy()
	object.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: schedulingv1.SchemeGroupVersion.String(), Kind: "PriorityClass", Name: class.Name, UID: class.UID}})
	ctrl.LoggerFrom(ctx).Info("installing", "kind", object.GetKind(), "name", object.GetName())
	return i.apply(ctx, object)
}

// bind binds the Role to the operator's account, and to it alone. A package without such a Role needs no binding.
func (i *installer) bind(ctx context.Context) error {
	role, binding, key := &rbacv1.Role{}, &rbacv1.RoleBinding{}, client.ObjectKey{Namespace: i.namespace, Name: i.account}
	if err := i.Get(ctx, key, role); err != nil {
		return client.IgnoreNotFound(err)
	}
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: i.namespace, Name: i.account}}
	if err := i.Get(ctx, key, binding); err == nil && slices.Equal(binding.Subjects, subjects) {
		return nil
	} else if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	wanted := &rbacv1.RoleBinding{
		TypeMeta: metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "RoleBinding"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: i.namespace, Name: i.account, Labels: role.Labels,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "Role", Name: role.Name, UID: role.UID}},
		},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: i.account},
		Subjects: subjects,
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(wanted)
	if err != nil {
		return err
	}
	return i.apply(ctx, &unstructured.Unstructured{Object: content})
}

func (i *installer) apply(ctx context.Context, object *unstructured.Unstructured) error {
	return i.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner(i.account), client.ForceOwnership)
}
