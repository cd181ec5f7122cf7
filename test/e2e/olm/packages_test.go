package olm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	operatorsv1 "github.com/operator-framework/api/pkg/operators/v1"
	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/internal/kit/admissionpolicy"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/limits"
	"github.com/bergctf/berg-operator/test/lib/residue"
)

const (
	// shared is the namespace that OLM brings for operators of all namespaces.
	shared = "operators"
	// catalogName is the one CatalogSource of the packages.
	catalogName = "berg-ctf"
	// upgraded is the package that is upgraded next to the others.
	upgraded = "hexactf-operator"
)

// offered is a package of the catalog.
type offered struct {
	api string
	// setting is one of its settings, which a Subscription sets to one value, then to the other.
	setting string
	values  [2]string
	// works is a resource on which its operator, and no other, writes a status.
	works *unstructured.Unstructured
}

func resource(apiVersion, kind, namespace, name string, spec map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind, "spec": spec}}
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

var packages = map[string]offered{
	"berg-operator": {
		api: "berg.norelect.ch", setting: "CHALLENGE_DOMAIN", values: [2]string{"first.example.test", "second.example.test"},
		works: resource("berg.norelect.ch/v1", "ChallengeInstance", stage, "side-by-side", map[string]any{
			"challengeRef": map[string]any{"name": "missing", "namespace": stage}, "ownerId": "3b0f2a3c-6e0f-4f6f-9d2e-0a9c9b1f7a11", "flag": "flag{side-by-side}",
		}),
	},
	"hexactf-operator": {
		api: "apps.hexactf.io", setting: "KAFKA_TOPIC", values: [2]string{"first", "second"},
		works: resource("apps.hexactf.io/v1alpha1", "Challenge", stage, "challenge-1-alice", map[string]any{"definition": "missing"}),
	},
	"quix-environment-operator": {
		api: "quix.io", setting: "SERVICE_ACCOUNT_NAMESPACE", values: [2]string{"first", "second"},
		works: resource("quix.io/v1", "Environment", "", "side-by-side", map[string]any{"id": "side-by-side"}),
	},
	"kibaship-operator": {
		api: "platform.operator.kibaship.com", setting: "TEKTON_MODE", values: [2]string{"off", "optional"},
		works: resource("platform.operator.kibaship.com/v1alpha1", "Project", "", "side-by-side", nil),
	},
	"container-tunnel-operator": {
		api: "usvc-dev.developer.microsoft.com", setting: "TUNNEL_PUBLISH", values: [2]string{"PodIP", "NodePort"},
		works: resource("usvc-dev.developer.microsoft.com/v1", "ContainerNetwork", "", "side-by-side", map[string]any{}),
	},
}

