package retention

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kibaship/naming"
	"github.com/bergctf/berg-operator/internal/kibaship/registry"
	"github.com/bergctf/berg-operator/internal/kit/apply"
)

// The Secret with the login that may delete: .dockerconfigjson, and ca.crt where the registry has authorities of its own. It has a namespace of
// its own, since the operator may have rights on all Secrets of the one where it runs.
const (
	loginNamespace = "kibaship-images"
	loginName      = "cleanup"
)

// authorityKey is the key of that Secret with certificates of authorities.
const authorityKey = "ca.crt"

// workloads are the kinds of Kubernetes that run images, or keep a template for it, in the namespace of a Project.
var workloads = []schema.GroupVersionKind{
	{Version: "v1", Kind: "Pod"},
	{Version: "v1", Kind: "PodTemplate"},
	{Version: "v1", Kind: "ReplicationController"},
	{Group: "apps", Version: "v1", Kind: "Deployment"},
	{Group: "apps", Version: "v1", Kind: "ReplicaSet"},
	{Group: "apps", Version: "v1", Kind: "StatefulSet"},
	{Group: "apps", Version: "v1", Kind: "DaemonSet"},
	{Group: "apps", Version: "v1", Kind: "ControllerRevision"},
	{Group: "batch", Version: "v1", Kind: "Job"},
	{Group: "batch", Version: "v1", Kind: "CronJob"},
}

// pageSize bounds the answers of the API server.
const pageSize = 500

// repository returns where the images of an Application are, and what the names of its runs begin with. ok: the Application is in the
// namespace of its Project, so no other one has this repository.
func (r *Reconciler) repository(ctx context.Context, a *kibashipv1.Application) (repository, runs string, ok bool, err error) {
	project := a.Spec.ProjectRef.Name
	slug, fits := naming.Application(a.Name, project)
	if !fits || a.Namespace != naming.Namespace(project) {
		return "", "", false, nil
	}
	p := &kibashipv1.Project{}
	if err := r.Client.Get(ctx, client.ObjectKey{Name: project}, p); err != nil {
		return "", "", false, apply.IgnoreAbsent(err)
	}
	ok = p.DeletionTimestamp == nil && p.Status.NamespaceName == a.Namespace
	return r.Config.Builds.Registry + "/" + project + "/" + slug, "project-" + project + "-app-", ok, nil
}

// open returns the repository with the login of the Secret.
func (r *Reconciler) open(ctx context.Context, repository string) (*registry.Repository, error) {
	secret := &corev1.Secret{}
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: loginNamespace, Name: loginName}, secret)
	switch {
	case apply.Absent(err):
		return nil, fmt.Errorf("secret %s does not exist in namespace %s: create it with the login that may delete images", loginName, loginNamespace)
	case err != nil:
		return nil, fmt.Errorf("read Secret %s in namespace %s, see config/kibaship/retention: %w", loginName, loginNamespace, err)
	}
	logins, err := registry.ParseLogins(secret.Data[registry.ConfigKey])
	if err != nil {
		return nil, fmt.Errorf("key %s of Secret %s: %w", registry.ConfigKey, loginName, err)
	}
	through, err := registry.Transport(secret.Data[authorityKey], registry.Public)
	if err != nil {
		return nil, fmt.Errorf("key %s of Secret %s: %w", authorityKey, loginName, err)
	}
	return registry.OpenRepository(repository, logins, through)
}

// each calls do with each page of a list, or with all of it if the options have no limit: the cache has no pages.
func each[L client.ObjectList](ctx context.Context, from client.Reader, newList func() L, do func(L), options ...client.ListOption) error {
	limit := (&client.ListOptions{}).ApplyOptions(options).Limit
	for page := ""; ; {
		list := newList()
		if err := from.List(ctx, list, append(slices.Clip(options), client.Continue(page))...); err != nil {
			return err
		}
		do(list)
		if page = list.GetContinue(); page == "" || limit == 0 {
			return nil
		}
	}
}

// readNames reads which images of a repository Applications and Deployments name, in any Project. building: a build of the Application runs,
// or is about to. An image of this repository may be used by another Project, so all namespaces are read.
func readNames(ctx context.Context, from client.Reader, a *kibashipv1.Application, named *Names, options ...client.ListOption) (building bool, err error) {
	if err := each(ctx, from, func() *kibashipv1.DeploymentList { return &kibashipv1.DeploymentList{} }, func(list *kibashipv1.DeploymentList) {
		for i := range list.Items {
			d := &list.Items[i]
			builds := d.Namespace == a.Namespace && d.Spec.ApplicationRef.Name == a.Name
			named.addDeployment(d, builds)
			building = building || builds && unsettled(d)
		}
	}, options...); err != nil {
		return false, err
	}
	return building, each(ctx, from, func() *kibashipv1.ApplicationList { return &kibashipv1.ApplicationList{} }, func(list *kibashipv1.ApplicationList) {
		for i := range list.Items {
			named.addApplication(&list.Items[i])
		}
	}, options...)
}

// unsettled reports whether a Deployment builds, or may be about to. A Deployment that the operator has not seen in its latest
// generation counts, since its build may start at any moment.
func unsettled(d *kibashipv1.Deployment) bool {
	s := &d.Status
	return s.ObservedGeneration != d.Generation || s.Phase == kibashipv1.DeploymentInitializing || s.Phase == kibashipv1.DeploymentRunning ||
		s.CurrentPipelineRun != nil && s.CurrentPipelineRun.Phase == kibashipv1.DeploymentRunning
}

// readWorkloads reads which images the workloads in a namespace name.
func (r *Reconciler) readWorkloads(ctx context.Context, namespace string, named *Names) error {
	for _, kind := range workloads {
		err := each(ctx, r.Live, func() *unstructured.UnstructuredList {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
			return list
		}, func(list *unstructured.UnstructuredList) {
			for i := range list.Items {
				named.addObject(list.Items[i].Object)
			}
		}, client.InNamespace(namespace), client.Limit(pageSize))
		if err != nil {
			return fmt.Errorf("read the images of workloads: %w", err)
		}
	}
	return nil
}
