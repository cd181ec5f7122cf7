package kibaship

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/kibashiptest"
	"github.com/bergctf/berg-operator/test/lib/transport"
)

const (
	uuidA = "0f0e0d0c-0b0a-4908-8706-050403020100"
	uuidB = "10111213-1415-4617-9819-1a1b1c1d1e1f"
)

// everything is all verbs on all resources, as the contract has it.
var everything = []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}

// inprocess has the operator of all specs in this process, with its registry.
var _ = Describe("The metrics of a running operator", Serial, func() {
	It("tell how many there are in each phase, how long, and what was done", func(ctx context.Context) {
		made, passes := inprocess.Metric("kibaship_project_time_to_ready_seconds"), inprocess.Metric("kibaship_application_reconcile_duration_seconds")
		p := kibashiptest.Ready(ctx)
		a := kibashiptest.Application(ctx, p.Name, "web", kibashiptest.Private("no-such"))
		expect.Settles(ctx, a, kibashipv1.ApplicationPending)
		d := kibashiptest.NewDeployment(p.Name, "web", "live")
		Expect(k8s.Create(ctx, d)).To(Succeed())
		expect.Reaches(ctx, d, kibashipv1.DeploymentInitializing)
		failed := kibashiptest.Project(ctx, kibashiptest.NewName(), func(p *kibashipv1.Project) { p.Labels = nil })
		expect.Settles(ctx, failed, kibashipv1.ProjectFailed)

		in := func(kind, phase string) func() float64 {
			return func() float64 { return inprocess.Metric("kibaship_"+kind+"_active", "phase", phase) }
		}
		Eventually(in("project", "Ready")).Should(BeNumerically(">=", 1))
		Eventually(in("project", "Failed")).Should(BeNumerically(">=", 1))
		Eventually(in("application", kibashipv1.ApplicationPending)).Should(BeNumerically(">=", 1))
		Eventually(in("deployment", "Initializing")).Should(BeNumerically(">=", 1))
		Eventually(func() float64 {
			return inprocess.Metric("kibaship_project_max_in_phase_seconds", "phase", "Failed")
		}).Should(BeNumerically(">", 0))
		Expect(inprocess.Metric("kibaship_project_time_to_ready_seconds")).To(BeNumerically(">", made))
		Expect(inprocess.Metric("kibaship_application_reconcile_duration_seconds")).To(BeNumerically(">", passes))

		expect.Deleted(ctx, failed)
		Eventually(in("project", "Failed")).Should(BeZero())
	})
})