// All packages in one namespace of one cluster: nothing that one of them has may be in the way of another.
var _ = Describe("The packages side by side", Ordered, func() {
	var before sets.Set[string]
	versions := map[string]string{}

	BeforeAll(func(ctx SpecContext) {
		var err error
		before, err = residue.Objects(ctx)
		Expect(err).NotTo(HaveOccurred())
		prepare(ctx, "packages-first")
		for name, p := range packages {
			versions[name] = head
			Expect(world.Create(ctx, &operatorsv1alpha1.Subscription{
				ObjectMeta: metav1.ObjectMeta{Namespace: shared, Name: name},
				Spec: &operatorsv1alpha1.SubscriptionSpec{
					Package: name, CatalogSource: catalogName, CatalogSourceNamespace: shared,
					Config: &operatorsv1alpha1.SubscriptionConfig{Env: variables(map[string]string{p.setting: p.values[0]})},
				},
			})).To(Succeed())
		}
		versions[upgraded] = first
	}, NodeTimeout(limits.Scaled(time.Minute)))

	AfterEach(func(ctx SpecContext) {
		if CurrentSpecReport().Failed() {
			reportPackages(ctx)
		}
	}, NodeTimeout(limits.Scaled(time.Minute)))

	It("are installed, each for its own API, with the setting of its own Subscription", func(ctx SpecContext) {
		expectPackages(ctx, versions, 0)
	}, SpecTimeout(3*installLimit))

	It("each have a leader of their own", func(ctx SpecContext) {
		expect.Until(ctx, instanceLimit, func(ctx context.Context) error {
			holders := map[string]string{}
			for name := range packages {
				lease := &coordinationv1.Lease{}
				if err := world.Get(ctx, client.ObjectKey{Namespace: shared, Name: name + ".berg.norelect.ch"}, lease); err != nil {
					return err
				}
				holder := ""
				if lease.Spec.HolderIdentity != nil {
					holder = *lease.Spec.HolderIdentity
				}
				if !strings.HasPrefix(holder, name+"-controller-manager-") {
					return fmt.Errorf("the lease of %s is held by %q", name, holder)
				}
				if other, taken := holders[holder]; taken {
					return fmt.Errorf("%s leads %s and %s", holder, name, other)
				}
				holders[holder] = name
			}
			return nil
		})
	}, SpecTimeout(2*instanceLimit))

	It("each work on their own resources", func(ctx SpecContext) {
		expectWork(ctx)
	}, SpecTimeout(6*instanceLimit))

	It("bring the admission policies along, which OLM does not install, and put them back", func(ctx SpecContext) {
		network := packages["container-tunnel-operator"].works.DeepCopy()
		network.SetName("limited")
		Expect(world.Create(ctx, network)).To(Succeed())
		expect.Refreshed(ctx, instanceLimit, network, func() error {
			all, _, _ := unstructured.NestedSlice(network.Object, "status", "conditions")
			for _, one := range all {
				if c, ok := one.(map[string]any); ok && c["type"] == "Ready" && c["status"] == "True" {
					return nil
				}
			}
			return fmt.Errorf("the conditions are %v", all)
		})
		Expect(world.Delete(ctx, network)).To(Succeed())
		expect.Until(ctx, instanceLimit, func(ctx context.Context) error { return gone(ctx, client.ObjectKeyFromObject(network), network) })

		for _, kind := range []client.Object{&admissionregistrationv1.ValidatingAdmissionPolicy{}, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}} {
			kind.SetName(admissionpolicy.Fence)
			Expect(world.Delete(ctx, kind)).To(Succeed())
		}
		expect.Until(ctx, instanceLimit, func(ctx context.Context) error {
			gap, err := admissionpolicy.Read(ctx, world, admissionpolicy.Fence)
			if err == nil && gap != "" {
				err = errors.New(gap)
			}
			return err
		})
	}, SpecTimeout(4*instanceLimit))

	It("have the rights of their own namespace in no other", func(ctx SpecContext) {
		may := func(name, namespace, verb, group, plural string) bool {
			GinkgoHelper()
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User:               "system:serviceaccount:" + shared + ":" + name + "-controller-manager",
				ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verb, Group: group, Resource: plural},
			}}
			Expect(world.Create(ctx, review)).To(Succeed())
			return review.Status.Allowed
		}
		Expect(may("berg-operator", shared, "list", "", "secrets")).To(BeTrue())
		Expect(may("berg-operator", stage, "list", "", "secrets")).To(BeFalse())
		Expect(may("hexactf-operator", shared, "delete", "coordination.k8s.io", "leases")).To(BeTrue())
		Expect(may("hexactf-operator", "kube-system", "delete", "coordination.k8s.io", "leases")).To(BeFalse())
	}, SpecTimeout(instanceLimit))

	It("take a new setting when their Subscription changes", func(ctx SpecContext) {
		for name, p := range packages {
			Expect(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
				subscription := &operatorsv1alpha1.Subscription{}
				if err := world.Get(ctx, client.ObjectKey{Namespace: shared, Name: name}, subscription); err != nil {
					return err
				}
				subscription.Spec.Config.Env = variables(map[string]string{p.setting: p.values[1]})
				return world.Update(ctx, subscription)
			})).To(Succeed())
		}
		expectPackages(ctx, versions, 1)
	}, SpecTimeout(3*installLimit))

	It("are upgraded one by one", func(ctx SpecContext) {
		Expect(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			source := &operatorsv1alpha1.CatalogSource{}
			if err := world.Get(ctx, client.ObjectKey{Namespace: shared, Name: catalogName}, source); err != nil {
				return err
			}
			source.Spec.Image = catalogImage + "packages"
			return world.Update(ctx, source)
		})).To(Succeed())
		versions[upgraded] = head
		expectPackages(ctx, versions, 1)
	}, SpecTimeout(3*installLimit))

	It("leave nothing when they are removed with their definitions", func(ctx SpecContext) {
		names := slices.Collect(maps.Keys(packages))
		expectNothingLeft(ctx, before, names, names)
	}, SpecTimeout(6*instanceLimit))
})

