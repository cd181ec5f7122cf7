package quix

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/quixtest"
	"github.com/bergctf/berg-operator/test/lib/transport"
)

var _ = Describe("An environment", func() {
	It("gets its namespace and its binding, and says so", Label("versions"), func(ctx context.Context) {
		env := quixtest.Environment(ctx, quixtest.NewID(), func(env *quixv1.Environment) {
			env.Spec.Labels = map[string]string{"quix.io/team": "streaming"}
			env.Spec.Annotations = map[string]string{"quix.io/contact": "someone"}
		})
		expect.Settles(ctx, env, quixv1.PhaseReady)
		id := env.Spec.ID

		ns := environmentNamespace(ctx, env)
		Expect(ns.Labels).To(And(
			HaveKeyWithValue("quix.io/managed-by", "quix-environment-operator"), HaveKeyWithValue("quix.io/environment-id", id),
			HaveKeyWithValue("quix.io/environment-name", env.Name), HaveKeyWithValue("ManagedBy", "Quix"),
			HaveKeyWithValue("quix.io/team", "streaming")))
		Expect(ns.Annotations).To(And(
			HaveKeyWithValue("quix.io/created-by", "quix-environment-operator"),
			HaveKeyWithValue("quix.io/environment-resource-name", env.Name),
			HaveKeyWithValue("quix.io/environment-uid", string(env.UID)),
			HaveKeyWithValue("quix.io/contact", "someone")))
		Expect(ns.OwnerReferences).To(HaveLen(1))
		Expect(ns.OwnerReferences[0].UID).To(Equal(env.UID))
		Expect(*ns.OwnerReferences[0].Controller && *ns.OwnerReferences[0].BlockOwnerDeletion).To(BeTrue())

		binding := environmentBinding(ctx, env)
		Expect(binding.RoleRef).To(Equal(rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "quix-platform-account-role"}))
		Expect(binding.Subjects).To(ConsistOf(rbacv1.Subject{Kind: "ServiceAccount", Name: "quix-platform-account", Namespace: "quix-environment"}))
		Expect(binding.Labels).To(Equal(map[string]string{
			"quix.io/managed-by": "environment-operator", "quix.io/environment-id": id, "quix.io/environment-name": env.Name,
		}))
		Expect(binding.OwnerReferences).To(BeEmpty())

		Expect(*env.Status.NamespaceStatus).To(Equal(quixv1.ResourceStatus{Phase: quixv1.ResourceActive, ResourceName: id + "-qdep"}))
		Expect(*env.Status.RoleBindingStatus).To(Equal(quixv1.ResourceStatus{Phase: quixv1.ResourceActive, ResourceName: id + "-quix-crb"}))
		Expect(env.Status.LastUpdated).NotTo(BeNil())
		Expect(env.Finalizers).To(ConsistOf("quix.io/environment-finalizer"))
		for _, conditionType := range []string{quixv1.ConditionNamespaceReady, quixv1.ConditionRoleValidated, quixv1.ConditionRoleBindingReady, quixv1.ConditionReady} {
			Expect(meta.IsStatusConditionTrue(env.Status.Conditions, conditionType)).To(BeTrue(), expect.Conditions(env))
		}
		Eventually(environmentEvents).WithContext(ctx).WithArguments(env).Should(ConsistOf("Normal/NamespaceCreated", "Normal/RoleBindingCreated", "Normal/EnvironmentReady"))

		By("deleting it")
		expect.Deleted(ctx, env)
		Expect(apierrors.IsNotFound(k8s.Get(ctx, client.ObjectKeyFromObject(ns), ns))).To(BeTrue(), "the finalizer is removed before the namespace is gone")
	})

	It("gives the platform no pod with rights on its node", func(ctx context.Context) {
		env := quixtest.Environment(ctx, quixtest.NewID())
		expect.Settles(ctx, env, quixv1.PhaseReady)
		platform, namespace := apiserver.As("system:serviceaccount:quix-environment:quix-platform-account"), environmentNamespace(ctx, env).Name
		pod := func(spec string) client.Object {
			return apiserver.Object("{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: " + namespace + "}, spec: {containers: [{name: a, image: a" + spec + "}")
		}
		// The API server learns of the binding a moment later.
		Eventually(func() error { return platform.Create(ctx, pod("}]}"), client.DryRunAll) }).WithContext(ctx).Should(Succeed())
		for name, spec := range map[string]string{
			"privileged":            ", securityContext: {privileged: true}}]}",
			"a folder of its node":  "}], volumes: [{name: a, hostPath: {path: /}}]}",
			"processes of its node": "}], hostPID: true}",
		} {
			Expect(platform.Create(ctx, pod(spec), client.DryRunAll)).To(MatchError(apierrors.IsForbidden, "is refused"), name)
		}
	})

	It("removes from the namespace what is removed from the spec, and keeps what other clients set", func(ctx context.Context) {
		env := quixtest.Environment(ctx, quixtest.NewID(), func(env *quixv1.Environment) {
			env.Spec.Labels = map[string]string{"quix.io/a": "1", "quix.io/b": "1"}
			env.Spec.Annotations = map[string]string{"quix.io/c": "1", "quix.io/d": "1"}
		})
		expect.Settles(ctx, env, quixv1.PhaseReady)
		ns := environmentNamespace(ctx, env)
		before := ns.DeepCopy()
		ns.Labels["quix.io/foreign"] = "stays"
		ns.Annotations["example.com/foreign"] = "stays"
		// An owner that exists: the garbage collector removes others.
		role := apiserver.Get[rbacv1.ClusterRole](ctx, client.ObjectKey{Name: platformRole})
		ns.OwnerReferences = append(ns.OwnerReferences, metav1.OwnerReference{
			APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole", Name: role.Name, UID: role.UID,
		})
		Expect(k8s.Patch(ctx, ns, client.MergeFrom(before))).To(Succeed())

		apiserver.Change(ctx, env, func() {
			env.Spec.Labels = map[string]string{"quix.io/b": "2"}
			env.Spec.Annotations = nil
		})
		Eventually(func(g Gomega) {
			ns := environmentNamespace(ctx, env)
			g.Expect(ns.Labels).To(And(Not(HaveKey("quix.io/a")), HaveKeyWithValue("quix.io/b", "2"), HaveKeyWithValue("quix.io/foreign", "stays")))
			g.Expect(ns.Annotations).To(And(Not(HaveKey("quix.io/c")), Not(HaveKey("quix.io/d")), HaveKeyWithValue("example.com/foreign", "stays")))
			g.Expect(ns.OwnerReferences).To(HaveLen(2))
		}).Should(Succeed())
		expect.Settles(ctx, env, quixv1.PhaseReady)
	})

	It("fails on a label that the API server refuses, and continues when it is fixed", func(ctx context.Context) {
		env := quixtest.Environment(ctx, quixtest.NewID(), func(env *quixv1.Environment) { env.Spec.Labels = map[string]string{"quix.io/a": "no spaces please"} })
		expect.Settles(ctx, env, quixv1.PhaseFailed)
		expect.Shows(ctx, env, quixv1.ConditionNamespaceReady, metav1.ConditionFalse, quixv1.ReasonNamespaceCreationFailed)
		Expect(env.Status.NamespaceStatus.Phase).To(Equal(quixv1.ResourceFailed))
		apiserver.Change(ctx, env, func() { env.Spec.Labels["quix.io/a"] = "none" })
		expect.Settles(ctx, env, quixv1.PhaseReady)
		apiserver.Change(ctx, env, func() { env.Spec.Labels["quix.io/a"] = "spaces again" })
		expect.Settles(ctx, env, quixv1.PhaseFailed)
		expect.Shows(ctx, env, quixv1.ConditionNamespaceReady, metav1.ConditionFalse, quixv1.ReasonNamespaceReconciliationFailed)
		apiserver.Change(ctx, env, func() { env.Spec.Labels["quix.io/a"] = "none" })
		expect.Settles(ctx, env, quixv1.PhaseReady)
		// It was retried several times, and each problem has one event.
		Eventually(environmentEvents).WithContext(ctx).WithArguments(env).Should(ConsistOf(
			"Warning/NamespaceCreationFailed", "Normal/NamespaceCreated", "Normal/RoleBindingCreated", "Normal/EnvironmentReady",
			"Warning/NamespaceReconciliationFailed", "Normal/EnvironmentReady"))
	})

	It("repairs what is deleted or changed by hand", func(ctx context.Context) {
		env := quixtest.Environment(ctx, quixtest.NewID(), func(env *quixv1.Environment) { env.Spec.Labels = map[string]string{"quix.io/a": "1"} })
		expect.Settles(ctx, env, quixv1.PhaseReady)

		By("the namespace's metadata")
		ns := environmentNamespace(ctx, env)
		right := ns.DeepCopy()
		before := ns.DeepCopy()
		delete(ns.Labels, "ManagedBy")
		ns.Labels["quix.io/a"] = "2"
		delete(ns.Annotations, "quix.io/created-by")
		ns.Annotations["quix.io/environment-resource-name"] = "another"
		ns.Annotations["quix.io/applied-metadata"] = "spoiled"
		ns.OwnerReferences = nil
		Expect(k8s.Patch(ctx, ns, client.MergeFrom(before))).To(Succeed())
		Eventually(func(g Gomega) {
			now := environmentNamespace(ctx, env)
			g.Expect(maps.Equal(now.Labels, right.Labels)).To(BeTrue(), "%v", now.Labels)
			g.Expect(maps.Equal(now.Annotations, right.Annotations)).To(BeTrue(), "%v", now.Annotations)
			g.Expect(now.OwnerReferences).To(Equal(right.OwnerReferences))
		}).Should(Succeed())

		By("the binding")
		binding := environmentBinding(ctx, env)
		first := binding.UID
		Expect(k8s.Delete(ctx, binding)).To(Succeed())
		Eventually(func(g Gomega) {
			now := &rbacv1.RoleBinding{}
			g.Expect(k8s.Get(ctx, bindingKey(env), now)).To(Succeed())
			g.Expect(now.UID).NotTo(Equal(first))
		}).Should(Succeed())

		By("its labels, one of which hides it from the cache, and its subjects")
		auditor := rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName, Name: "auditor"}
		binding = environmentBinding(ctx, env)
		platform := binding.Subjects[0]
		change := func(modify func(*rbacv1.RoleBinding)) {
			GinkgoHelper()
			now := environmentBinding(ctx, env)
			modify(now)
			Expect(k8s.Update(ctx, now)).To(Succeed())
		}
		becomes := func(subjects ...rbacv1.Subject) {
			GinkgoHelper()
			Eventually(func(g Gomega) {
				now := &rbacv1.RoleBinding{}
				g.Expect(k8s.Get(ctx, bindingKey(env), now)).To(Succeed())
				g.Expect(now.Labels).To(Equal(binding.Labels))
				g.Expect(now.Subjects).To(ConsistOf(subjects))
				g.Expect(now.RoleRef).To(Equal(binding.RoleRef))
			}).Should(Succeed())
		}
		change(func(b *rbacv1.RoleBinding) { b.Labels["quix.io/environment-id"] = "another" })
		becomes(platform)
		change(func(b *rbacv1.RoleBinding) { delete(b.Labels, "quix.io/managed-by") })
		becomes(platform)
		change(func(b *rbacv1.RoleBinding) { b.Subjects = nil })
		becomes(platform)
		change(func(b *rbacv1.RoleBinding) { b.Subjects = []rbacv1.Subject{auditor} })
		becomes(platform)
		change(func(b *rbacv1.RoleBinding) {
			b.Subjects = append(b.Subjects, auditor)
			delete(b.Labels, "quix.io/environment-name")
		})
		becomes(platform, auditor)

		By("its role, which cannot be changed in place, also while the cache does not have the binding")
		for _, hidden := range []bool{false, true} {
			wrong := environmentBinding(ctx, env)
			wrong.RoleRef.Name = "view"
			if hidden {
				delete(wrong.Labels, "quix.io/managed-by")
			}
			Expect(k8s.Delete(ctx, wrong)).To(Succeed())
			Eventually(func() error {
				wrong.ResourceVersion, wrong.UID = "", ""
				err := k8s.Create(ctx, wrong)
				if apierrors.IsAlreadyExists(err) { // the operator was faster
					_ = k8s.Delete(ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: wrong.Namespace, Name: wrong.Name}})
				}
				return err
			}).WithPolling(time.Millisecond).Should(Succeed())
			if hidden { // there is no event, so another change must trigger a reconciliation
				apiserver.Change(ctx, env, func() { env.Spec.Annotations = map[string]string{"quix.io/look": "again"} })
			}
			becomes(platform)
		}

		By("the namespace as a whole")
		old := environmentNamespace(ctx, env)
		Expect(k8s.Delete(ctx, old)).To(Succeed())
		Eventually(func(g Gomega) {
			now := &corev1.Namespace{}
			g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(old), now)).To(Succeed())
			g.Expect(now.UID).NotTo(Equal(old.UID))
			g.Expect(k8s.Get(ctx, bindingKey(env), &rbacv1.RoleBinding{})).To(Succeed())
		}).Should(Succeed())
		expect.Settles(ctx, env, quixv1.PhaseReady)
		// So many changes in a row may count as contested, but nothing was refused.
		Expect(strings.Join(environmentEvents(ctx, env), " ")).NotTo(Or(ContainSubstring("Failed"), ContainSubstring("Conflict")))
	})

	It("waits while its namespace cannot be deleted, says why, and has revoked the rights by then", func(ctx context.Context) {
		env := quixtest.Ready(ctx)
		ns := environmentNamespace(ctx, env)
		hold := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "hold", Finalizers: []string{"example.com/hold"}}}
		Expect(k8s.Create(ctx, hold)).To(Succeed())
		Expect(k8s.Delete(ctx, env)).To(Succeed())
		expect.Shows(ctx, env, quixv1.ConditionNamespaceReady, metav1.ConditionFalse, quixv1.ReasonDeletionBlocked)
		expect.Settles(ctx, env, quixv1.PhaseDeleting)
		Expect(env.Status.Message).To(ContainSubstring("example.com/hold"))
		Expect(env.Status.NamespaceStatus.Phase).To(Equal(quixv1.ResourceDeleting))
		Expect(apierrors.IsNotFound(k8s.Get(ctx, bindingKey(env), &rbacv1.RoleBinding{}))).To(BeTrue(), "the binding outlives the request")

		By("restarting the operator")
		inprocess.Pause()()

		By("removing the finalizer")
		Expect(k8s.Patch(ctx, hold, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
		expect.Gone(ctx, env)
		Expect(apierrors.IsNotFound(k8s.Get(ctx, client.ObjectKeyFromObject(ns), ns))).To(BeTrue())
	})

	It("waits, and does not fail, while its namespace terminates after a deletion by hand", func(ctx context.Context) {
		env := quixtest.Ready(ctx)
		old := environmentNamespace(ctx, env)
		hold := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: old.Name, Name: "hold", Finalizers: []string{"example.com/hold"}}}
		Expect(k8s.Create(ctx, hold)).To(Succeed())
		Expect(k8s.Delete(ctx, old)).To(Succeed())
		expect.Settles(ctx, env, quixv1.PhaseInProgress)
		expect.Shows(ctx, env, quixv1.ConditionNamespaceReady, metav1.ConditionFalse, quixv1.ReasonWaiting)
		// In a namespace that terminates, its binding cannot be created again.
		Eventually(func() bool {
			return apierrors.IsNotFound(k8s.Get(ctx, bindingKey(env), &rbacv1.RoleBinding{}))
		}).Should(BeTrue())
		apiserver.Change(ctx, env, func() { env.Spec.Annotations = map[string]string{"quix.io/look": "again"} })
		expect.Settles(ctx, env, quixv1.PhaseInProgress)
		Expect(k8s.Patch(ctx, hold, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
		expect.Settles(ctx, env, quixv1.PhaseReady)
		Expect(environmentNamespace(ctx, env).UID).NotTo(Equal(old.UID))
		Expect(environmentEvents(ctx, env)).NotTo(ContainElement(HavePrefix("Warning/")))
	})

	It("is deleted although its binding cannot be deleted, and says so", func(ctx context.Context) {
		env := quixtest.Ready(ctx)
		inprocess.Instead(clock.RealClock{}, nil, transport.Through(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			if r.Method == http.MethodDelete && strings.Contains(r.URL.Path, "/rolebindings/") {
				return nil, errors.New("the connection is cut")
			}
			return next.RoundTrip(r)
		}))
		expect.Deleted(ctx, env)
		Eventually(environmentEvents).WithContext(ctx).WithArguments(env).Should(ContainElement("Warning/RoleBindingDeletionFailed"))
	})

	It("is deleted although its namespace was never created", func(ctx context.Context) {
		inprocess.Pause()
		env := quixtest.Environment(ctx, quixtest.NewID())
		expect.Deleted(ctx, env)
	})

	It("costs no write when nothing has changed, not even after a restart", func(ctx context.Context) {
		env := quixtest.Environment(ctx, quixtest.NewID(), func(env *quixv1.Environment) { env.Spec.Labels = map[string]string{"quix.io/a": "1"} })
		expect.Settles(ctx, env, quixv1.PhaseReady)
		inprocess.Pause()
		var writes, reads atomic.Int64
		inprocess.Instead(clock.RealClock{}, nil, transport.Showing(func(r *http.Request) {
			about := strings.Contains(r.URL.Path, env.Name) || strings.Contains(r.URL.Path, env.Spec.ID)
			switch {
			case about && r.Method == http.MethodGet:
				reads.Add(1)
			case about:
				writes.Add(1)
			}
		}))
		// A change that the operator ignores triggers a reconciliation, and shows that it costs nothing.
		quixtest.Ready(ctx)
		ns := environmentNamespace(ctx, env)
		before := ns.DeepCopy()
		ns.Annotations["example.com/any"] = "any"
		Expect(k8s.Patch(ctx, ns, client.MergeFrom(before))).To(Succeed())
		Consistently(writes.Load).WithTimeout(3 * time.Second).Should(BeZero())
		Expect(reads.Load()).To(BeZero(), "everything is in the cache")
	})

	It("becomes complete after the operator dies after any of its writes", func(ctx context.Context) {
		inprocess.Pause()
		for deadly := int64(1); ; deadly++ {
			var writes atomic.Int64
			var order requestLog
			stop := inprocess.Run(nil, transport.Through(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
				if r.Method == http.MethodGet || transport.Asks(r) || strings.Contains(r.URL.Path, "/events") {
					return next.RoundTrip(r)
				}
				n := writes.Add(1)
				order.add(r)
				if n > deadly {
					return nil, http.ErrServerClosed // a dead process writes nothing
				}
				response, err := next.RoundTrip(r)
				if n == deadly && err == nil {
					_ = response.Body.Close()
					return nil, http.ErrServerClosed // written, but the answer is lost
				}
				return response, err
			}))
			env := quixtest.Environment(ctx, quixtest.NewID())
			Eventually(func() bool {
				if writes.Load() > deadly {
					return true
				}
				Expect(k8s.Get(ctx, client.ObjectKeyFromObject(env), env)).To(Succeed())
				return env.Status.Phase == quixv1.PhaseReady
			}).WithPolling(5 * time.Millisecond).Should(BeTrue())
			done := writes.Load() <= deadly
			stop()

			stop = inprocess.Run(nil, nil)
			expect.Settles(ctx, env, quixv1.PhaseReady)
			Expect(environmentNamespace(ctx, env).Annotations).To(HaveKeyWithValue("quix.io/environment-uid", string(env.UID)))
			Expect(environmentBinding(ctx, env).Subjects).To(HaveLen(1))
			Expect(k8s.Delete(ctx, env)).To(Succeed()) // the suite waits for its end
			stop()
			if done {
				environments, ns := "/apis/quix.io/v1/environments/"+env.Name, env.Spec.ID+"-qdep"
				own := func(line string) bool { // others are being deleted
					return strings.Contains(line, env.Name) || strings.Contains(line, ns) || strings.HasSuffix(line, "/api/v1/namespaces")
				}
				Expect(order.those(own)).To(HaveExactElements(
					"PATCH "+environments,           // the finalizer, before all else
					"PATCH "+environments+"/status", // the names, before anything has them
					"POST /api/v1/namespaces",
					"POST /apis/rbac.authorization.k8s.io/v1/namespaces/"+ns+"/rolebindings",
					"PATCH "+environments+"/status",
				))
				return
			}
		}
	})
})

