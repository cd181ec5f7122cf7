package queue

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/transport"
)

// copied is a namespace that another user makes with all that the instance and its status tell.
func copied(i *bergv1.ChallengeInstance) *corev1.Namespace {
	ns := lookingOurs(i.Spec.OwnerID, i.UID)
	ns.Labels[bergv1.LabelOwnerID] = i.Spec.OwnerID
	ns.Labels[bergv1.LabelChallenge] = i.Spec.ChallengeRef.Name
	ns.Annotations[bergv1.AnnotationInstance] = i.Namespace + "/" + i.Name
	if i.Status.InstanceID != "" {
		ns.Labels[bergv1.LabelInstanceID] = i.Status.InstanceID
		ns.Annotations[bergv1.AnnotationNamespaceToken] = i.Status.NamespaceTokenHash
	}
	return ns
}

// create makes it, until the spec ends at the latest.
func create(ctx context.Context, ns *corev1.Namespace) {
	GinkgoHelper()
	Expect(k8s.Create(ctx, ns)).To(Succeed())
	removeAfterwards(ns)
}

// removeAfterwards deletes a namespace when the spec has ended. No instance waits for it.
func removeAfterwards(ns *corev1.Namespace) {
	DeferCleanup(func(ctx context.Context) {
		err := k8s.Delete(ctx, ns, client.Preconditions{UID: &ns.UID})
		if !apierrors.IsConflict(err) { // by now there is another of that name
			Expect(client.IgnoreNotFound(err)).To(Succeed())
			expect.Gone(ctx, ns)
		}
	})
}

// expectRefused: the instance says what to do, and nothing of it is in the namespace.
func expectRefused(ctx context.Context, i *bergv1.ChallengeInstance, ns *corev1.Namespace) {
	GinkgoHelper()
	expect.Shows(ctx, i, bergv1.ConditionNamespaceCreated, metav1.ConditionFalse, bergv1.ReasonNamespaceConflict)
	Expect(i.Status.Phase).To(Equal(bergv1.PhaseFailed))
	expect.Says(ctx, i, "Namespace "+ns.Name+" carries the UID of this instance")
	expect.Says(ctx, i, "Delete it")
	untouched(ctx, ns)
	in := client.InNamespace(ns.Name)
	Expect(apiserver.Names(ctx, &corev1.SecretList{}, in)).To(BeEmpty())
	Expect(apiserver.Names(ctx, &appsv1.DeploymentList{}, in)).To(BeEmpty())
	Expect(apiserver.Names(ctx, &corev1.ServiceList{}, in)).To(BeEmpty())
	Expect(apiserver.Names(ctx, &corev1.ConfigMapList{}, in)).NotTo(ContainElement(HavePrefix("flag")))
}

var _ = Describe("A namespace with every copied label and annotation", func() {
	flagged := func(i *bergv1.ChallengeInstance) { i.Spec.Flag = "flag{not-for-you}" }

	It("is not the instance's when it is made while the instance waits", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		i := bergtest.Instance(ctx, ns, "later", flagged)
		expect.Reaches(ctx, i, bergv1.PhaseFailed)
		foreign := copied(i)
		create(ctx, foreign)
		bergtest.Challenge(ctx, ns, "later", bergtest.EveryKind)
		expectRefused(ctx, i, foreign)
		Expect(i.Status.StartedAt).To(BeNil(), "its time runs")

		By("deleting it: the instance continues")
		Expect(k8s.Delete(ctx, foreign)).To(Succeed())
		expect.Reaches(ctx, i, bergv1.PhaseRunning)
	})

	It("is not the instance's when it is made the moment before the operator makes its own", func(ctx context.Context) {
		ns := bergtest.Publish(ctx, "raced", bergtest.EveryKind)
		id := uuid.NewString()
		foreign, first := &corev1.Namespace{}, atomic.Bool{}
		inprocess.Instead(clock.RealClock{}, nil, transport.Through(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			if r.Method == http.MethodPost && r.URL.Path == "/api/v1/namespaces" && first.CompareAndSwap(false, true) {
				defer GinkgoRecover()
				all := apiserver.List[bergv1.ChallengeInstanceList](ctx, client.InNamespace(ns))
				Expect(all.Items).To(HaveLen(1))
				copied(&all.Items[0]).DeepCopyInto(foreign)
				Expect(k8s.Create(ctx, foreign)).To(Succeed())
			}
			return next.RoundTrip(r)
		}))
		i := bergtest.Instance(ctx, ns, "raced", flagged, func(i *bergv1.ChallengeInstance) { i.Spec.OwnerID = id })
		expectRefused(ctx, i, foreign)
		Expect(i.Status.NamespaceUID).To(BeEmpty())

		By("deleting it: the instance continues in a namespace of its own")
		Expect(k8s.Delete(ctx, foreign)).To(Succeed())
		expect.Reaches(ctx, i, bergv1.PhaseRunning)
		var own corev1.Namespace
		Expect(k8s.Get(ctx, client.ObjectKey{Name: foreign.Name}, &own)).To(Succeed())
		Expect(i.Status.NamespaceUID).To(Equal(own.UID))
	})

	It("is not the instance's when it takes the place of a deleted one", func(ctx context.Context) {
		i := bergtest.StartRunning(ctx, "replaced", bergtest.EveryKind)
		var own corev1.Namespace
		Expect(k8s.Get(ctx, client.ObjectKey{Name: i.Status.Namespace}, &own)).To(Succeed())
		Expect(i.Status.NamespaceUID).To(Equal(own.UID))
		Expect(i.Status.NamespaceTokenHash).To(BeEmpty(), "what is public by now could still prove something")

		By("replacing it while no operator runs")
		resume := inprocess.Pause()
		Expect(k8s.Delete(ctx, &own)).To(Succeed())
		expect.Gone(ctx, &own)
		foreign := copied(i)
		maps.Copy(foreign.Labels, own.Labels)
		maps.Copy(foreign.Annotations, own.Annotations)
		delete(foreign.Labels, corev1.LabelMetadataName)
		create(ctx, foreign)
		resume()
		expectRefused(ctx, i, foreign)

		By("deleting it: the instance is made again")
		hosts := i.Status.Services
		Expect(k8s.Delete(ctx, foreign)).To(Succeed())
		expect.Shows(ctx, i, bergv1.ConditionNamespaceCreated, metav1.ConditionTrue, bergv1.ReasonCreated)
		expect.Reaches(ctx, i, bergv1.PhaseRunning)
		Expect(i.Status.NamespaceUID).NotTo(BeElementOf(own.UID, foreign.UID, ""))
		for n := range hosts {
			Expect(i.Status.Services[n].Hostname).To(Equal(hosts[n].Hostname))
		}

		By("ending it")
		bergtest.Delete(ctx, i)
	})
})

var _ = Describe("The status of an instance", func() {
	It("has a random value that the host names follow from", func(ctx context.Context) {
		i := bergtest.StartRunning(ctx, "seeded", bergtest.EveryKind)
		Expect(i.Status.Seed).To(HaveLen(26))
		other := bergtest.StartRunning(ctx, "seeded", bergtest.EveryKind)
		Expect(other.Status.Seed).NotTo(Equal(i.Status.Seed))
		var own corev1.Namespace
		Expect(k8s.Get(ctx, client.ObjectKey{Name: i.Status.Namespace}, &own)).To(Succeed())
		text, err := json.Marshal(own)
		Expect(err).NotTo(HaveOccurred())
		Expect(strings.Contains(string(text), i.Status.Seed)).To(BeFalse(), "the namespace tells it")
	})
})
