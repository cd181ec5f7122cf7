package warm

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/status"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/bulk"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/transport"
)

// flagged has a container that waits for its flag, in each of its forms, one that may have it late, and one without.
const flagged = `
warm: {min: %d}
containers:
- {hostname: web, image: "example.com/web:1", ports: [{name: web, port: 8080, type: publicHttpRoute}]}
- {hostname: env, image: "berg.test/behaviour/flag:1", dynamicFlag: {env: {name: FLAG}}, ports: [{port: 1337, type: publicPort}]}
- {hostname: file, image: "berg.test/behaviour/flag:1", dynamicFlag: {content: {path: /flag.txt}}}
- {hostname: program, image: "berg.test/behaviour/flag:1", dynamicFlag: {executable: {path: /get_flag}}}
- {hostname: late, image: "example.com/late:1", dynamicFlag: {content: {path: /run/flag/flag.txt}, late: file}}
`

// publish creates a Challenge, and deletes it when the spec ends: then its prepared instances end.
func publish(ctx context.Context, name, spec string, modify ...func(*bergv1.Challenge)) (namespace string, c *bergv1.Challenge) {
	GinkgoHelper()
	namespace = bergtest.Namespace(ctx)
	c = bergtest.Challenge(ctx, namespace, name, spec, modify...)
	DeferCleanup(func(ctx context.Context) {
		Expect(client.IgnoreNotFound(k8s.Delete(ctx, c))).To(Succeed())
		Eventually(func() []bergv1.ChallengeInstance { return bergtest.PreparedFor(ctx, c) }).Should(BeEmpty())
	})
	return namespace, c
}

// ready waits for n prepared instances that can be taken over, and returns them.
func ready(ctx context.Context, c *bergv1.Challenge, n int) (all []bergv1.ChallengeInstance) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		all = bergtest.PreparedFor(ctx, c)
		g.Expect(all).To(HaveLen(n))
		for i := range all {
			g.Expect(status.Claimable(&all[i])).To(BeTrue(), "%s: %s", all[i].Status.Phase, expect.Conditions(&all[i]))
		}
	}).Should(Succeed())
	return all
}

// everything is all that the API server has in a namespace, and the namespace, as text.
func everything(ctx context.Context, namespace string) string {
	GinkgoHelper()
	var all []string
	for _, list := range []client.ObjectList{&corev1.ConfigMapList{}, &corev1.SecretList{}, &corev1.PodList{}, &corev1.ServiceList{}} {
		Expect(k8s.List(ctx, list, client.InNamespace(namespace))).To(Succeed())
		raw, err := json.Marshal(list)
		Expect(err).NotTo(HaveOccurred())
		all = append(all, string(raw))
	}
	for _, o := range bergtest.Objects(ctx, &bergv1.ChallengeInstance{Status: bergv1.ChallengeInstanceStatus{Namespace: namespace}}) {
		raw, err := json.Marshal(o)
		Expect(err).NotTo(HaveOccurred())
		all = append(all, string(raw))
	}
	return strings.Join(append(all, bergtest.BytesOf(ctx, &corev1.Namespace{ObjectMeta: bergtest.Named(namespace)})), "\n")
}

// expectOwned checks that an instance alone has a namespace with its flag, and that all says so.
func expectOwned(ctx context.Context, i *bergv1.ChallengeInstance) {
	GinkgoHelper()
	ns := &corev1.Namespace{}
	Expect(k8s.Get(ctx, client.ObjectKey{Name: i.Status.Namespace}, ns)).To(Succeed())
	Expect(ns.UID).To(Equal(i.Status.NamespaceUID))
	Expect(ns.Labels).To(HaveKeyWithValue(bergv1.LabelOwnerID, i.Spec.OwnerID))
	Expect(ns.Annotations).To(HaveKeyWithValue(bergv1.AnnotationInstance, i.Namespace+"/"+i.Name))
	Eventually(func(g Gomega) {
		for _, p := range apiserver.List[corev1.PodList](ctx, client.InNamespace(ns.Name)).Items {
			g.Expect(p.Labels).To(HaveKeyWithValue(bergv1.LabelOwnerID, i.Spec.OwnerID))
		}
	}).Should(Succeed())
	Expect(i.Status.StartedAt.Time).To(BeTemporally(">=", i.CreationTimestamp.Time))
	Expect(i.Status.ExpiresAt).NotTo(BeNil())
}

func withFlag(flag string) func(*bergv1.ChallengeInstance) {
	return func(i *bergv1.ChallengeInstance) { i.Spec.Flag = flag }
}