// expectWork fails unless the operators of all APIs write the status of a resource, and the webhooks refuse what is invalid.
func expectWork(ctx context.Context) {
	GinkgoHelper()
	By("asking the webhooks about a Project that is invalid")
	project := packages["kibaship-operator"].works.DeepCopy()
	project.SetLabels(map[string]string{"platform.kibaship.com/uuid": "none"})
	expect.Until(ctx, instanceLimit, func(ctx context.Context) error {
		err := world.Create(ctx, project.DeepCopy(), client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), "denied the request") {
			return fmt.Errorf("an invalid Project got %w", errors.Join(err, errors.New("no refusal by the webhook")))
		}
		return nil
	})

	for name, p := range packages {
		if name == "kibaship-operator" {
			continue
		}
		By("creating a resource of " + name)
		object := p.works.DeepCopy()
		if name == upgraded {
			object.SetLabels(map[string]string{"apps.hexactf.io/challengeId": "1", "apps.hexactf.io/user": "alice"})
		}
		Expect(world.Create(ctx, object)).To(Succeed())
		expect.Refreshed(ctx, instanceLimit, object, func() error {
			if status, _, _ := unstructured.NestedMap(object.Object, "status"); len(status) == 0 {
				return fmt.Errorf("%s has no status", object.GetName())
			}
			return nil
		})
		Expect(world.Delete(ctx, object)).To(Succeed())
		expect.Until(ctx, instanceLimit, func(ctx context.Context) error { return gone(ctx, client.ObjectKeyFromObject(object), object) })
	}
}

// prepare offers the packages of a catalog, and creates the namespace of the resources.
func prepare(ctx context.Context, catalog string) {
	GinkgoHelper()
	Expect(world.Create(ctx, &operatorsv1alpha1.CatalogSource{
		ObjectMeta: metav1.ObjectMeta{Namespace: shared, Name: catalogName},
		Spec: operatorsv1alpha1.CatalogSourceSpec{
			SourceType: operatorsv1alpha1.SourceTypeGrpc, Image: catalogImage + catalog,
			GrpcPodConfig: &operatorsv1alpha1.GrpcPodConfig{
				SecurityContextConfig: operatorsv1alpha1.Restricted,
				ExtractContent:        &operatorsv1alpha1.ExtractContentConfig{CatalogDir: "/configs"},
			},
		},
	})).To(Succeed())
	Expect(world.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: stage}})).To(Succeed())
}

// expectNothingLeft removes subscribed packages, whose objects have the labels, with their definitions, and fails if an object is left
// that was not there before.
func expectNothingLeft(ctx context.Context, before sets.Set[string], subscribed, labels []string) {
	GinkgoHelper()
	By("waiting until the isolation is tested: OLM takes away the right to remove its namespace with the operator")
	expect.Until(ctx, instanceLimit, func(ctx context.Context) error {
		var all corev1.NamespaceList
		err := world.List(ctx, &all)
		for i := range all.Items {
			if strings.HasPrefix(all.Items[i].Name, "berg-isolation-check-") {
				err = fmt.Errorf("namespace %s is there", all.Items[i].Name)
			}
		}
		return err
	})
	Expect(world.DeleteAllOf(ctx, &operatorsv1alpha1.Subscription{}, client.InNamespace(shared))).To(Succeed())
	Expect(world.DeleteAllOf(ctx, &operatorsv1alpha1.ClusterServiceVersion{}, client.InNamespace(shared))).To(Succeed())
	expect.Until(ctx, instanceLimit, func(ctx context.Context) error {
		var left corev1.PodList
		err := world.List(ctx, &left, client.InNamespace(shared), client.MatchingLabels{"control-plane": "controller-manager"})
		if err == nil && len(left.Items) > 0 {
			err = fmt.Errorf("%d pods of operators are left", len(left.Items))
		}
		return err
	})
	Expect(world.Delete(ctx, &operatorsv1alpha1.CatalogSource{ObjectMeta: metav1.ObjectMeta{Namespace: shared, Name: catalogName}})).To(Succeed())
	for _, name := range labels {
		for _, kind := range []client.Object{
			&rbacv1.ClusterRole{}, &schedulingv1.PriorityClass{}, &apiextensionsv1.CustomResourceDefinition{},
			&admissionregistrationv1.ValidatingAdmissionPolicyBinding{}, &admissionregistrationv1.ValidatingAdmissionPolicy{},
		} {
			Expect(world.DeleteAllOf(ctx, kind, client.MatchingLabels{"app.kubernetes.io/name": name})).To(Succeed())
		}
		// And these, which go with a namespace of the operator's own.
		for _, kind := range []client.Object{&rbacv1.Role{}, &corev1.Service{}, &networkingv1.NetworkPolicy{}, &policyv1.PodDisruptionBudget{}} {
			Expect(world.DeleteAllOf(ctx, kind, client.InNamespace(shared), client.MatchingLabels{"app.kubernetes.io/name": name})).To(Succeed())
		}
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: shared, Name: name + ".berg.norelect.ch"}}
		Expect(client.IgnoreNotFound(world.Delete(ctx, lease))).To(Succeed())
	}
	// OLM makes it for an operator with webhooks.
	for _, name := range labels {
		binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: name + "-controller-manager-service-auth-reader"}}
		Expect(client.IgnoreNotFound(world.Delete(ctx, binding))).To(Succeed())
	}
	Expect(world.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: stage}})).To(Succeed())
	expect.Until(ctx, 2*instanceLimit, func(ctx context.Context) error {
		// OLM writes its records again while there is anything in them.
		for _, name := range subscribed {
			if err := client.IgnoreNotFound(world.Delete(ctx, &operatorsv1.Operator{ObjectMeta: metav1.ObjectMeta{Name: name + "." + shared}})); err != nil {
				return err
			}
		}
		// The roles of the OperatorGroup of that namespace, which was there before.
		return residue.LeftBehind(ctx, before, func(object string) bool {
			return strings.HasPrefix(object, "clusterroles.rbac.authorization.k8s.io/olm.og.")
		})
	})
}

