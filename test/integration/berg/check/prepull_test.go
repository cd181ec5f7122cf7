package check

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/berg-operator/families"
	"github.com/bergctf/berg-operator/internal/berg/prepull"
	"github.com/bergctf/berg-operator/internal/operator"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/installed"
	"github.com/bergctf/berg-operator/test/lib/transport"
)

// Simulated nodes list no images, and seem to run everything that is put on them: a pull is done as soon
// as its pod runs.
var _ = Describe("Images that are pulled ahead", Label("prepull"), func() {
	const ahead = 30 * time.Minute
	var (
		ns    string
		nodes int
	)
	BeforeEach(func(ctx context.Context) {
		allowPrepull(ctx)
		all := apiserver.List[corev1.NodeList](ctx)
		nodes = len(all.Items)
		// Samples that other specs have left would be pulled, too.
		left := apiserver.List[bergv1.ChallengeList](ctx)
		for i := range left.Items {
			if c := &left.Items[i]; c.Spec.Prepull || c.Spec.HideUntil != "" {
				Expect(client.IgnoreNotFound(k8s.Delete(ctx, c))).To(Succeed())
			}
		}
		ns = bergtest.Namespace(ctx)
		inprocess.Restart(map[string]string{"IMAGE_PREPULL_LEAD": ahead.String(), "IMAGE_PREPULL_CONCURRENCY": "2"}, nil)
		DeferCleanup(func(ctx context.Context) { // while an operator runs that pulls
			Expect(k8s.DeleteAllOf(ctx, &bergv1.Challenge{}, client.InNamespace(ns))).To(Succeed())
			noRoom(ctx)
		})
	})

	It("are pulled once on each node, not too many at a time, and nothing is left", func(ctx context.Context) {
		before := inprocess.Metric("berg_image_prepull_pulls_total", "result", "Pulled")
		seen := watchPulls(ctx)
		c := bergtest.Challenge(ctx, ns, "web", `{prepull: true, containers: [{hostname: web, image: "example.com/web:1"}, {hostname: db, image: "example.com/db:1"}, {hostname: more, image: "example.com/web:1"}]}`)
		pulled(ctx, c, 2*nodes, nodes)
		noRoom(ctx)
		expect.Event(ctx, c, corev1.EventTypeNormal, "Pulled")
		most, all := seen()
		Expect(most).To(BeNumerically("<=", 2))
		Expect(all).To(HaveLen(2 * nodes))
		Expect(inprocess.Metric("berg_image_prepull_pulls_total", "result", "Pulled") - before).To(BeEquivalentTo(2 * nodes))

		By("writing nothing more")
		version := c.ResourceVersion
		Consistently(func(g Gomega) {
			g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(c), c)).To(Succeed())
			g.Expect(c.ResourceVersion).To(Equal(version))
		}).WithTimeout(3 * time.Second).Should(Succeed())

		By("pulling what was changed")
		apiserver.Change(ctx, c, func() { c.Spec.Containers[1].Image = "example.com/db:2" })
		pulled(ctx, c, 2*nodes, nodes)
		_, all = seen()
		Expect(all).To(HaveLen(3*nodes), "what is there is pulled again")

		By("forgetting what no Challenge asks for")
		apiserver.Change(ctx, c, func() { c.Spec.Prepull = false })
		expect.Becomes(ctx, c, func(g Gomega) {
			g.Expect(meta.FindStatusCondition(c.Status.Conditions, bergv1.ChallengeConditionImagesReady)).To(BeNil())
		})
	})

	// An API server that has just started knows of no rights for a moment.
	It("are reported also when the API server did not take the status at first", func(ctx context.Context) {
		var refused atomic.Int32
		inprocess.Restart(map[string]string{"IMAGE_PREPULL_LEAD": ahead.String()}, func(next http.RoundTripper) http.RoundTripper {
			return transport.Func(func(r *http.Request) (*http.Response, error) {
				if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/challenges/refused/status") && refused.Add(1) <= 2 {
					return transport.Refusal(r, http.StatusForbidden, metav1.StatusReasonForbidden, "no request is allowed yet"), nil
				}
				return next.RoundTrip(r)
			})
		})
		c := bergtest.Challenge(ctx, ns, "refused", `{prepull: true, containers: [{hostname: web, image: "example.com/web:1"}]}`)
		expect.Event(ctx, c, corev1.EventTypeWarning, bergv1.ReasonRefused)
		pulled(ctx, c, nodes, nodes)
		Expect(refused.Load()).To(BeNumerically(">", 2))
	})

	It("are pulled while a platform wants them", func(ctx context.Context) {
		c := bergtest.Challenge(ctx, ns, "wanted", `{containers: [{hostname: web, image: "example.com/wanted:1"}]}`)
		registration := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "registration", Labels: map[string]string{
			bergv1.LabelManagedBy: bergv1.ManagedByAPI, bergv1.LabelPrepullChallenge: c.Name,
		}}}
		Expect(k8s.Create(ctx, registration)).To(Succeed())
		pulled(ctx, c, nodes, nodes)
		noRoom(ctx)
		Expect(k8s.Delete(ctx, registration)).To(Succeed())
		expect.Becomes(ctx, c, func(g Gomega) {
			g.Expect(meta.FindStatusCondition(c.Status.Conditions, bergv1.ChallengeConditionImagesReady)).To(BeNil())
		})
	})

	It("come so long before hideUntil as the setting says", func(ctx context.Context) {
		shown := time.Now().Add(2 * ahead).UTC().Truncate(time.Second)
		c := bergtest.Challenge(ctx, ns, "hidden", fmt.Sprintf(`{hideUntil: %q, containers: [{hostname: web, image: "example.com/hidden:1"}]}`, shown.Format(time.RFC3339)))
		imagesShow(ctx, c, metav1.ConditionFalse, bergv1.ImagesScheduled, shown.Add(-ahead).Format(time.RFC3339))
		Expect(rooms(ctx)).NotTo(ContainElement(prepull.NamespacePrefix + string(c.UID)))
		apiserver.Change(ctx, c, func() { c.Spec.HideUntil = time.Now().Add(ahead + 2*time.Second).UTC().Format(time.RFC3339) })
		pulled(ctx, c, nodes, nodes)

		By("leaving those alone that are shown")
		never := bergtest.Challenge(ctx, ns, "shown", `{hideUntil: "2020-01-01T00:00:00Z", containers: [{hostname: web, image: "example.com/shown:1"}]}`)
		apiserver.Change(ctx, c, func() { c.Spec.Containers[0].Image = "example.com/hidden:2" })
		pulled(ctx, c, nodes, nodes)
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(never), never)).To(Succeed())
		Expect(meta.FindStatusCondition(never.Status.Conditions, bergv1.ChallengeConditionImagesReady)).To(BeNil())

		By("saying that it is too late for what was not pulled")
		apiserver.Change(ctx, c, func() { c.Spec.HideUntil = "2020-01-01T00:00:00Z" })
		imagesShow(ctx, c, metav1.ConditionFalse, bergv1.ImagesTimeIsOver, "hideUntil is over")
	})

	It("that cannot be pulled are reported, with a pull secret, in a namespace of their own", func(ctx context.Context) {
		source := bergtest.PullSecretSource(ctx, "known")
		inprocess.Restart(map[string]string{"IMAGE_PREPULL_LEAD": "1h", "IMAGE_PREPULL_CONCURRENCY": "1", "PULL_SECRET_NAME": source.Name}, nil)
		deployments := apiserver.Changes(ctx, &appsv1.DeploymentList{}, "")
		c := bergtest.Challenge(ctx, ns, "gone", `{prepull: true, containers: [{hostname: web, image: "berg.test/behaviour/image-pull:1"}]}`)
		d := firstPull(ctx, deployments, c)
		spec := d.Spec.Template.Spec
		Expect(spec.ImagePullSecrets).To(HaveLen(1))
		var copied corev1.Secret
		Expect(k8s.Get(ctx, client.ObjectKey{Namespace: d.Namespace, Name: spec.ImagePullSecrets[0].Name}, &copied)).To(Succeed())
		Expect(copied.Data).To(Equal(source.Data))
		var room corev1.Namespace
		Expect(k8s.Get(ctx, client.ObjectKey{Name: d.Namespace}, &room)).To(Succeed())
		Expect(room.Labels).To(HaveKeyWithValue("pod-security.kubernetes.io/enforce", "restricted"))
		Expect(apiserver.Names(ctx, &networkingv1.NetworkPolicyList{}, client.InNamespace(d.Namespace))).To(ConsistOf("closed"))
		imagesShow(ctx, c, metav1.ConditionFalse, bergv1.ImagesPullFailed, `Back-off pulling image "berg.test/behaviour/image-pull:1"`)
		expect.Event(ctx, c, corev1.EventTypeWarning, "PullFailed")
		Eventually(func() float64 { return inprocess.Metric("berg_image_prepull_failing") }).Should(BeNumerically(">=", 1))

		By("leaving nothing of a Challenge that is deleted")
		Expect(k8s.Delete(ctx, c)).To(Succeed())
		noRoom(ctx)
		Eventually(func() float64 { return inprocess.Metric("berg_image_prepull_failing") }).Should(BeZero())
	})

	It("come to a node that joins", func(ctx context.Context) {
		c := bergtest.Challenge(ctx, ns, "joined", `{prepull: true, containers: [{hostname: web, image: "example.com/joined:1"}]}`)
		pulled(ctx, c, nodes, nodes)
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "joined"}}
		n.Labels = map[string]string{corev1.LabelHostname: n.Name}
		Expect(k8s.Create(ctx, n)).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			expect.Removed(ctx, n)
		})
		pulled(ctx, c, nodes+1, nodes+1)
		Expect(k8s.Delete(ctx, n)).To(Succeed())
		pulled(ctx, c, nodes, nodes)
	})

	It("touch no namespace that is not theirs", func(ctx context.Context) {
		c := bergtest.Challenge(ctx, ns, "foreign", `{containers: [{hostname: web, image: "example.com/foreign:1"}]}`)
		foreign := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: prepull.NamespacePrefix + string(c.UID), Labels: prepull.OwnershipLabels.Found}}
		apiserver.Create(ctx, foreign)
		apiserver.Change(ctx, c, func() { c.Spec.Prepull = true })
		imagesShow(ctx, c, metav1.ConditionFalse, bergv1.ImagesPulling, foreign.Name)
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(foreign), foreign)).To(Succeed())
		Expect(foreign.DeletionTimestamp).To(BeNil())
		Expect(k8s.Delete(ctx, foreign)).To(Succeed())
		pulled(ctx, c, nodes, nodes)
	})

	It("and their pull secret get into no namespace that another user has marked like the operator's", func(ctx context.Context) {
		source := bergtest.PullSecretSource(ctx, "stolen")
		inprocess.Restart(map[string]string{"IMAGE_PREPULL_LEAD": "1h", "PULL_SECRET_NAME": source.Name}, nil)
		c := bergtest.Challenge(ctx, ns, "awaited", `{containers: [{hostname: web, image: "example.com/awaited:1"}]}`)
		forged := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: prepull.NamespacePrefix + string(c.UID), Labels: prepull.OwnershipLabels.Found,
			Annotations: map[string]string{prepull.OwnershipLabels.Annotation(): string(c.UID)},
			Finalizers:  []string{"test.example.com/attacker"}, // it stays as long as its maker likes
		}}
		Expect(k8s.Create(ctx, forged)).To(Succeed())
		release := func(ctx context.Context) {
			Expect(client.IgnoreNotFound(k8s.Patch(ctx, forged, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))).To(Succeed())
		}
		DeferCleanup(release)
		secrets := apiserver.Changes(ctx, &corev1.SecretList{}, forged.Name)
		apiserver.Change(ctx, c, func() { c.Spec.Prepull = true })
		imagesShow(ctx, c, metav1.ConditionFalse, bergv1.ImagesPulling, forged.Name)
		expect.Becomes(ctx, forged, func(g Gomega) {
			g.Expect(forged.DeletionTimestamp).NotTo(BeNil())
		})
		Expect(secrets).NotTo(Receive())
		release(ctx)
		pulled(ctx, c, nodes, nodes)
	})

	It("leave nothing behind when the operator is killed", func(ctx context.Context) {
		deployments := apiserver.Changes(ctx, &appsv1.DeploymentList{}, "")
		c := bergtest.Challenge(ctx, ns, "killed", `{prepull: true, containers: [{hostname: web, image: "berg.test/behaviour/image-pull:2"}]}`)
		firstPull(ctx, deployments, c)
		inprocess.End()
		Expect(k8s.Delete(ctx, c)).To(Succeed())
		Expect(rooms(ctx)).NotTo(BeEmpty())
		inprocess.Restart(map[string]string{"IMAGE_PREPULL_LEAD": "1h"}, nil)
		noRoom(ctx)
	})

	It("take nothing of an operator that has no setting for it, and do not start without their rights", func(ctx context.Context) {
		inprocess.Restart(nil, nil)
		c := bergtest.Challenge(ctx, ns, "off", `{prepull: true, containers: [{hostname: web, image: "example.com/off:1"}]}`)
		expect.Reaches(ctx, bergtest.Instance(ctx, ns, "off"), bergv1.PhaseRunning)
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(c), c)).To(Succeed())
		Expect(meta.FindStatusCondition(c.Status.Conditions, bergv1.ChallengeConditionImagesReady)).To(BeNil())
		Expect(rooms(ctx)).To(BeEmpty())

		Expect(k8s.Delete(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "berg-operator-berg-prepull"}})).To(Succeed())
		Eventually(func() bool {
			return apiserver.May(ctx, apiserver.OperatorUser, may("watch", "node.k8s.io", "runtimeclasses"))
		}).Should(BeFalse())
		rc := rest.CopyConfig(restConfig)
		rc.Impersonate = rest.ImpersonationConfig{UserName: apiserver.OperatorUser}
		p, enabled := inprocess.Load(inprocess.With(map[string]string{"IMAGE_PREPULL_LEAD": "1h"}), families.All()...)
		_, err := operator.New(ctx, rc, p, enabled, operator.Options{SkipNameValidation: true, Clock: clock.RealClock{}})
		Expect(err).To(MatchError(ContainSubstring("config/berg/prepull")))
	})
})