var _ = Describe("A project", func() {
	It("gets its namespace and the rights in it, under the names of the contract, and takes them along", Label("versions"), func(ctx context.Context) {
		grantAllRights(ctx)
		p := kibashiptest.Project(ctx, kibashiptest.NewName(), func(p *kibashipv1.Project) {
			p.Labels[kibashipv1.LabelWorkspaceUUID] = uuidB
		})
		expect.Settles(ctx, p, kibashipv1.ProjectReady)
		n := p.Name
		labels := And(
			HaveKeyWithValue("platform.kibaship.com/managed-by", "kibaship-operator"),
			HaveKeyWithValue("platform.kibaship.com/project-name", n),
			HaveKeyWithValue("platform.kibaship.com/uuid", p.Labels["platform.kibaship.com/uuid"]),
			HaveKeyWithValue("platform.kibaship.com/workspace-uuid", uuidB))
		namespace := "project-" + n + "-ns-kibaship-com"

		ns := apiserver.Get[corev1.Namespace](ctx, client.ObjectKey{Name: namespace})
		Expect(ns.Labels).To(labels)
		Expect(ns.Annotations).To(And(
			HaveKeyWithValue("platform.kibaship.com/created-by", "kibaship-operator"),
			HaveKeyWithValue("platform.kibaship.com/project", n),
			HaveKeyWithValue("platform.kibaship.com/project-uid", string(p.UID))))
		Expect(ns.OwnerReferences).To(HaveLen(1))
		Expect(ns.OwnerReferences[0].UID).To(Equal(p.UID))

		account := apiserver.Get[corev1.ServiceAccount](ctx, client.ObjectKey{Namespace: namespace, Name: "project-" + n + "-sa-kibaship-com"})
		Expect(account.Labels).To(labels)
		role := apiserver.Get[rbacv1.Role](ctx, client.ObjectKey{Namespace: namespace, Name: "project-" + n + "-admin-role-kibaship-com"})
		Expect(role.Labels).To(labels)
		Expect(role.Rules).To(Equal(everything))
		binding := apiserver.Get[rbacv1.RoleBinding](ctx, client.ObjectKey{Namespace: namespace, Name: "project-" + n + "-admin-binding-kibaship-com"})
		Expect(binding.Labels).To(labels)
		Expect(binding.RoleRef).To(Equal(rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name}))
		Expect(binding.Subjects).To(ConsistOf(rbacv1.Subject{Kind: "ServiceAccount", Namespace: namespace, Name: account.Name}))

		Expect(p.Status.NamespaceName).To(Equal(namespace))
		Expect(p.Status.LastReconcileTime).NotTo(BeNil())
		Expect(p.Finalizers).To(ConsistOf("platform.kibaship.com/project-finalizer"))
		expect.Shows(ctx, p, kibashipv1.ConditionTektonIntegrated, metav1.ConditionFalse, kibashipv1.ReasonTektonNotInstalled)
		expect.Event(ctx, p, corev1.EventTypeNormal, kibashipv1.ReasonProjectReady)

		By("deleting it")
		expect.Deleted(ctx, p)
		Expect(apierrors.IsNotFound(k8s.Get(ctx, client.ObjectKeyFromObject(ns), ns))).To(BeTrue(), "the finalizer goes after the namespace")
	})

	It("is left alone once it is Ready: neither another pass nor another operator writes anything", func(ctx context.Context) {
		p := kibashiptest.Ready(ctx, func(p *kibashipv1.Project) { bound(&p.Spec) })
		a := kibashiptest.ReadyApplication(ctx, p.Name, "web")
		expect.Becomes(ctx, p, func(g Gomega) {
			g.Expect(p.Status.Usage.Applications).To(BeEquivalentTo(1))
			var all kibashipv1.ProjectList
			g.Expect(k8s.List(ctx, &all)).To(Succeed())
			for i := range all.Items { // those of other specs are written until they are gone
				g.Expect(all.Items[i].DeletionTimestamp).To(BeNil())
			}
		})
		versions := func() []string {
			Expect(k8s.Get(ctx, client.ObjectKeyFromObject(p), p)).To(Succeed())
			Expect(k8s.Get(ctx, client.ObjectKeyFromObject(a), a)).To(Succeed())
			return []string{p.ResourceVersion, a.ResourceVersion}
		}
		var writes atomic.Int32
		inprocess.Restart(nil, transport.Showing(func(r *http.Request) {
			if r.Method != http.MethodGet && !transport.Asks(r) {
				writes.Add(1)
				GinkgoWriter.Println(r.Method, r.URL.Path)
			}
		}))
		Consistently(writes.Load).WithTimeout(3 * time.Second).Should(BeZero())

		By("touching what does not matter")
		apiserver.Change(ctx, p, func() { p.Labels["another"] = "client" })
		before := versions()
		Consistently(writes.Load).WithTimeout(2 * time.Second).Should(BeZero())
		Expect(versions()).To(Equal(before))
	})

	It("gets back what is deleted or changed by hand", func(ctx context.Context) {
		p := kibashiptest.Ready(ctx, func(p *kibashipv1.Project) { bound(&p.Spec) })
		namespace := kibashiptest.Namespace(p.Name)
		for _, o := range []client.Object{
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "project-" + p.Name + "-sa-kibaship-com"}},
			&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "project-" + p.Name + "-operator-binding-kibaship-com"}},
			&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "project-" + p.Name + "-admin-binding-kibaship-com"}},
			&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "project-" + p.Name + "-admin-role-kibaship-com"}},
			&corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "project-" + p.Name + "-limits-kibaship-com"}},
			&networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "project-" + p.Name + "-limits-kibaship-com"}},
		} {
			By(o.GetName())
			o.SetNamespace(namespace)
			Expect(k8s.Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
			first := o.GetUID()
			Expect(k8s.Delete(ctx, o)).To(Succeed())
			expect.Becomes(ctx, o, func(g Gomega) {
				g.Expect(o.GetUID()).NotTo(Equal(first))
			})
		}
		By("a Role that grants more, and a binding that names another subject")
		role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "project-" + p.Name + "-admin-role-kibaship-com"}}
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(role), role)).To(Succeed())
		right := role.DeepCopy().Rules
		apiserver.Change(ctx, role, func() { role.Rules = everything })
		expect.Becomes(ctx, role, func(g Gomega) {
			g.Expect(role.Rules).To(Equal(right))
		})
		By("the label of Pod Security on the namespace")
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(ns), ns)).To(Succeed())
		apiserver.Change(ctx, ns, func() { delete(ns.Labels, "pod-security.kubernetes.io/enforce") })
		expect.Becomes(ctx, ns, func(g Gomega) {
			g.Expect(ns.Labels).To(HaveKeyWithValue("pod-security.kubernetes.io/enforce", "baseline"))
		})
		expect.Settles(ctx, p, kibashipv1.ProjectReady)
	})

	It("gets quota, limits, network policy and Pod Security where it asks for them, and loses them again", func(ctx context.Context) {
		p := kibashiptest.Ready(ctx, func(p *kibashipv1.Project) { bound(&p.Spec) })
		in := client.InNamespace(kibashiptest.Namespace(p.Name))

		quotas := apiserver.List[corev1.ResourceQuotaList](ctx, in)
		Expect(quotas.Items).To(HaveLen(1))
		Expect(quotas.Items[0].Spec.Hard.Pods().String()).To(Equal("10"))
		limits := apiserver.List[corev1.LimitRangeList](ctx, in)
		Expect(limits.Items).To(HaveLen(1))
		Expect(limits.Items[0].Spec.Limits).To(HaveLen(2))
		policies := apiserver.List[networkingv1.NetworkPolicyList](ctx, in)
		Expect(policies.Items).To(HaveLen(1))
		Expect(policies.Items[0].Spec.PodSelector).To(Equal(metav1.LabelSelector{}))
		Expect(policies.Items[0].Spec.PolicyTypes).To(ConsistOf(networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress))

		By("telling what is used")
		Expect(k8s.Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: kibashiptest.Namespace(p.Name), Name: "one"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "one", Image: "registry.example.org/one"}}},
		})).To(Succeed())
		expect.Becomes(ctx, p, func(g Gomega) {
			used := p.Status.Usage.Quota[corev1.ResourcePods]
			g.Expect(used.Value()).To(BeEquivalentTo(1))
		})

		By("taking all of it off the spec")
		apiserver.Change(ctx, p, func() { p.Spec = kibashipv1.ProjectSpec{} })
		Eventually(func(g Gomega) {
			g.Expect(k8s.List(ctx, &quotas, in)).To(Succeed())
			g.Expect(k8s.List(ctx, &limits, in)).To(Succeed())
			g.Expect(k8s.List(ctx, &policies, in)).To(Succeed())
			g.Expect(len(quotas.Items) + len(limits.Items) + len(policies.Items)).To(BeZero())
			ns := &corev1.Namespace{}
			g.Expect(k8s.Get(ctx, client.ObjectKey{Name: kibashiptest.Namespace(p.Name)}, ns)).To(Succeed())
			g.Expect(ns.Labels).To(HaveKeyWithValue("pod-security.kubernetes.io/enforce", "baseline"))
		}).Should(Succeed())
		expect.Settles(ctx, p, kibashipv1.ProjectReady)
		Expect(p.Status.Usage.Quota).To(BeEmpty())
	})

	It("waits for the ClusterRole that an administrator creates", func(ctx context.Context) {
		role := apiserver.Get[rbacv1.ClusterRole](ctx, client.ObjectKey{Name: kibashipv1.ProjectAdmin})
		Expect(k8s.Delete(ctx, role)).To(Succeed())
		DeferCleanup(kibashiptest.Admin)
		p := kibashiptest.Project(ctx, kibashiptest.NewName())
		expect.Settles(ctx, p, kibashipv1.ProjectFailed)
		expect.Shows(ctx, p, kibashipv1.ConditionAccessReady, metav1.ConditionFalse, kibashipv1.ReasonAdminRoleMissing)
		Expect(p.Status.Message).To(ContainSubstring("kibaship-project-admin"))
		kibashiptest.Admin(ctx)
		expect.Settles(ctx, p, kibashipv1.ProjectReady)
	})

	It("tells what holds its namespace, and goes when that is gone", func(ctx context.Context) {
		p := kibashiptest.Ready(ctx)
		held := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: kibashiptest.Namespace(p.Name), Name: "held", Finalizers: []string{"example.org/holds"},
		}}
		Expect(k8s.Create(ctx, held)).To(Succeed())
		Expect(k8s.Delete(ctx, p)).To(Succeed())
		expect.Becomes(ctx, p, func(g Gomega) {
			c := meta.FindStatusCondition(p.Status.Conditions, kibashipv1.ConditionNamespaceReady)
			g.Expect(c.Reason).To(Equal(kibashipv1.ReasonDeletionBlocked))
			g.Expect(p.Status.Message).To(ContainSubstring("example.org/holds"))
		})
		apiserver.RemoveFinalizers(ctx, held)
		expect.Gone(ctx, p)
	})
})

