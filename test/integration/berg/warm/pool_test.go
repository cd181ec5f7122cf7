package warm

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
)

const plain = `
warm: {min: %d}
containers: [{hostname: web, image: "example.com/web:1", ports: [{port: 80, type: publicPort}]}]
`

var _ = Describe("The prepared instances of a Challenge", func() {
	It("are replaced when it is edited, become fewer with its minimum, and end with it", func(ctx context.Context) {
		ns, c := publish(ctx, "edited", fmt.Sprintf(plain, 2))
		old := ready(ctx, c, 2)
		bergtest.Respecify(ctx, c, strings.ReplaceAll(fmt.Sprintf(plain, 2), "web:1", "web:2"))
		for i := range old {
			expect.Gone(ctx, &old[i])
		}
		fresh := ready(ctx, c, 2)
		i := bergtest.Running(ctx, ns, "edited")
		Expect(i.Status.PreparedFrom).To(BeElementOf(fresh[0].UID, fresh[1].UID))
		expect.Shows(ctx, i, bergv1.ConditionUpToDate, metav1.ConditionTrue, bergv1.ReasonUpToDate)

		bergtest.Respecify(ctx, c, strings.ReplaceAll(fmt.Sprintf(plain, 1), "web:1", "web:2"))
		ready(ctx, c, 1)
		Expect(k8s.Delete(ctx, c)).To(Succeed())
		Eventually(func() []bergv1.ChallengeInstance { return bergtest.PreparedFor(ctx, c) }).Should(BeEmpty())
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(i), i)).To(Succeed())
		Expect(i.Status.Phase).To(Equal(bergv1.PhaseRunning))
	})

	It("are as many as a platform asks for, where the Challenge says nothing", func(ctx context.Context) {
		ns, c := publish(ctx, "asked", bergtest.OneContainer)
		registration := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "registration", Labels: map[string]string{
			bergv1.LabelManagedBy: bergv1.ManagedByAPI, bergv1.LabelPrepullChallenge: c.Name, bergv1.LabelWarm: "2-0",
		}}}
		Expect(k8s.Create(ctx, registration)).To(Succeed())
		ready(ctx, c, 2)
		expect.Shows(ctx, c, bergv1.ChallengeConditionWarm, metav1.ConditionTrue, bergv1.WarmReady)
		apiserver.Change(ctx, registration, func() { registration.Labels[bergv1.LabelWarm] = "1-4" })
		ready(ctx, c, 1)
		Expect(k8s.Delete(ctx, registration)).To(Succeed())
		Eventually(func() []bergv1.ChallengeInstance { return bergtest.PreparedFor(ctx, c) }).Should(BeEmpty())
	})

	It("of a Challenge that cannot start keep no other Challenge from having any", func(ctx context.Context) {
		inprocess.Restart(map[string]string{"CHALLENGE_WARM_MAX_STARTING": "2"}, nil)
		_, broken := publish(ctx, "broken", strings.ReplaceAll(fmt.Sprintf(plain, 3), "example.com/web:1", "berg.test/behaviour/image-pull:1"))
		expect.Shows(ctx, broken, bergv1.ChallengeConditionWarm, metav1.ConditionFalse, bergv1.WarmPreparing)
		Eventually(func() int { return len(bergtest.PreparedFor(ctx, broken)) }).Should(Equal(2))
		_, sound := publish(ctx, "sound", fmt.Sprintf(plain, 2))
		ready(ctx, sound, 2)
		Expect(bergtest.PreparedFor(ctx, broken)).To(HaveLen(2), "more are made of what does not start")
	})

	It("are not made while it is frozen", func(ctx context.Context) {
		_, c := publish(ctx, "frozen", fmt.Sprintf(plain, 1), bergtest.Frozen)
		expect.Shows(ctx, c, bergv1.ChallengeConditionWarm, metav1.ConditionFalse, bergv1.ReasonFrozen)
		Expect(bergtest.PreparedFor(ctx, c)).To(BeEmpty())
		apiserver.Change(ctx, c, func() { c.Annotations = nil })
		ready(ctx, c, 1)
	})

	It("give their slots to players of any Challenge who wait, and are made again afterwards", func(ctx context.Context) {
		bergtest.NoneLeft(ctx)
		inprocess.Restart(map[string]string{"CHALLENGE_MAX_INSTANCES": "2"}, nil)
		_, c := publish(ctx, "drained", fmt.Sprintf(plain, 2))
		ready(ctx, c, 2)
		ns := bergtest.Publish(ctx, "cold", bergtest.OneContainer)
		cold := bergtest.Several(ctx, ns, "cold", 2)
		bergtest.AllRun(ctx, cold...)
		for _, p := range bergtest.PreparedFor(ctx, c) {
			Expect(p.Status.InstanceID).To(BeEmpty(), "it has a slot")
		}
		bergtest.Delete(ctx, cold[0])
		bergtest.Delete(ctx, cold[1])
		ready(ctx, c, 2)
	})

	It("count for its own limit: a player takes one over where no other slot is left", func(ctx context.Context) {
		ns, c := publish(ctx, "limited", fmt.Sprintf(plain, 2)+"maxInstances: 2")
		ready(ctx, c, 2)
		both := bergtest.Several(ctx, ns, "limited", 2)
		bergtest.AllRun(ctx, both...)
		for _, i := range both {
			Expect(i.Status.PreparedFrom).NotTo(BeEmpty())
		}
		expect.Shows(ctx, c, bergv1.ChallengeConditionWarm, metav1.ConditionFalse, bergv1.WarmLimited)
	})

	It("do not serve an instance that another Challenge of the same name has made", func(ctx context.Context) {
		ns, c := publish(ctx, "again", fmt.Sprintf(plain, 1))
		old := ready(ctx, c, 1)[0]
		Expect(k8s.Delete(ctx, c)).To(Succeed())
		again := bergtest.Challenge(ctx, ns, "again", fmt.Sprintf(plain, 1))
		DeferCleanup(func(ctx context.Context) { Expect(client.IgnoreNotFound(k8s.Delete(ctx, again))).To(Succeed()) })
		expect.Gone(ctx, &old)
		ready(ctx, again, 1)
	})
})