// requestLog records requests in their order.
type requestLog struct {
	mu    sync.Mutex
	lines []string
}

func (l *requestLog) add(r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, r.Method+" "+r.URL.Path)
}

func (l *requestLog) those(match func(string) bool) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(l.lines), func(line string) bool { return !match(line) })
}

var _ = Describe("The API server", func() {
	It("refuses an invalid Environment, naming the field", func(ctx context.Context) {
		with := func(modify func(*quixv1.EnvironmentSpec)) *quixv1.Environment {
			env := &quixv1.Environment{ObjectMeta: metav1.ObjectMeta{GenerateName: "integration-"}, Spec: quixv1.EnvironmentSpec{ID: quixtest.NewID()}}
			modify(&env.Spec)
			return env
		}
		id := func(id string) *quixv1.Environment { return with(func(s *quixv1.EnvironmentSpec) { s.ID = id }) }
		label := func(key string) *quixv1.Environment {
			return with(func(s *quixv1.EnvironmentSpec) { s.Labels = map[string]string{"quix.io/ok": "1", key: "1"} })
		}
		annotation := func(key string) *quixv1.Environment {
			return with(func(s *quixv1.EnvironmentSpec) { s.Annotations = map[string]string{"quix.io/ok": "1", key: "1"} })
		}
		for _, tc := range []struct {
			env   *quixv1.Environment
			field string
		}{
			{id("abc"), ""},
			{id("a-1"), ""},
			{id(strings.Repeat("a", 44)), ""},
			{id("123"), ""},
			{id(""), "spec.id"},
			{id("ab"), "spec.id"},
			{id(strings.Repeat("a", 45)), "spec.id"},
			{id("Abc"), "spec.id"},
			{id("-abc"), "spec.id"},
			{id("abc-"), "spec.id"},
			{id("a.bc"), "spec.id"},
			{id("a_bc"), "spec.id"},
			{label("quix.io/x"), ""},
			{label("team"), "spec.labels"},
			{label("example.com/x"), "spec.labels"},
			{label("quix.iox"), "spec.labels"},
			{label("quix.io/managed-by"), "spec.labels"},
			{label("quix.io/environment-id"), "spec.labels"},
			{label("quix.io/environment-name"), "spec.labels"},
			{annotation("quix.io/x"), ""},
			{annotation("x"), "spec.annotations"},
			{annotation("quix.io/created-by"), "spec.annotations"},
			{annotation("quix.io/environment-resource-name"), "spec.annotations"},
			{annotation("quix.io/environment-uid"), "spec.annotations"},
			{annotation("quix.io/applied-metadata"), "spec.annotations"},
		} {
			err := k8s.Create(ctx, tc.env, client.DryRunAll)
			if tc.field == "" {
				Expect(err).NotTo(HaveOccurred(), "%+v", tc.env.Spec)
				continue
			}
			Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%+v: %v", tc.env.Spec, err)
			Expect(err.Error()).To(ContainSubstring(tc.field+":"), "%+v", tc.env.Spec)
		}

		env := quixtest.Environment(ctx, quixtest.NewID())
		changed := env.DeepCopy()
		changed.Spec.ID = quixtest.NewID()
		err := k8s.Patch(ctx, changed, client.MergeFrom(env), client.DryRunAll)
		Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
		Expect(err.Error()).To(ContainSubstring("id cannot be changed"))
	})
})
