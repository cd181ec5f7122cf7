// Package kibaship is the family of KibaShip projects, applications and deployments: its entry point
// to the operator.
package kibaship

import (
	"context"
	"io"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kibaship/admission"
	"github.com/bergctf/berg-operator/internal/kibaship/application"
	"github.com/bergctf/berg-operator/internal/kibaship/commitstatus"
	"github.com/bergctf/berg-operator/internal/kibaship/deployment"
	"github.com/bergctf/berg-operator/internal/kibaship/hook"
	"github.com/bergctf/berg-operator/internal/kibaship/naming"
	"github.com/bergctf/berg-operator/internal/kibaship/poll"
	"github.com/bergctf/berg-operator/internal/kibaship/project"
	"github.com/bergctf/berg-operator/internal/kibaship/registry"
	"github.com/bergctf/berg-operator/internal/kibaship/retention"
	"github.com/bergctf/berg-operator/internal/kibaship/rules"
	"github.com/bergctf/berg-operator/internal/kibaship/secrets"
	"github.com/bergctf/berg-operator/internal/kibaship/source"
	"github.com/bergctf/berg-operator/internal/kit/admissionpolicy"
	"github.com/bergctf/berg-operator/internal/kit/cache"
	"github.com/bergctf/berg-operator/internal/kit/family"
	"github.com/bergctf/berg-operator/internal/kit/identity"
	"github.com/bergctf/berg-operator/internal/kit/optional"
)

// New returns the family. Its settings are read into cfg.
func New(cfg *config.KibaShip) family.Family {
	return family.Family{
		API:         kibashipv1.GroupVersion.Group,
		Settings:    cfg.Section(),
		AddToScheme: runtime.SchemeBuilder{kibashipv1.AddToScheme, corev1.AddToScheme, rbacv1.AddToScheme, networkingv1.AddToScheme},
		Cache:       caches,
		Setup:       func(ctx context.Context, deps family.Dependencies) error { return setup(ctx, deps, *cfg) },
		Webhooks:    admission.Webhooks(),
		Commands: map[string]func([]string, io.Writer) int{
			registry.Command: registry.Main, source.Command: source.Main, hook.Command: hook.Main,
		},
		Busy: family.NewBusy(func() client.ObjectList { return &kibashipv1.ProjectList{} }, building),
	}
}

// caches keeps only objects that belong to Projects: a cluster may have many others of the same kinds. Kinds that are not named
// here are found by their label alone.
func caches() cache.Options {
	all := ctrlcache.ByObject{Label: labels.Everything()}
	return cache.Options{
		Selector: project.OwnershipLabels.Selector(),
		ByObject: map[client.Object]ctrlcache.ByObject{
			&kibashipv1.Project{}:      all,
			&kibashipv1.ProjectClass{}: all,
			&kibashipv1.Application{}:  all,
			&kibashipv1.Deployment{}:   all,
			&corev1.Namespace{}:        all, // a foreign one of the same name must be seen
			&rbacv1.ClusterRole{}:      all,
			optional.Definition():      all,
		},
		Trim:    trim,
		Domains: []string{project.OwnershipLabels.Domain, kibashipv1.GroupVersion.Group},

		Finalizers: []string{kibashipv1.ProjectFinalizer, kibashipv1.ApplicationFinalizer, kibashipv1.DeploymentFinalizer},
	}
}