// allowPrepull gives the operator the rights of config/berg/prepull until the spec ends.
func allowPrepull(ctx context.Context) {
	GinkgoHelper()
	Expect(installed.Folder(ctx, k8s, "config/berg/prepull", "integration")).To(Succeed())
	// By then the operator that all specs share runs again, which pulls nothing.
	DeferCleanup(func(ctx context.Context) {
		binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "berg-operator-berg-prepull"}}
		Expect(client.IgnoreNotFound(k8s.Delete(ctx, binding))).To(Succeed())
	})
	for _, right := range [][3]string{{"watch", "", "nodes"}, {"watch", "node.k8s.io", "runtimeclasses"}} { // the API server goes by it a moment later
		Eventually(func() bool { return apiserver.May(ctx, apiserver.OperatorUser, may(right[0], right[1], right[2])) }).Should(BeTrue())
	}
}

// imagesShow waits for what a Challenge tells of its present version.
func imagesShow(ctx context.Context, c *bergv1.Challenge, status metav1.ConditionStatus, reason, says string) {
	GinkgoHelper()
	expect.Becomes(ctx, c, func(g Gomega) {
		now := meta.FindStatusCondition(c.Status.Conditions, bergv1.ChallengeConditionImagesReady)
		g.Expect(now).NotTo(BeNil())
		g.Expect(*now).To(SatisfyAll(
			HaveField("Status", status), HaveField("Reason", reason), HaveField("Message", ContainSubstring(says)), HaveField("ObservedGeneration", c.Generation)))
	})
}

