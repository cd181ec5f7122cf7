package operator

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/operator-framework/api/crds"
	operatorsv2 "github.com/operator-framework/api/pkg/operators/v2"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/berg-operator/families"
	"github.com/bergctf/berg-operator/internal/operator"
	"github.com/bergctf/berg-operator/internal/operator/upgradeable"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/installed"
)

// OLM itself is not here; its OperatorCondition is, with the rights that OLM
// grants for it.
var _ = Describe("An upgrade by OLM", func() {
	const name = "berg-operator.v0.0.1"
	var (
		olm client.Client
		// ns is the namespace of the OperatorCondition.
		ns string
	)

	BeforeEach(func(ctx context.Context) {
		definition, err := runtime.DefaultUnstructuredConverter.ToUnstructured(crds.OperatorCondition())
		Expect(err).NotTo(HaveOccurred())
		delete(definition, "status")
		apiserver.InstallDefinition(ctx, &unstructured.Unstructured{Object: definition})
		scheme, err := operator.NewScheme(families.All()...)
		Expect(err).NotTo(HaveOccurred())
		Expect(operatorsv2.AddToScheme(scheme)).To(Succeed())
		Expect(rbacv1.AddToScheme(scheme)).To(Succeed())
		olm, err = client.New(restConfig, client.Options{Scheme: scheme})
		Expect(err).NotTo(HaveOccurred())
		ns = bergtest.Namespace(ctx)
	})

	add := func(ctx context.Context, object client.Object) {
		GinkgoHelper()
		Expect(olm.Create(ctx, object)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(olm.Delete(ctx, object)).To(Succeed()) })
	}
	create := func(ctx context.Context, conditions ...metav1.Condition) {
		GinkgoHelper()
		object := &operatorsv2.OperatorCondition{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
		object.Spec.Deployments = []string{"berg-operator-controller-manager"}
		object.Spec.Conditions = conditions
		add(ctx, object)
	}
	// grant gives a user what OLM gives the operator's ServiceAccount in its namespace.
	grant := func(ctx context.Context, user string) {
		GinkgoHelper()
		add(ctx, &rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
			Rules: []rbacv1.PolicyRule{{
				APIGroups: []string{operatorsv2.GroupVersion.Group}, Resources: []string{"operatorconditions"},
				ResourceNames: []string{name}, Verbs: []string{"get", "update", "patch"},
			}},
		})
		add(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
		})
	}
	conditionsOf := func(ctx context.Context) []metav1.Condition {
		GinkgoHelper()
		object := &operatorsv2.OperatorCondition{}
		Expect(olm.Get(ctx, client.ObjectKey{Namespace: ns, Name: name}, object)).To(Succeed())
		return object.Spec.Conditions
	}
	becomes := func(ctx context.Context, status metav1.ConditionStatus, reason string) metav1.Condition {
		GinkgoHelper()
		var found metav1.Condition
		Eventually(func(g Gomega) {
			c := meta.FindStatusCondition(conditionsOf(ctx), operatorsv2.Upgradeable)
			g.Expect(c).NotTo(BeNil())
			g.Expect(string(c.Status) + "/" + c.Reason).To(Equal(string(status) + "/" + reason))
			found = *c
		}).Should(Succeed())
		return found
	}

	Context("as the operator sees it", func() {
		BeforeEach(func(ctx context.Context) {
			inprocess.Pause()
			ns = installed.Namespace // the fence lets the operator write Secrets in no other namespace of its own
			grant(ctx, apiserver.OperatorUser)
		})
		stuck := func(ctx context.Context) *bergv1.ChallengeInstance {
			GinkgoHelper()
			challenges := bergtest.Namespace(ctx)
			bergtest.Challenge(ctx, challenges, "stuck", `containers: [{hostname: web, image: berg.test/behaviour/not-ready}]`)
			return bergtest.Instance(ctx, challenges, "stuck")
		}
		run := func(hold string) (stop func()) {
			return inprocess.Run(map[string]string{"POD_NAMESPACE": ns, "ISOLATION_CHECK": "off", "OPERATOR_CONDITION_NAME": name, "UPGRADE_HOLD_MAX": hold}, nil)
		}

		It("waits for an instance that starts, but not for one that is stuck", func(ctx context.Context) {
			create(ctx)
			i := stuck(ctx)
			stop := run("6s")
			defer stop()
			becomes(ctx, metav1.ConditionFalse, upgradeable.ReasonBusy)
			becomes(ctx, metav1.ConditionTrue, upgradeable.ReasonHoldExpired)
			expect.Reaches(ctx, i, bergv1.PhaseStarting)
		})

		It("may begin when the operator is shut down", func(ctx context.Context) {
			create(ctx)
			i := stuck(ctx)
			stop := run("1h")
			defer stop()
			expect.Reaches(ctx, i, bergv1.PhaseStarting)
			becomes(ctx, metav1.ConditionFalse, upgradeable.ReasonBusy)
			stop()
			becomes(ctx, metav1.ConditionTrue, upgradeable.ReasonStopped)
		})
	})

	Context("as the condition shows it", func() {
		var (
			work   chan []time.Time
			wake   func()
			writes atomic.Int64
		)

		// run starts a gate, one that is never shut down, with the rights that OLM grants, and no other.
		run := func(ctx context.Context) (stop func()) {
			GinkgoHelper()
			user := "system:serviceaccount:" + ns + ":operator"
			grant(ctx, user)
			writes.Store(0)
			limited := rest.CopyConfig(restConfig)
			limited.Impersonate = rest.ImpersonationConfig{UserName: user}
			limited.Wrap(func(next http.RoundTripper) http.RoundTripper { return countingConditions{next, &writes} })
			direct, err := client.New(limited, client.Options{Scheme: olm.Scheme()})
			Expect(err).NotTo(HaveOccurred())

			// Any kind will do to tell the gate that something changed.
			informers, err := cache.New(restConfig, cache.Options{Scheme: olm.Scheme(), DefaultNamespaces: map[string]cache.Config{ns: {}}})
			Expect(err).NotTo(HaveOccurred())
			work = make(chan []time.Time, 1)
			work <- nil
			n := 0
			wake = func() {
				n++
				bergtest.Challenge(ctx, ns, "wake-"+strings.Repeat("x", n), bergtest.OneContainer)
			}
			gate := &upgradeable.Gate{
				Key: client.ObjectKey{Namespace: ns, Name: name}, Client: direct, Watched: []upgradeable.Watched{{Informers: informers, Kind: &bergv1.Challenge{}}},
				Work: func(context.Context) ([]time.Time, error) {
					w := <-work
					work <- w
					return w, nil
				},
				Bounds: upgradeable.Bounds{Hold: time.Hour, Settle: 2 * time.Second}, Clock: clock.RealClock{},
				ShutDown: func() bool { return false },
			}
			running, cancel := context.WithCancel(context.Background())
			ended := make(chan error, 2)
			go func() { ended <- informers.Start(running) }()
			go func() { ended <- gate.Start(running) }()
			return func() {
				cancel()
				Eventually(ended).Should(Receive(BeNil()))
				Eventually(ended).Should(Receive(BeNil()))
			}
		}
		set := func(w ...time.Time) {
			<-work
			work <- w
			wake()
		}

		It("is written once for a pause and once for its end, and keeps what others wrote", func(ctx context.Context) {
			create(ctx, metav1.Condition{Type: "Foreign", Status: metav1.ConditionTrue, Reason: "Theirs", Message: "not ours", LastTransitionTime: metav1.NewTime(time.Now())})
			stop := run(ctx)
			defer stop()
			becomes(ctx, metav1.ConditionTrue, upgradeable.ReasonIdle)
			Expect(writes.Load()).To(Equal(int64(1)))
			// Work that is followed by other work: the condition stays as it is.
			for range 3 {
				set(time.Now())
				becomes(ctx, metav1.ConditionFalse, upgradeable.ReasonBusy)
			}
			Expect(writes.Load()).To(Equal(int64(2)))
			set()
			becomes(ctx, metav1.ConditionTrue, upgradeable.ReasonIdle)
			Expect(writes.Load()).To(Equal(int64(3)))
			foreign := meta.FindStatusCondition(conditionsOf(ctx), "Foreign")
			Expect(foreign).NotTo(BeNil())
			Expect(foreign.Message).To(Equal("not ours"))
		})

		It("is written when OLM has made the object, however late", func(ctx context.Context) {
			stop := run(ctx)
			defer stop()
			Consistently(writes.Load).WithContext(ctx).WithTimeout(time.Second).Should(BeZero())
			create(ctx)
			becomes(ctx, metav1.ConditionTrue, upgradeable.ReasonIdle)
		})

		It("is left to the next leader by one that lost the lease", func(ctx context.Context) {
			create(ctx)
			stop := run(ctx)
			set(time.Now())
			before := becomes(ctx, metav1.ConditionFalse, upgradeable.ReasonBusy)
			stop()
			Expect(becomes(ctx, metav1.ConditionFalse, upgradeable.ReasonBusy)).To(Equal(before))
		})
	})
})

// countingConditions counts the writes of OperatorConditions.
type countingConditions struct {
	next   http.RoundTripper
	writes *atomic.Int64
}

func (c countingConditions) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet && strings.Contains(r.URL.Path, "/operatorconditions/") {
		c.writes.Add(1)
	}
	return c.next.RoundTrip(r)
}