var _ = Describe("A project that came past the webhook", func() {
	DescribeTable("shows what is wrong with it, and makes nothing",
		func(ctx context.Context, modify func(*kibashipv1.Project), reason, reported string) {
			p := kibashiptest.Project(ctx, kibashiptest.NewName(), modify)
			expect.Settles(ctx, p, kibashipv1.ProjectFailed)
			expect.Shows(ctx, p, kibashipv1.ConditionAccepted, metav1.ConditionFalse, reason)
			Expect(p.Status.Message).To(ContainSubstring(reported))
			Expect(apierrors.IsNotFound(k8s.Get(ctx, client.ObjectKey{Name: kibashiptest.Namespace(p.Name)}, &corev1.Namespace{}))).To(BeTrue())
			if reason == kibashipv1.ReasonInvalidLabels {
				By("correcting it")
				apiserver.Change(ctx, p, func() { p.Labels = kibashiptest.NewProject("any").Labels })
				expect.Settles(ctx, p, kibashipv1.ProjectReady)
			}
		},
		Entry("no uuid", func(p *kibashipv1.Project) { p.Labels = nil }, kibashipv1.ReasonInvalidLabels, "platform.kibaship.com/uuid"),
		Entry("a uuid in upper case", func(p *kibashipv1.Project) { p.Labels[kibashipv1.LabelUUID] = "0F0E0D0C-0B0A-4908-8706-050403020100" }, kibashipv1.ReasonInvalidLabels, "lower case"),
		Entry("no uuid at all", func(p *kibashipv1.Project) { p.Labels[kibashipv1.LabelUUID] = "mine" }, kibashipv1.ReasonInvalidLabels, "is not a UUID"),
		Entry("a workspace without a uuid", func(p *kibashipv1.Project) { p.Labels[kibashipv1.LabelWorkspaceUUID] = "ours" }, kibashipv1.ReasonInvalidLabels, "workspace-uuid"),
		Entry("a reserved name", func(p *kibashipv1.Project) { p.Name = "kube-system-" + p.Name }, kibashipv1.ReasonInvalidName, "reserved"),
		Entry("bounds that leave nothing", func(p *kibashipv1.Project) {
			p.Spec.ApplicationTypes.MySQL = &kibashipv1.TypePolicy{Enabled: true, ResourceBounds: kibashipv1.Bounds{
				Min: kibashipv1.Limits{CPU: "4"}, Max: kibashipv1.Limits{CPU: "0.5"},
			}}
		}, kibashipv1.ReasonInvalid, "resourceBounds.max.cpu"),
	)

	It("does not take the uuid of another one", func(ctx context.Context) {
		first := kibashiptest.Ready(ctx)
		second := kibashiptest.Project(ctx, "it-z-"+first.Name, func(p *kibashipv1.Project) { p.Labels = first.Labels })
		expect.Settles(ctx, second, kibashipv1.ProjectFailed)
		expect.Shows(ctx, second, kibashipv1.ConditionAccepted, metav1.ConditionFalse, kibashipv1.ReasonUUIDTaken)
		Expect(second.Status.Message).To(ContainSubstring(first.Name))
		expect.Settles(ctx, first, kibashipv1.ProjectReady)
		By("letting it go")
		expect.Deleted(ctx, first)
		expect.Settles(ctx, second, kibashipv1.ProjectReady)
	})

	It("cannot have a name that makes no namespace", func(ctx context.Context) {
		long := kibashiptest.NewProject("it-0123456789-0123456789-0123456789-012345")
		Expect(k8s.Create(ctx, long)).To(MatchError(ContainSubstring("no longer than 39")))
		dotted := kibashiptest.NewProject("it.example.org")
		Expect(k8s.Create(ctx, dotted)).To(MatchError(ContainSubstring("lower-case letters, digits and dashes")))
	})
})