// trim drops fields that the family does not read. A user who may write in one namespace can label objects there as
// objects of Projects: outside the namespaces of Projects and Tekton only the identity is kept, so that such objects take
// little memory.
func trim(o client.Object) {
	if namespace := o.GetNamespace(); namespace != "" && labelled(o) && namespace != naming.TektonNamespace {
		if _, ours := naming.ParseNamespace(namespace); !ours {
			cache.KeepIdentity(o)
			return
		}
	}
	switch o := o.(type) {
	case *unstructured.Unstructured:
		deployment.TrimRun(o)
	case *rbacv1.ClusterRole: // only its existence, unless its rules are added to the rules of Projects
		value, rules := o.Labels[kibashipv1.LabelAggregate], o.Rules
		cache.KeepIdentity(o)
		if value != "" {
			o.Labels, o.Rules = map[string]string{kibashipv1.LabelAggregate: value}, rules
		}
	case *metav1.PartialObjectMetadata:
		// The generation shows a change of the spec.
		generation := o.Generation
		cache.KeepIdentity(o)
		o.Generation = generation
	case *corev1.Namespace: // a foreign one keeps its existence and its claims of ownership
		if o.Labels[kibashipv1.LabelUUID] == "" && o.Annotations[kibashipv1.AnnotationProjectUID] == "" {
			cache.KeepIdentity(o)
		}
	}
}

// labelled reports whether objects of a kind are found by a label alone.
func labelled(o client.Object) bool {
	switch o.(type) {
	case *kibashipv1.Application, *kibashipv1.Deployment:
		return false
	default:
		return true
	}
}

// setup adds what controllers share before them: the names of Secrets, the admission policies and the poller.
func setup(ctx context.Context, deps family.Dependencies, cfg config.KibaShip) error {
	mgr := deps.Manager
	me, err := identity.New(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	names, err := secrets.New(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	if err := mgr.Add(names); err != nil {
		return err
	}
	policies, err := follow(ctx, deps.Policies)
	if err != nil {
		return err
	}
	if err := (&project.Reconciler{
		Access:   deps.Access("kibaship-operator"),
		Policies: policies,
		Config:   cfg,
		Identity: me.Subject,
	}).SetupWithManager(ctx, mgr); err != nil {
		return err
	}
	providers := &poll.Providers{Live: deps.Writer.Live, Config: cfg.Builds}
	poller := poll.New(providers, cfg.Pushes.PollInterval)
	if err := mgr.Add(poller); err != nil {
		return err
	}
	keys := &hook.Keys{Live: deps.Writer.Live, Client: mgr.GetClient(), Namespace: deps.Namespace}
	if cfg.Pushes.WebhookURL != "" {
		if err := mgr.Add(keys); err != nil {
			return err
		}
	}
	if err := (&application.Reconciler{
		Access:  deps.Access("kibaship-operator"),
		Secrets: names,
		Config:  cfg,
		Poller:  poller,
		Keys:    keys,
	}).SetupWithManager(ctx, mgr); err != nil {
		return err
	}
	if cfg.Pushes.CommitStatus {
		for _, provider := range rules.GitProviders {
			if err := (&commitstatus.Reconciler{
				Access: deps.Access("kibaship-operator"), Config: cfg, Providers: providers, Provider: provider,
			}).SetupWithManager(mgr); err != nil {
				return err
			}
		}
	}
	if err := setupDeployments(ctx, deps, names, cfg); err != nil {
		return err
	}
	return (&retention.Reconciler{
		Access: deps.Access("kibaship-operator"), Config: cfg, Live: deps.Writer.Live,
	}).SetupWithManager(ctx, mgr)
}

// The admission policies of config/kibaship.
const (
	tenantsPolicy  = "berg-operator-kibaship-tenants"
	confinedPolicy = "berg-operator-kibaship-confined-pods"
)

func follow(ctx context.Context, policies *admissionpolicy.Policies) (followed project.Policies, err error) {
	for name, policy := range map[string]**admissionpolicy.Policy{
		admissionpolicy.Fence: &followed.Fence, tenantsPolicy: &followed.Tenants, confinedPolicy: &followed.Confined,
	} {
		if *policy, err = policies.Follow(ctx, name, admissionpolicy.Install); err != nil {
			return followed, err
		}
	}
	return followed, nil
}

// building reports whether a Project waits for the operator. A Failed one waits for a person.
func building(p *kibashipv1.Project) bool {
	return p.Status.Phase != kibashipv1.ProjectReady && p.Status.Phase != kibashipv1.ProjectFailed
}