var _ = Describe("A prepared instance", func() {
	It("has no flag, no owner and no clock; its namespace, pods and addresses become those of a player", func(ctx context.Context) {
		ns, c := publish(ctx, "flagged", fmt.Sprintf(flagged, 1))
		p := ready(ctx, c, 1)[0]
		expect.Shows(ctx, c, bergv1.ChallengeConditionWarm, "True", bergv1.WarmReady)
		Expect(p.Spec.Flag).To(BeEmpty())
		Expect(p.Status.StartedAt).To(BeNil())
		Expect(p.Status.ExpiresAt).To(BeNil())
		before := everything(ctx, p.Status.Namespace)
		Expect(before).NotTo(ContainSubstring(bergv1.LabelOwnerID))
		pods := bergtest.PodsByContainer(ctx, &p)
		Expect(pods).To(HaveLen(5))

		i := bergtest.Running(ctx, ns, "flagged", withFlag("flag{only-for-me}"), func(i *bergv1.ChallengeInstance) {
			i.Labels = map[string]string{bergv1.LabelSource: "team-7"}
		})
		Expect(i.Status.Namespace).To(Equal(p.Status.Namespace))
		Expect(i.Status.PreparedFrom).To(Equal(p.UID))
		Expect(i.Status.Services).To(Equal(p.Status.Services))
		Expect(bergtest.PodsByContainer(ctx, i)).To(Equal(pods), "a pod was replaced")
		expectOwned(ctx, i)
		for _, flag := range []string{"flag-content", "flag-executable", "flag-variable"} {
			m := &corev1.ConfigMap{}
			Expect(k8s.Get(ctx, client.ObjectKey{Namespace: i.Status.Namespace, Name: flag}, m)).To(Succeed())
			Expect(m.BinaryData).NotTo(HaveKey("prepared"))
		}
		Expect(apiserver.Names(ctx, &corev1.PodList{}, client.InNamespace(i.Status.Namespace), client.MatchingLabels{bergv1.LabelSource: "team-7"})).To(HaveLen(5))

		By("the next one is prepared, with other addresses")
		expect.Gone(ctx, &p)
		next := ready(ctx, c, 1)[0]
		Expect(next.Status.Namespace).NotTo(Equal(i.Status.Namespace))
		Expect(next.Status.Services[0].Hostname).NotTo(Equal(i.Status.Services[0].Hostname))

		By("a repair of the taken one is as any other")
		Expect(k8s.Delete(ctx, &corev1.ConfigMap{ObjectMeta: bergtest.NamedIn(i.Status.Namespace, "flag-content")})).To(Succeed())
		Eventually(func(g Gomega) {
			m := &corev1.ConfigMap{}
			g.Expect(k8s.Get(ctx, client.ObjectKey{Namespace: i.Status.Namespace, Name: "flag-content"}, m)).To(Succeed())
			g.Expect(string(m.BinaryData["content"])).To(Equal("flag{only-for-me}\n"))
		}).Should(Succeed())

		By("its end is as any other")
		name := i.Status.Namespace
		Expect(k8s.Delete(ctx, i)).To(Succeed())
		expect.Gone(ctx, i)
		Expect(apierrors.IsNotFound(k8s.Get(ctx, client.ObjectKey{Name: name}, &corev1.Namespace{}))).To(BeTrue())
	})

	It("goes to one of many players who ask for it together", func(ctx context.Context) {
		ns, c := publish(ctx, "raced", fmt.Sprintf(flagged, 2))
		prepared := ready(ctx, c, 2)
		all := make([]*bergv1.ChallengeInstance, 6)
		bulk.Each(len(all), func(n int) { all[n] = bergtest.Instance(ctx, ns, "raced", withFlag(fmt.Sprintf("flag{%d}", n))) })
		bergtest.AllRun(ctx, all...)
		namespaces, from := map[string]bool{}, map[types.UID]int{}
		for _, i := range all {
			Expect(namespaces[i.Status.Namespace]).To(BeFalse(), "two instances have namespace %s", i.Status.Namespace)
			namespaces[i.Status.Namespace] = true
			from[i.Status.PreparedFrom]++
			expectOwned(ctx, i)
		}
		for _, p := range prepared {
			Expect(from[p.UID]).To(Equal(1), "%s was not taken over once", p.Name)
		}
	})

	It("is one for an owner who asks twice, and the second instance waits also if nothing is prepared for it", func(ctx context.Context) {
		ns, c := publish(ctx, "twice", fmt.Sprintf(plain, 2))
		bergtest.Challenge(ctx, ns, "cold", bergtest.OneContainer)
		ready(ctx, c, 2)
		owner := uuid.NewString()
		all := make([]*bergv1.ChallengeInstance, 3)
		bulk.Each(len(all), func(n int) {
			all[n] = bergtest.Instance(ctx, ns, []string{"twice", "twice", "cold"}[n], func(i *bergv1.ChallengeInstance) { i.Spec.OwnerID = owner })
		})
		namespaces := map[string]bool{}
		for len(all) > 0 {
			var runs *bergv1.ChallengeInstance
			Eventually(func(g Gomega) {
				waiting := 0
				for _, i := range all {
					g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(i), i)).To(Succeed())
					switch {
					case i.Status.Phase == bergv1.PhaseRunning:
						g.Expect(runs == nil || runs.UID == i.UID).To(BeTrue(), "the owner has two instances")
						runs = i
					case bergtest.ReasonOf(i, bergv1.ConditionNamespaceCreated) == bergv1.ReasonOwnerBusy:
						g.Expect(i.Status.InstanceID).To(BeEmpty())
						waiting++
					}
				}
				g.Expect(runs).NotTo(BeNil())
				g.Expect(waiting).To(Equal(len(all) - 1))
			}).Should(Succeed())
			expectOwned(ctx, runs)
			prepared := Not(BeEmpty())
			if runs.Spec.ChallengeRef.Name != "twice" {
				prepared = BeEmpty()
			}
			Expect(runs.Status.PreparedFrom).To(prepared)
			Expect(namespaces[runs.Status.Namespace]).To(BeFalse(), "namespace %s is used again", runs.Status.Namespace)
			namespaces[runs.Status.Namespace] = true
			ready(ctx, c, 2)
			Expect(k8s.Delete(ctx, runs)).To(Succeed())
			expect.Gone(ctx, runs)
			all = slices.DeleteFunc(all, func(i *bergv1.ChallengeInstance) bool { return i.UID == runs.UID })
		}
	})

	It("gets lost or doubled by no kill of the operator, whichever write is the last", func(ctx context.Context) {
		ns, c := publish(ctx, "killed", `
warm: {min: 1}
containers:
- {hostname: web, image: "example.com/web:1", ports: [{port: 8080, type: publicPort}]}
- {hostname: env, image: "berg.test/behaviour/flag:1", dynamicFlag: {env: {name: FLAG}}}
`)
		for _, lost := range []bool{true, false} {
			for at := int64(1); ; at++ {
				ready(ctx, c, 1)
				resume := inprocess.Pause()
				kill := transport.NewKill(at, lost, func(r *http.Request) bool { // creations are what prepares the next one
					return r.Method != http.MethodPost && !strings.Contains(r.URL.Path, "/leases/") && !strings.Contains(r.URL.Path, "/events")
				})
				i := bergtest.Instance(ctx, ns, "killed", withFlag("flag{survives}"))
				stop := inprocess.Run(inprocess.With(nil), kill.Wrap)
				var over bool
				Eventually(func() bool {
					err := k8s.Get(ctx, client.ObjectKeyFromObject(i), i)
					over = err == nil && i.Status.Phase == bergv1.PhaseRunning && len(bergtest.PreparedFor(ctx, c)) == 1 && status.Claimable(&bergtest.PreparedFor(ctx, c)[0])
					return over || kill.Done()
				}).Should(BeTrue())
				stop()
				By(fmt.Sprintf("write %d, lost: %v", at, lost))
				resume()
				expect.Reaches(ctx, i, bergv1.PhaseRunning)
				expectOwned(ctx, i)
				p := ready(ctx, c, 1)[0]
				Expect(p.Status.Namespace).NotTo(Equal(i.Status.Namespace))
				Expect(apiserver.Names(ctx, &corev1.NamespaceList{}, client.MatchingLabels{bergv1.LabelChallengeNamespace: ns, bergv1.LabelManagedBy: bergv1.ManagedBy})).
					To(ConsistOf(i.Status.Namespace, p.Status.Namespace))
				name := i.Status.Namespace
				Expect(k8s.Delete(ctx, i)).To(Succeed())
				expect.Gone(ctx, i)
				Expect(apierrors.IsNotFound(k8s.Get(ctx, client.ObjectKey{Name: name}, &corev1.Namespace{}))).To(BeTrue())
				if over && !kill.Done() {
					break
				}
			}
		}
	}, SpecTimeout(20*time.Minute))

	It("that was claimed ends with its namespace, if the player's instance is deleted before it has it", func(ctx context.Context) {
		ns, c := publish(ctx, "withdrawn", fmt.Sprintf(flagged, 1))
		p := ready(ctx, c, 1)[0]
		resume := inprocess.Pause()
		i := bergtest.Instance(ctx, ns, "withdrawn")
		kill := transport.NewKill(3, true, func(r *http.Request) bool { return strings.Contains(r.URL.Path, "/challengeinstances/") })
		stop := inprocess.Run(inprocess.With(nil), kill.Wrap)
		Eventually(kill.Dead).Should(BeClosed())
		stop()
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(&p), &p)).To(Succeed())
		Expect(p.Status.ClaimedBy).NotTo(BeNil(), "the kill came before the claim")
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(i), i)).To(Succeed())
		Expect(i.Status.InstanceID).To(BeEmpty(), "the kill came after the start")
		Expect(k8s.Delete(ctx, i)).To(Succeed())
		resume()
		expect.Gone(ctx, i)
		expect.Gone(ctx, &p)
		Expect(apierrors.IsNotFound(k8s.Get(ctx, client.ObjectKey{Name: p.Status.Namespace}, &corev1.Namespace{}))).To(BeTrue())
		ready(ctx, c, 1)
	})
})