var _ = Describe("A namespace that is not a project's", func() {
	DescribeTable("is left untouched, also when the project is deleted",
		func(ctx context.Context, labels map[string]string, annotations map[string]string) {
			name := kibashiptest.NewName()
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: kibashiptest.Namespace(name), Labels: labels, Annotations: annotations}}
			Expect(k8s.Create(ctx, ns)).To(Succeed())
			kept := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "kept"}}
			Expect(k8s.Create(ctx, kept)).To(Succeed())
			DeferCleanup(func(ctx context.Context) {
				expect.Deleted(ctx, ns)
			})
			Expect(k8s.Get(ctx, client.ObjectKeyFromObject(ns), ns)).To(Succeed())
			before := ns.DeepCopy()

			p := kibashiptest.Project(ctx, name, func(p *kibashipv1.Project) { p.Labels[kibashipv1.LabelUUID] = uuidA })
			expect.Settles(ctx, p, kibashipv1.ProjectFailed)
			expect.Shows(ctx, p, kibashipv1.ConditionNamespaceReady, metav1.ConditionFalse, kibashipv1.ReasonNamespaceConflict)
			Expect(p.Status.NamespaceName).To(BeEmpty())
			expect.Deleted(ctx, p)

			Expect(k8s.Get(ctx, client.ObjectKeyFromObject(ns), ns)).To(Succeed())
			Expect(ns.UID).To(Equal(before.UID))
			Expect(ns.DeletionTimestamp).To(BeNil())
			Expect(ns.Labels).To(Equal(before.Labels))
			Expect(ns.Annotations).To(Equal(before.Annotations))
			Expect(k8s.Get(ctx, client.ObjectKeyFromObject(kept), kept)).To(Succeed())
			roles := apiserver.List[rbacv1.RoleBindingList](ctx, client.InNamespace(ns.Name))
			Expect(roles.Items).To(BeEmpty())
		},
		Entry("one without labels", nil, nil),
		Entry("one of another uuid", map[string]string{kibashipv1.LabelUUID: uuidB, kibashipv1.LabelManagedBy: kibashipv1.ManagedBy}, nil),
		Entry("one that only claims the uuid", map[string]string{kibashipv1.LabelUUID: uuidA, kibashipv1.LabelManagedBy: kibashipv1.ManagedBy}, nil),
		Entry("one of a Project of that name that is gone", map[string]string{kibashipv1.LabelUUID: uuidA},
			map[string]string{kibashipv1.AnnotationProjectUID: "00000000-0000-4000-8000-000000000000"}),
	)

	It("is one that another user made with every label and annotation before the operator saw the project", func(ctx context.Context) {
		resume := inprocess.Pause()
		p := kibashiptest.Project(ctx, kibashiptest.NewName())
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name:        kibashiptest.Namespace(p.Name),
			Labels:      map[string]string{kibashipv1.LabelUUID: p.Labels[kibashipv1.LabelUUID], kibashipv1.LabelManagedBy: kibashipv1.ManagedBy},
			Annotations: map[string]string{kibashipv1.AnnotationProjectUID: string(p.UID)},
		}}
		Expect(k8s.Create(ctx, ns)).To(Succeed())
		resume()
		expect.Settles(ctx, p, kibashipv1.ProjectFailed)
		expect.Shows(ctx, p, kibashipv1.ConditionNamespaceReady, metav1.ConditionFalse, kibashipv1.ReasonNamespaceConflict)
		Expect(p.Status.Message).To(ContainSubstring("set status.namespaceUID of this Project"))
		Expect(apiserver.Names(ctx, &rbacv1.RoleBindingList{}, client.InNamespace(ns.Name))).To(BeEmpty())

		By("deleting it: the project continues in a namespace of its own")
		Expect(k8s.Delete(ctx, ns)).To(Succeed())
		expect.Settles(ctx, p, kibashipv1.ProjectReady)
		own := apiserver.Get[corev1.Namespace](ctx, client.ObjectKeyFromObject(ns))
		Expect(p.Status.NamespaceUID).To(Equal(own.UID))
		Expect(p.Status.NamespaceTokenHash).To(BeEmpty())
	})

	It("is what an administrator makes of one by taking its label off", func(ctx context.Context) {
		p := kibashiptest.Ready(ctx)
		ns := apiserver.Get[corev1.Namespace](ctx, client.ObjectKey{Name: kibashiptest.Namespace(p.Name)})
		apiserver.Change(ctx, ns, func() {
			delete(ns.Labels, kibashipv1.LabelUUID)
			ns.OwnerReferences = nil // the garbage collector goes by these alone
		})
		expect.Settles(ctx, p, kibashipv1.ProjectFailed)
		expect.Deleted(ctx, p)
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(ns), ns)).To(Succeed())
		Expect(ns.DeletionTimestamp).To(BeNil())
		expect.Deleted(ctx, ns)
	})
})

// bound asks for everything that bounds a project.
func bound(spec *kibashipv1.ProjectSpec) {
	spec.PodSecurity = kibashipv1.PodSecurityBaseline
	spec.Quota = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("10"), "limits.memory": resource.MustParse("4Gi")}
	spec.ContainerLimits = &kibashipv1.ContainerLimits{
		Default: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("128Mi")},
		Max:     corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi"), corev1.ResourceCPU: resource.MustParse("2")},
	}
	spec.NetworkPolicy = &kibashipv1.NetworkPolicy{IngressFrom: []string{"ingress"}, Egress: kibashipv1.EgressInternet}
	spec.Volumes.MaxStorageSize = "10Gi"
}