// expectPackages waits until each package is installed in its version, with its setting, and stays so.
func expectPackages(ctx context.Context, versions map[string]string, value int) {
	GinkgoHelper()
	expectSettled(ctx, 2*installLimit, func(ctx context.Context) error {
		for _, name := range slices.Sorted(maps.Keys(packages)) {
			if err := packageInstalled(ctx, name, versions[name], value); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		return nil
	})
}

// packageInstalled is nil if this version of a package, and no other, runs in the shared namespace, for its own API and
// with its setting.
func packageInstalled(ctx context.Context, name, version string, value int) error {
	var all operatorsv1alpha1.ClusterServiceVersionList
	if err := world.List(ctx, &all, client.InNamespace(shared)); err != nil {
		return err
	}
	own := slices.DeleteFunc(all.Items, func(c operatorsv1alpha1.ClusterServiceVersion) bool { return !strings.HasPrefix(c.Name, name+".v") })
	if len(own) != 1 || own[0].Name != name+".v"+version || own[0].Status.Phase != operatorsv1alpha1.CSVPhaseSucceeded {
		return fmt.Errorf("want version %s Succeeded and no other, have %s", version, describe(own))
	}
	deployment := &appsv1.Deployment{}
	if err := world.Get(ctx, client.ObjectKey{Namespace: shared, Name: name + "-controller-manager"}, deployment); err != nil {
		return err
	}
	container := deployment.Spec.Template.Spec.Containers[0]
	if !ofVersion(container, version) {
		return fmt.Errorf("the Deployment runs %s", container.Image)
	}
	p := packages[name]
	for variable, want := range map[string]string{"ENABLED_APIS": p.api, "LEASE_NAME": name + ".berg.norelect.ch", p.setting: p.values[value]} {
		if have := setting(container, variable); have != want {
			return fmt.Errorf("the Deployment has %s=%q, want %q", variable, have, want)
		}
	}
	status := deployment.Status
	want := *deployment.Spec.Replicas
	if status.ObservedGeneration < deployment.Generation || status.UpdatedReplicas != want || status.AvailableReplicas != want || status.Replicas != want {
		return fmt.Errorf("the Deployment is being rolled out: %+v", status)
	}
	return nil
}

// reportPackages prints what is needed to understand a failure.
func reportPackages(ctx context.Context) {
	var versions operatorsv1alpha1.ClusterServiceVersionList
	err := world.List(ctx, &versions, client.InNamespace(shared))
	fmt.Fprintf(GinkgoWriter, "versions: %s %v\n", describe(versions.Items), err)
	var plans operatorsv1alpha1.InstallPlanList
	err = world.List(ctx, &plans, client.InNamespace(shared))
	for _, plan := range plans.Items {
		fmt.Fprintf(GinkgoWriter, "plan %s of %q: %s %+v\n", plan.Name, plan.Spec.ClusterServiceVersionNames, plan.Status.Phase, plan.Status.Conditions)
	}
	fmt.Fprintf(GinkgoWriter, "plans: %v\n", err)
	var subscriptions operatorsv1alpha1.SubscriptionList
	err = world.List(ctx, &subscriptions, client.InNamespace(shared))
	for _, s := range subscriptions.Items {
		fmt.Fprintf(GinkgoWriter, "subscription %s: %s %+v\n", s.Name, s.Status.State, s.Status.Conditions)
	}
	fmt.Fprintf(GinkgoWriter, "subscriptions: %v\n", err)
	var pods corev1.PodList
	err = world.List(ctx, &pods, client.InNamespace(shared))
	for _, pod := range pods.Items {
		for _, c := range pod.Status.ContainerStatuses {
			fmt.Fprintf(GinkgoWriter, "pod %s ready=%v restarts=%d %+v %+v\n", pod.Name, c.Ready, c.RestartCount, c.State, c.LastTerminationState.Terminated)
		}
	}
	fmt.Fprintf(GinkgoWriter, "pods: %v\n", err)
}
