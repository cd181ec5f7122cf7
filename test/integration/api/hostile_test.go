package api

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/internal/kit/settings"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
)

var _ = Describe("Hostile requests", func() {
	It("are refused in the words of the endpoint, and leave nothing", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		bergtest.Challenge(ctx, ns, "guestbook", oneFlag)
		a := begin(ctx, ns, 1, nil)
		c := ctfd{a.proxy.URL}
		megabyte := strings.Repeat("9", 1<<20)
		Expect(c.register(ctx, "1", "guestbook", "null").Status).To(Equal(200))
		for what, got := range map[string]answer{
			"an id of a megabyte":             c.register(ctx, megabyte, "guestbook", "null"),
			"an id of 129 bytes":              c.register(ctx, strings.Repeat("9", 129), "guestbook", "null"),
			"no id":                           c.register(ctx, "", "guestbook", "null"),
			"a path as scenario":              c.register(ctx, "2", "../../secrets", "null"),
			"a negative timeout":              c.register(ctx, "2", "guestbook", `"-1s"`),
			"a timeout in words":              c.register(ctx, "2", "guestbook", `"soon"`),
			"a path as source":                c.boot(ctx, "1", "../../1"),
			"a selector as source":            c.boot(ctx, "1", "a,b in (c)"),
			"no source":                       c.boot(ctx, "1", ""),
			"lines in a source":               c.boot(ctx, "1", "1\r\nX-A: b"),
			"a body that is no object":        c.call(ctx, "POST", "/api/v1/instance", `[]`),
			"a body that is no JSON":          c.call(ctx, "POST", "/api/v1/instance", `{`),
			"a deep body":                     c.call(ctx, "POST", "/api/v1/instance", strings.Repeat(`{"a":`, 10_000)),
			"additional variables":            c.call(ctx, "POST", "/api/v1/instance", `{"challengeId":"1","sourceId":"1","additional":{"IMAGE":"evil"}}`),
			"a traversal in a path":           c.call(ctx, "GET", "/api/v1/challenge/"+url.PathEscape("../../x"), ""),
			"a mask of a field that is none":  c.call(ctx, "PATCH", "/api/v1/challenge/1", `{"updateMask":"id"}`),
			"a list of a source that is none": c.call(ctx, "GET", "/api/v1/instance?sourceId="+url.QueryEscape("a b"), ""),
		} {
			Expect(got.Status).To(And(BeNumerically(">=", 400), BeNumerically("<", 500)), "%s: %s", what, got.Body)
			Expect(got.json()).To(And(HaveKey("code"), HaveKey("message"), HaveKey("details")), what)
			Expect(len(got.Body)).To(BeNumerically("<", 2000), what)
		}
		Expect(live(ctx, ns)).To(BeEmpty())
		var registrations corev1.ConfigMapList
		Expect(k8s.List(ctx, &registrations, client.InNamespace(ns), client.HasLabels{"berg.norelect.ch/registration"})).To(Succeed())
		Expect(registrations.Items).To(HaveLen(1))
	})

	It("of one who stole the account reach no ConfigMap but registrations", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		grant(ctx, ns)
		rc := rest.CopyConfig(apiserver.Config)
		rc.Impersonate = rest.ImpersonationConfig{UserName: account}
		thief, err := client.New(rc, client.Options{})
		Expect(err).NotTo(HaveOccurred())
		foreign := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "settings"}, Data: map[string]string{"a": "b"}}
		Expect(k8s.Create(ctx, foreign)).To(Succeed())
		Eventually(func() error { // a policy is enforced a moment after it was written
			return thief.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, GenerateName: "any-"}}, client.DryRunAll)
		}).Should(MatchError(ContainSubstring("registration only")))
		changed := foreign.DeepCopy()
		changed.Data["a"] = "c"
		Expect(thief.Update(ctx, changed)).To(MatchError(apierrors.IsForbidden, "is forbidden"))
		changed.Labels = map[string]string{"berg.norelect.ch/registration": "rctf"}
		Expect(thief.Update(ctx, changed)).To(MatchError(apierrors.IsForbidden, "is forbidden"))
		Expect(thief.Delete(ctx, foreign)).To(MatchError(apierrors.IsForbidden, "is forbidden"))
		Expect(k8s.Delete(ctx, foreign)).To(Succeed(), "others are limited, too")

		By("in another namespace than the usual one")
		apiserver.Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "elsewhere"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: "berg-api"}},
		})
		elsewhere := apiserver.As("system:serviceaccount:" + ns + ":berg-api")
		other := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "other"}}
		Eventually(func() error { return elsewhere.Create(ctx, other, client.DryRunAll) }).Should(MatchError(ContainSubstring("registration only")))
		other = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "other", Labels: map[string]string{"berg.norelect.ch/registration": "rctf"}}}
		Expect(elsewhere.Create(ctx, other, client.DryRunAll)).To(Succeed())
		other.Name = settings.ConfigMap
		Expect(elsewhere.Create(ctx, other, client.DryRunAll)).To(MatchError(ContainSubstring("may not write the settings")))
	})

	It("without a token, or with that of another endpoint, reach nothing; a changed token is valid immediately", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		bergtest.Challenge(ctx, ns, "guestbook", oneFlag)
		a := begin(ctx, ns, 1, nil)
		status := func(with func(*http.Request)) int {
			return call(ctx, "GET", a.proxy.URL+"/healthcheck", "", with).Status
		}
		bearer := func(token string) func(*http.Request) {
			return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
		}
		Expect(status(func(*http.Request) {})).To(Equal(401))
		Expect(status(bearer(tokensOf["rctf"]))).To(Equal(401))
		Expect(status(bearer(strings.Repeat("a", 10_000)))).To(Equal(401))
		Expect(status(bearer(tokensOf["chall-manager"]))).To(Equal(200))
		Expect(status(func(r *http.Request) { r.SetBasicAuth("any", tokensOf["chall-manager"]) })).To(Equal(200))
		Expect(status(func(r *http.Request) { r.Header.Set("X-Ctfd-Auth", tokensOf["chall-manager"]) })).To(Equal(200))

		secret := &corev1.Secret{}
		Expect(k8s.Get(ctx, client.ObjectKey{Namespace: ns, Name: "berg-api-tokens"}, secret)).To(Succeed())
		apiserver.Change(ctx, secret, func() {
			secret.Data["chall-manager"] = []byte("endpoint: chall-manager\ntoken: another-token-0123456789\n")
		})
		Eventually(func() int { return status(bearer("another-token-0123456789")) }).Should(Equal(200))
		Expect(status(bearer(tokensOf["chall-manager"]))).To(Equal(401))
		Expect(k8s.Delete(ctx, secret)).To(Succeed())
		Eventually(func() int { return status(bearer("another-token-0123456789")) }).Should(Equal(401))
	})

	It("that are slow, or many, do not keep others waiting", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		a := begin(ctx, ns, 1, nil)
		address := strings.TrimPrefix(a.replicas[0].http.URL, "http://")
		const many = 500
		for range many {
			slow, err := net.DialTimeout("tcp", address, time.Minute)
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(slow.Close)
			_, err = fmt.Fprintf(slow, "POST /api/v1/instance HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 100\r\n\r\n{", tokensOf["chall-manager"])
			Expect(err).NotTo(HaveOccurred())
		}
		Expect(ctfd{a.replicas[0].http.URL}.call(ctx, "GET", "/healthcheck", "").Status).To(Equal(200))
	})
})

var _ = Describe("An API server that is away", func() {
	It("does not end reads, and starts continue afterwards", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		bergtest.Challenge(ctx, ns, "guestbook", oneFlag)
		a := begin(ctx, ns, 1, nil)
		c := ctfd{a.proxy.URL}
		Expect(c.register(ctx, "1", "guestbook", "null").Status).To(Equal(200))
		Expect(c.boot(ctx, "1", "7").Status).To(Equal(200))
		a.replicas[0].cut.Store(true)
		for range 20 {
			read := c.call(ctx, "GET", "/api/v1/instance/1/7", "")
			Expect(read.Status).To(Equal(200), read.Body)
			Expect(read.json()).To(HaveKey("since"))
		}
		refused := c.boot(ctx, "1", "8")
		Expect(refused.Status).To(BeNumerically(">=", 500), refused.Body)
		Expect(refused.json()).To(And(HaveKey("code"), HaveKey("details"), HaveKeyWithValue("message", ContainSubstring("cluster"))))
		a.replicas[0].cut.Store(false)
		Expect(c.boot(ctx, "1", "8").Status).To(Equal(200))
		Expect(live(ctx, ns)).To(HaveLen(2))
	})
})
