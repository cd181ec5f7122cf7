package deployment

import (
	"cmp"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kibaship/application"
	"github.com/bergctf/berg-operator/internal/kit/apply"
)

// The Project counts only if its namespace is this one: the reference of an Application may name any Project.
func (r *Reconciler) observe(ctx context.Context, d *kibashipv1.Deployment) (o Observed, err error) {
	o.Deployment = d
	app := &kibashipv1.Application{ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: d.Spec.ApplicationRef.Name}}
	exists, err := apply.Find(ctx, r.Writer, app)
	if err != nil {
		return o, err
	}
	if exists {
		o.Application = app
		project := &kibashipv1.Project{}
		err := r.Client.Get(ctx, client.ObjectKey{Name: app.Spec.ProjectRef.Name}, project)
		if client.IgnoreNotFound(err) != nil {
			return o, err
		}
		if err == nil && project.Status.NamespaceName == d.Namespace {
			o.Project = project
		}
	}
	// Only a commit says what was built. A branch or a tag may have moved, so no sibling is asked.
	if source := d.Spec.GitRepository; source != nil && source.CommitSHA != "" {
		var siblings kibashipv1.DeploymentList
		if err := r.Client.List(ctx, &siblings, client.InNamespace(d.Namespace), client.MatchingFields{application.IndexApplication: d.Spec.ApplicationRef.Name},
			client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency); err != nil {
			return o, err
		}
		o.Siblings = siblings.Items
	}
	o.Tekton = r.hasTekton()
	if o.Tekton {
		if o.Runs, err = r.observeRuns(ctx, d); err != nil {
			return o, err
		}
	}
	return o, nil
}

// observeRuns reads the runs of a Deployment. A run of another owner may have the label. It is left out, as one that is being
// deleted is.
func (r *Reconciler) observeRuns(ctx context.Context, d *kibashipv1.Deployment) ([]Run, error) {
	options := []client.ListOption{
		client.InNamespace(d.Namespace),
		client.MatchingLabels{kibashipv1.LabelDeployment: deploymentLabel(d.Name)},
	}
	runs, children := emptyList(pipelineRunKind), emptyList(taskRunKind)
	if err := r.Client.List(ctx, runs, options...); err != nil {
		return nil, err
	}
	// The operator writes no TaskRuns: there is no write of its own to wait for.
	if err := r.Client.List(ctx, children, append(options, client.DisableReadYourWritesConsistency)...); err != nil {
		return nil, err
	}
	var all []Run
	for i := range runs.Items {
		if ownerFor(d).Owns(&runs.Items[i]) && runs.Items[i].GetDeletionTimestamp() == nil {
			run := readRun(&runs.Items[i], children.Items)
			if err := r.explain(ctx, d, &run); err != nil {
				return nil, err
			}
			if err := r.observePod(ctx, d.Namespace, &run); err != nil {
				return nil, err
			}
			all = append(all, run)
		}
	}
	slices.SortFunc(all, func(a, b Run) int {
		return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(b.Name, a.Name))
	})
	return all, nil
}

// observePod sees whether the pod that a run waits for has ended: Tekton must continue the run then.
func (r *Reconciler) observePod(ctx context.Context, namespace string, run *Run) error {
	if run.over() || run.Pod == "" {
		return nil
	}
	pod, err := r.findPod(ctx, namespace, run.Pod)
	if err != nil || pod == nil || pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
		return err
	}
	for _, container := range pod.Status.ContainerStatuses {
		if end := container.State.Terminated; end != nil && end.FinishedAt.After(run.IdleSince) {
			run.IdleSince = end.FinishedAt.Time
		}
	}
	return nil
}

// defaultClass is the annotation of the StorageClass that claims without a class get.
const defaultClass = "storageclass.kubernetes.io/is-default-class"

// hasTekton returns the value of Observed.Tekton.
func (r *Reconciler) hasTekton() bool {
	return r.Config.Tekton != config.TektonOff && r.Presence.Check(pipelineRunKind) == nil &&
		r.Presence.Check(pipelineKind) == nil && r.Presence.Check(taskRunKind) == nil
}

// observeMissing reads the objects that a run depends on. Without one of these a run fails in a step, or waits for its
// volume until its timeout.
func (r *Reconciler) observeMissing(ctx context.Context, o *Observed, in Inputs) error {
	builds := in.Builds
	var needs []Missing
	if in.private() {
		needs = append(needs, Missing{Kind: "Secret", Name: in.Git.SecretRef.Name, Where: "spec.gitRepository.secretRef of Application " + in.ApplicationName})
	}
	if pull := in.pullSecret(); pull != "" && pull == builds.PullSecret {
		needs = append(needs, Missing{Kind: "Secret", Name: pull, Where: "BUILD_PULL_SECRET"})
	} else if pull != "" {
		needs = append(needs, Missing{Kind: "Secret", Name: pull, Where: "spec.gitRepository.imagePullSecretRef of Application " + in.ApplicationName})
	}
	if builds.RegistrySecret != "" {
		needs = append(needs, Missing{Kind: "Secret", Name: builds.RegistrySecret, Where: "BUILD_REGISTRY_SECRET"})
	}
	if builds.CAConfigMap != "" {
		needs = append(needs, Missing{Kind: "ConfigMap", Name: builds.CAConfigMap, Where: "BUILD_CA_CONFIG_MAP"})
	}
	if builds.Workspace == config.WorkspaceVolume {
		needs = append(needs, Missing{Kind: "StorageClass", Name: builds.StorageClass, Where: "BUILD_STORAGE_CLASS"})
	}
	o.Missing = nil
	// The watch of each Secret is open before its read, so that one that comes in between is not missed.
	for _, need := range needs {
		if need.Kind == "Secret" {
			r.Secrets.Missing(secretsUser, in.Name.Namespace, []string{need.Name}) //nolint:contextcheck // a watch outlives the reconciliation; its coming enqueues the Deployment
		}
	}
	for _, need := range needs {
		found, err := r.exists(ctx, need.Kind, in.Name.Namespace, need.Name)
		if err != nil {
			return err
		}
		if !found {
			o.Missing = append(o.Missing, need)
		}
	}
	return nil
}

// exists reads only the metadata, from the API server. Without a name it searches for the default
// StorageClass. The content of a Secret stays unread here.
func (r *Reconciler) exists(ctx context.Context, kind, namespace, name string) (bool, error) {
	gvk := corev1.SchemeGroupVersion.WithKind(kind)
	if kind == "StorageClass" {
		namespace, gvk = "", schema.GroupVersionKind{Group: "storage.k8s.io", Version: "v1", Kind: kind}
	}
	if name != "" {
		found := &metav1.PartialObjectMetadata{}
		found.SetGroupVersionKind(gvk)
		err := r.Writer.Live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, found)
		return err == nil, apply.IgnoreAbsent(err)
	}
	all := &metav1.PartialObjectMetadataList{}
	all.SetGroupVersionKind(gvk.GroupVersion().WithKind(kind + "List"))
	if err := r.Writer.Live.List(ctx, all); err != nil {
		return false, err
	}
	return slices.ContainsFunc(all.Items, func(o metav1.PartialObjectMetadata) bool { return o.Annotations[defaultClass] == "true" }), nil
}

// newRunObject returns the live object of a run.
func newRunObject(namespace, name string) *unstructured.Unstructured {
	u := empty(pipelineRunKind)
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}
