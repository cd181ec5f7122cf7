package api

import (
	"context"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
)

var _ = Describe("The live page", func() {
	It("shows every instance as it changes, to those with its token alone, and no flag", func(ctx context.Context) {
		const flag = "flag{not-for-the-wall}"
		ns := bergtest.Namespace(ctx)
		bergtest.Challenge(ctx, ns, "guestbook", oneFlag)
		letReadRecords(ctx, ns)
		a := begin(ctx, ns, 1, map[string]string{"RECORD_NAMESPACE": ns})
		c := newV1(ctx, a.proxy.URL)
		see := func(path string) answer {
			return call(ctx, http.MethodGet, a.replicas[0].http.URL+path, "", func(r *http.Request) { r.SetBasicAuth("wall", tokensOf["live"]) })
		}
		Eventually(func() int { return see("/live/").Status }).Should(Equal(http.StatusOK))
		Expect(call(ctx, http.MethodGet, a.replicas[0].http.URL+"/live/", "", func(*http.Request) {}).Status).To(Equal(http.StatusUnauthorized))
		Expect(c.plain(ctx, http.MethodGet, "/live/", "").Status).To(Equal(http.StatusUnauthorized), "with the token of another endpoint")

		lines := stream(ctx, a.replicas[0].http.URL+"/live/events", func(r *http.Request) { r.SetBasicAuth("wall", tokensOf["live"]) })
		streamed := ""
		shows := func(text string) {
			GinkgoHelper()
			Eventually(func() string {
				for {
					select {
					case line := <-lines:
						streamed += line + "\n"
					default:
						return streamed
					}
				}
			}).Should(ContainSubstring(text))
		}

		Expect(c.plain(ctx, http.MethodPut, "/v1/instances/guestbook/team-1", `{"flag": "`+flag+`", "waitSeconds": 30}`).Status).To(BeNumerically("<", 300))
		shows("team-1")
		shows(`class=\"running\"`)
		page := see("/live/?q=TEAM-1").Body
		Expect(page).To(And(ContainSubstring("1 found"), ContainSubstring("guestbook"), ContainSubstring(">running<")))
		name, _, _ := strings.Cut(page[strings.Index(page, `href="instances/`)+len(`href="instances/`):], `"`)
		one := see("/live/instances/" + name).Body
		Expect(one).To(And(ContainSubstring("kubectl berg why "+name+" -n "+ns), ContainSubstring("PodsReady")))
		var started bergv1.ChallengeInstance
		Expect(k8s.Get(ctx, client.ObjectKey{Namespace: ns, Name: name}, &started)).To(Succeed())

		By("its events, what it reserves of the nodes, and the forecast")
		Expect(k8s.Create(ctx, &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: ns, Name: "one-of-" + name},
			InvolvedObject: corev1.ObjectReference{APIVersion: bergv1.GroupVersion.String(), Kind: "ChallengeInstance", Namespace: ns, Name: name, UID: started.UID},
			Reason:         "Tried", Message: "by the test", Type: corev1.EventTypeNormal, FirstTimestamp: metav1.Now(), LastTimestamp: metav1.Now(), Count: 1,
		})).To(Succeed())
		Eventually(func() string { return see("/live/instances/" + name).Body }).Should(And(ContainSubstring("Event Tried"), ContainSubstring("by the test")))
		Eventually(func() string { return see("/live/").Body }).Should(And(
			ContainSubstring(`aria-label="CPU, requested share"`), ContainSubstring("Forecast"), ContainSubstring("--weight guestbook=1"), MatchRegexp(`on \d+ nodes?, without `)))

		Expect(c.plain(ctx, http.MethodDelete, "/v1/instances/guestbook/team-1", "").Status).To(Equal(http.StatusOK))
		shows(`{"id":"` + ns + "/" + name + `"}`)

		By("the record of an instance that has ended, which is read when its page is opened")
		Expect(see("/live/instances/" + name).Status).To(Equal(http.StatusNotFound))
		Expect(k8s.Create(ctx, recordOf(&started))).To(Succeed())
		Eventually(func() string { return see("/live/?q=" + name).Body }).Should(ContainSubstring(`href="ended/` + string(started.UID) + `"`))
		ended := see("/live/instances/" + name) // it leads there
		Expect(ended.Body).To(And(ContainSubstring("the last words"), ContainSubstring("kubectl berg record "+string(started.UID))))
		Expect(see("/live/ended/" + name).Status).To(Equal(http.StatusNotFound))
		Expect(page + one + streamed + ended.Body).NotTo(ContainSubstring("not-for-the-wall"))
	})
})

// letReadRecords gives the API the right to read records in a namespace, as docs/live-page.md says.
func letReadRecords(ctx context.Context, namespace string) {
	GinkgoHelper()
	Expect(k8s.Create(ctx, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "berg-api-records"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{bergv1.GroupVersion.Group}, Resources: []string{"challengeinstancerecords"}, Verbs: []string{"get", "list", "watch"}}},
	})).To(Succeed())
	Expect(k8s.Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "berg-api-records"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "berg-api-records"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: account}},
	})).To(Succeed())
}

// recordOf is the record that the operator would write of an instance.
func recordOf(i *bergv1.ChallengeInstance) *bergv1.ChallengeInstanceRecord {
	return &bergv1.ChallengeInstanceRecord{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: i.Namespace, Name: string(i.UID), Labels: map[string]string{bergv1.LabelOwnerID: i.Spec.OwnerID},
			Annotations: map[string]string{bergv1.AnnotationInstance: i.Namespace + "/" + i.Name, bergv1.AnnotationChallenge: i.Spec.ChallengeRef.Name},
		},
		Spec: bergv1.ChallengeInstanceRecordSpec{
			Instance:     bergv1.RecordedInstance{Namespace: i.Namespace, Name: i.Name, UID: string(i.UID)},
			ChallengeRef: i.Spec.ChallengeRef, OwnerID: i.Spec.OwnerID, Reason: "UserRequest", EndedAt: metav1.Now(),
			Containers: []bergv1.RecordedContainer{{Name: "web", Pod: "web", State: "Running", Log: "the last words\n"}},
		},
	}
}
