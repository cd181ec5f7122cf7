package apply

import (
	"context"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
)

var _ = Describe("A pull secret", func() {
	It("that is rotated reaches the container that cannot be pulled, and restarts no other", func(ctx context.Context) {
		source := bergtest.PullSecretSource(ctx, "old")
		ns := bergtest.Namespace(ctx)
		bergtest.Challenge(ctx, ns, "rotated", `containers:
- {hostname: web, image: "example.com/web:1"}
- {hostname: db, image: "berg.test/behaviour/image-pull:1"}`)
		i := bergtest.Instance(ctx, ns, "rotated")
		expect.Shows(ctx, i, bergv1.ConditionPodsReady, metav1.ConditionFalse, "ImagePullBackOff")
		before := bergtest.PodsByContainer(ctx, i)
		Expect(pulledWith(ctx, i, "db")).To(Equal("registry"))
		Expect(pulledWith(ctx, i, "web")).To(Equal("registry"))

		By("trying again without a new one")
		pullAgain(ctx, i, "db")
		Expect(bergtest.PodsByContainer(ctx, i)).To(Equal(before))
		Expect(pulledWith(ctx, i, "db")).To(Equal("registry"))

		By("rotating it")
		rotate(ctx, source, "new")
		pullAgain(ctx, i, "db")
		Eventually(func(g Gomega) {
			g.Expect(bergtest.PodsByContainer(ctx, i)).To(HaveKeyWithValue("db", Not(Equal(before["db"]))))
			g.Expect(contentOfSecret(ctx, i, pulledWith(ctx, i, "db"))).To(Equal(source.Data))
		}).Should(Succeed())
		expect.Shows(ctx, i, bergv1.ConditionPodsReady, metav1.ConditionFalse, "ImagePullBackOff")
		after, name := bergtest.PodsByContainer(ctx, i), pulledWith(ctx, i, "db")
		Expect(after).To(HaveKeyWithValue("web", before["web"]), "a pod that is well was restarted")
		Expect(pulledWith(ctx, i, "web")).To(Equal("registry"))

		By("keeping it")
		pullAgain(ctx, i, "db")
		inprocess.Restart(nil, nil)
		pullAgain(ctx, i, "db")
		Expect(bergtest.PodsByContainer(ctx, i)).To(Equal(after))
		Expect(pulledWith(ctx, i, "db")).To(Equal(name))
		bergtest.Behave(ctx, i, "ready")
		expect.Shows(ctx, i, bergv1.ConditionDeploymentsCreated, metav1.ConditionTrue, bergv1.ReasonCreated)
	})

	It("of another owner is left alone, and not used", func(ctx context.Context) {
		source := bergtest.PullSecretSource(ctx, "ours")
		ns := bergtest.Publish(ctx, "foreign", `containers: [{hostname: web, image: "example.com/web:1", dynamicFlag: {content: {path: /flag}}}]`)
		owner := uuid.NewString()
		lift := bergtest.Refuse(ctx, owner, "", "configmaps", "CREATE")
		i := bergtest.Instance(ctx, ns, "foreign", bergtest.OwnedBy(owner))
		expect.Shows(ctx, i, bergv1.ConditionDeploymentsCreated, metav1.ConditionFalse, bergv1.ReasonRefused)
		foreign := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: i.Status.Namespace, Name: "registry"},
			Type:       corev1.SecretTypeDockerConfigJson,
			Data:       map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{"theirs":{}}}`)},
		}
		Expect(k8s.Create(ctx, foreign)).To(Succeed())
		lift()
		expect.Reaches(ctx, i, bergv1.PhaseRunning)
		Expect(pulledWith(ctx, i, "web")).To(HavePrefix("registry-"))
		Expect(contentOfSecret(ctx, i, pulledWith(ctx, i, "web"))).To(Equal(source.Data))
		Expect(contentOfSecret(ctx, i, "registry")).To(Equal(foreign.Data))
		expect.Event(ctx, i, corev1.EventTypeWarning, bergv1.ReasonPullSecretConflict)

		By("an operator that starts leaving it so")
		before := bergtest.PodsByContainer(ctx, i)
		inprocess.Restart(nil, nil)
		expect.Shows(ctx, i, bergv1.ConditionHealthy, metav1.ConditionTrue, bergv1.ReasonReady)
		Expect(bergtest.PodsByContainer(ctx, i)).To(Equal(before))
	})
})

func rotate(ctx context.Context, source *corev1.Secret, registry string) {
	GinkgoHelper()
	source.Data = map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{"` + registry + `":{}}}`)}
	Expect(k8s.Update(ctx, source)).To(Succeed())
}

// pullAgain lets the kubelet try again to pull the image of a container, and fail. It
// returns when the operator has seen that.
func pullAgain(ctx context.Context, i *bergv1.ChallengeInstance, container string) {
	GinkgoHelper()
	for _, reason := range []string{"ErrImagePull", "ImagePullBackOff"} {
		Eventually(func(g Gomega) {
			var list corev1.PodList
			g.Expect(k8s.List(ctx, &list, client.InNamespace(i.Status.Namespace), client.MatchingLabels{bergv1.LabelContainer: container})).To(Succeed())
			g.Expect(list.Items).To(HaveLen(1))
			p := &list.Items[0]
			before := p.DeepCopy()
			g.Expect(p.Status.ContainerStatuses).NotTo(BeEmpty())
			p.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "no rights"}}
			g.Expect(k8s.Status().Patch(ctx, p, client.MergeFrom(before))).To(Succeed())
		}).Should(Succeed())
	}
	// What it prunes, it does after it has looked at the pods.
	extra := apiserver.Object(`{apiVersion: v1, kind: ConfigMap}`)
	extra.SetNamespace(i.Status.Namespace)
	extra.SetGenerateName("extra-")
	extra.SetLabels(map[string]string{bergv1.LabelManagedBy: bergv1.ManagedBy})
	extra.SetAnnotations(map[string]string{bergv1.AnnotationInstanceUID: string(i.UID)})
	Expect(k8s.Create(ctx, extra)).To(Succeed())
	Eventually(func() []string {
		return apiserver.Names(ctx, &corev1.ConfigMapList{}, client.InNamespace(i.Status.Namespace))
	}).ShouldNot(
		ContainElement(extra.GetName()))
}

func pulledWith(ctx context.Context, i *bergv1.ChallengeInstance, container string) string {
	GinkgoHelper()
	var d appsv1.Deployment
	Expect(k8s.Get(ctx, client.ObjectKey{Namespace: i.Status.Namespace, Name: container}, &d)).To(Succeed())
	secrets := d.Spec.Template.Spec.ImagePullSecrets
	Expect(secrets).To(HaveLen(1))
	return secrets[0].Name
}

func contentOfSecret(ctx context.Context, i *bergv1.ChallengeInstance, name string) map[string][]byte {
	GinkgoHelper()
	var s corev1.Secret
	Expect(k8s.Get(ctx, client.ObjectKey{Namespace: i.Status.Namespace, Name: name}, &s)).To(Succeed())
	return s.Data
}