func pulled(ctx context.Context, c *bergv1.Challenge, pulls, nodes int) {
	GinkgoHelper()
	imagesShow(ctx, c, metav1.ConditionTrue, bergv1.ImagesPulled, fmt.Sprintf("%d of %d pulls on %d nodes are done", pulls, pulls, nodes))
}

// rooms are the namespaces in which images are pulled.
func rooms(ctx context.Context) (names []string) {
	GinkgoHelper()
	for _, name := range apiserver.Names(ctx, &corev1.NamespaceList{}) {
		if strings.HasPrefix(name, prepull.NamespacePrefix) {
			names = append(names, name)
		}
	}
	return names
}

func noRoom(ctx context.Context) {
	GinkgoHelper()
	Eventually(func() []string { return rooms(ctx) }).Should(BeEmpty())
}

// firstPull waits for a pull of a Challenge among the changes of Deployments.
func firstPull(ctx context.Context, changes <-chan watch.Event, c *bergv1.Challenge) *appsv1.Deployment {
	GinkgoHelper()
	var found *appsv1.Deployment
	Eventually(ctx, changes).Should(Receive(WithTransform(func(e watch.Event) bool {
		d, ok := e.Object.(*appsv1.Deployment)
		if ok && d.Namespace == prepull.NamespacePrefix+string(c.UID) {
			found = d
		}
		return found != nil
	}, BeTrue())))
	return found
}

// watchPulls counts, until the spec ends, how many pulls there were at the same time at most, and
// names all of them.
func watchPulls(ctx context.Context) func() (most int, all []string) {
	GinkgoHelper()
	var mu sync.Mutex
	var most int
	live, names := map[string]bool{}, map[string]bool{}
	changes := apiserver.Changes(ctx, &appsv1.DeploymentList{}, "")
	go func() {
		for e := range changes {
			d, ok := e.Object.(*appsv1.Deployment)
			if !ok || !strings.HasPrefix(d.Namespace, prepull.NamespacePrefix) {
				continue
			}
			mu.Lock()
			names[d.Name] = true
			live[d.Name] = true
			if e.Type == watch.Deleted {
				delete(live, d.Name)
			}
			most = max(most, len(live))
			mu.Unlock()
		}
	}()
	return func() (int, []string) {
		mu.Lock()
		defer mu.Unlock()
		var all []string
		for name := range names {
			all = append(all, name)
		}
		return most, all
	}
}
