package apply

import (
	"context"
	"net/url"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
)

// api is one that a cluster may lack.
type api struct{ definition, groupVersion, kind string }

var (
	httpRoutes     = api{"httproutes.gateway.networking.k8s.io", "gateway.networking.k8s.io/v1", "HTTPRoute"}
	tlsRoutes      = api{"tlsroutes.gateway.networking.k8s.io", "gateway.networking.k8s.io/v1", "TLSRoute"}
	ciliumPolicies = api{"ciliumnetworkpolicies.cilium.io", "cilium.io/v2", "CiliumNetworkPolicy"}
)

const (
	noRoutes = `containers: [{hostname: web, image: "example.com/web:1", ports: [{name: web, port: 8080, type: publicPort}]}]`
	tlsOnly  = `containers: [{hostname: web, image: "example.com/web:1", ports: [{name: web, port: 8080, type: publicTlsRoute}]}]`
)

var _ = Describe("An API that is not installed", func() {
	DescribeTable("stops only the instances that need it, until it is installed",
		func(ctx context.Context, missing api, policy, runs, waits, condition string) {
			By("starting the operator on a cluster without it")
			inprocess.Pause()
			install := uninstall(ctx, missing)
			inprocess.Restart(map[string]string{"NETWORK_POLICY": policy}, nil)

			ns := bergtest.Namespace(ctx)
			if runs != "" {
				bergtest.Challenge(ctx, ns, "runs", runs)
				expect.Reaches(ctx, bergtest.Instance(ctx, ns, "runs"), bergv1.PhaseRunning)
			}
			if waits == "" {
				return
			}
			bergtest.Challenge(ctx, ns, "waits", waits)
			waiting, deleted := bergtest.Instance(ctx, ns, "waits"), bergtest.Instance(ctx, ns, "waits")
			for _, i := range []*bergv1.ChallengeInstance{waiting, deleted} {
				expect.Reaches(ctx, i, bergv1.PhaseFailed)
				expect.Shows(ctx, i, condition, metav1.ConditionFalse, bergv1.ReasonAPINotInstalled)
				expect.Says(ctx, i, missing.kind)
			}
			bergtest.Delete(ctx, deleted)

			By("installing it")
			install(ctx)
			expect.Reaches(ctx, waiting, bergv1.PhaseRunning)
			expect.Shows(ctx, waiting, condition, metav1.ConditionTrue, bergv1.ReasonCreated)
		},
		Entry("TLSRoute", tlsRoutes, "cilium", bergtest.OneContainer, bergtest.EveryKind, bergv1.ConditionRoutesCreated),
		Entry("HTTPRoute", httpRoutes, "cilium", tlsOnly, bergtest.EveryKind, bergv1.ConditionRoutesCreated),
		Entry("Cilium, wanted", ciliumPolicies, "cilium", "", noRoutes, bergv1.ConditionNetworkPolicyCreated),
		Entry("Cilium, wanted with the other", ciliumPolicies, "both", "", noRoutes, bergv1.ConditionNetworkPolicyCreated),
		Entry("Cilium, not wanted", ciliumPolicies, "kubernetes", bergtest.EveryKind, "", ""),
	)

	It("may be removed and installed again while the operator runs", func(ctx context.Context) {
		seen := &requests{}
		inprocess.Restart(nil, seen.wrap)
		ns := bergtest.Publish(ctx, "without", bergtest.OneContainer)
		bergtest.Challenge(ctx, ns, "with", bergtest.EveryKind)
		without, with, deleted := bergtest.Instance(ctx, ns, "without"), bergtest.Instance(ctx, ns, "with"), bergtest.Instance(ctx, ns, "with")
		bergtest.AllRun(ctx, without, with, deleted)
		before := with.Status.Services

		install := uninstall(ctx, tlsRoutes)
		for _, i := range []*bergv1.ChallengeInstance{with, deleted} {
			expect.Shows(ctx, i, bergv1.ConditionRoutesCreated, metav1.ConditionFalse, bergv1.ReasonAPINotInstalled)
			Expect(i.Status.Phase).To(Equal(bergv1.PhaseFailed))
		}
		expect.Shows(ctx, without, bergv1.ConditionRoutesCreated, metav1.ConditionTrue, bergv1.ReasonCreated)
		Expect(without.Status.Phase).To(Equal(bergv1.PhaseRunning))

		By("leaving the API server alone")
		asked := len(seen.to("/tlsroutes"))
		// A watch that lost its API tries again with pauses of up to a minute.
		Consistently(func() int { return len(seen.to("/tlsroutes")) - asked }).WithContext(ctx).WithTimeout(5 * time.Second).Should(BeNumerically("<", 15))

		By("deleting and making instances without it")
		bergtest.Delete(ctx, deleted)
		expect.Reaches(ctx, bergtest.Instance(ctx, ns, "without"), bergv1.PhaseRunning)
		late := bergtest.Instance(ctx, ns, "with")
		expect.Shows(ctx, late, bergv1.ConditionRoutesCreated, metav1.ConditionFalse, bergv1.ReasonAPINotInstalled)

		By("installing it again")
		install(ctx)
		for _, i := range []*bergv1.ChallengeInstance{with, late} {
			expect.Reaches(ctx, i, bergv1.PhaseRunning)
			expect.Shows(ctx, i, bergv1.ConditionRoutesCreated, metav1.ConditionTrue, bergv1.ReasonCreated)
		}
		Expect(with.Status.Services).To(Equal(before), "players must connect elsewhere now")
	})
})

// A cluster without one of the APIs is an ordinary one: most have no use for routes of
// TLS. What is looked up there at each pass is looked up a thousand times in a busy hour.
var _ = Describe("Instances on a cluster without an API", func() {
	DescribeTable("look up nothing of what the API server serves",
		func(ctx context.Context, missing api, runs, waits string) {
			inprocess.Pause()
			install := uninstall(ctx, missing)
			seen := &requests{}
			inprocess.Restart(nil, seen.wrap)
			ns := bergtest.Publish(ctx, "runs", runs)
			bergtest.Challenge(ctx, ns, "waits", waits)
			expect.Reaches(ctx, bergtest.Instance(ctx, ns, "runs"), bergv1.PhaseRunning)
			bergtest.Settle(ctx, ns)

			By("starting and deleting many, of which some need it")
			before := len(seen.lookUps())
			good, bad := bergtest.Several(ctx, ns, "runs", 10), bergtest.Several(ctx, ns, "waits", 5)
			bergtest.AllRun(ctx, good...)
			for _, i := range bad {
				expect.Shows(ctx, i, bergv1.ConditionRoutesCreated, metav1.ConditionFalse, bergv1.ReasonAPINotInstalled)
			}
			ended := append(good[:5:5], bad[:2]...)
			for _, i := range ended {
				Expect(k8s.Delete(ctx, i)).To(Succeed())
			}
			bergtest.AllGone(ctx, ended...)
			Expect(seen.lookUps()[before:]).To(BeEmpty())

			By("installing it")
			install(ctx)
			for _, i := range bad[2:] {
				expect.Reaches(ctx, i, bergv1.PhaseRunning)
				expect.Shows(ctx, i, bergv1.ConditionRoutesCreated, metav1.ConditionTrue, bergv1.ReasonCreated)
			}
			bergtest.Settle(ctx, ns)
			before = len(seen.lookUps())
			for _, i := range bergtest.Several(ctx, ns, "waits", 5) {
				expect.Reaches(ctx, i, bergv1.PhaseRunning)
			}
			Expect(seen.lookUps()[before:]).To(BeEmpty())
		},
		Entry("TLSRoute", tlsRoutes, bergtest.OneContainer, bergtest.EveryKind),
		Entry("HTTPRoute", httpRoutes, tlsOnly, bergtest.EveryKind),
	)

	It("that has an older version of it, ask less and less often for the one they need", func(ctx context.Context) {
		inprocess.Pause()
		definition := outdate(ctx, tlsRoutes)
		seen := &requests{}
		inprocess.Restart(nil, seen.wrap)
		ns := bergtest.Publish(ctx, "runs", bergtest.OneContainer)
		bergtest.Challenge(ctx, ns, "waits", bergtest.EveryKind)
		expect.Reaches(ctx, bergtest.Instance(ctx, ns, "runs"), bergv1.PhaseRunning)
		waiting := bergtest.Instance(ctx, ns, "waits")
		expect.Shows(ctx, waiting, bergv1.ConditionRoutesCreated, metav1.ConditionFalse, bergv1.ReasonAPINotInstalled)
		began := len(seen.lookUps())
		Consistently(func() int { return len(seen.lookUps()) - began }).WithContext(ctx).WithTimeout(10 * time.Second).Should(BeNumerically("<", 12))

		By("upgrading it")
		definition(ctx)
		expect.Reaches(ctx, waiting, bergv1.PhaseRunning)
	})
})

// lookUps returns the requests that ask what the API server serves.
func (r *requests) lookUps() []string {
	var out []string
	for _, s := range r.to("/api") {
		_, address, _ := strings.Cut(s, " ")
		u, err := url.Parse(address)
		Expect(err).NotTo(HaveOccurred())
		// /api, /api/v1, /apis, /apis/GROUP and /apis/GROUP/VERSION
		if parts := strings.Split(strings.Trim(u.Path, "/"), "/"); len(parts) < 3 || parts[0] == "apis" && len(parts) == 3 {
			out = append(out, s)
		}
	}
	return append(out, r.to("/openapi")...)
}

// outdate makes an API one that has only an older version than v1, until the spec ends
// or upgrade is called.
func outdate(ctx context.Context, a api) (upgrade func(context.Context)) {
	GinkgoHelper()
	definition := &unstructured.Unstructured{}
	definition.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	Expect(k8s.Get(ctx, client.ObjectKey{Name: a.definition}, definition)).To(Succeed())
	install := uninstall(ctx, a)
	spec := definition.Object["spec"].(map[string]any)
	older := spec["versions"].([]any)[0].(map[string]any)
	older = (&unstructured.Unstructured{Object: older}).DeepCopy().Object
	older["name"], older["served"], older["storage"] = "v1alpha9", true, true
	outdated := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"group": spec["group"], "names": spec["names"], "scope": spec["scope"], "versions": []any{older},
	}}}
	outdated.SetGroupVersionKind(definition.GroupVersionKind())
	outdated.SetName(a.definition)
	outdated.SetAnnotations(definition.GetAnnotations())
	Expect(k8s.Create(ctx, outdated)).To(Succeed())
	upgrade = func(ctx context.Context) {
		GinkgoHelper()
		err := k8s.Get(ctx, client.ObjectKeyFromObject(outdated), outdated)
		if apierrors.IsNotFound(err) {
			install(ctx)
			return
		}
		Expect(err).NotTo(HaveOccurred())
		outdated.Object["spec"] = spec
		stored := older["name"]
		withOlder := []any{map[string]any{"name": stored, "served": true, "storage": false, "schema": older["schema"]}}
		Expect(unstructured.SetNestedSlice(outdated.Object, append(withOlder, spec["versions"].([]any)...), "spec", "versions")).To(Succeed())
		Expect(k8s.Update(ctx, outdated)).To(Succeed())
		Eventually(serves).WithContext(ctx).WithArguments(a).Should(BeTrue())
	}
	DeferCleanup(func(ctx context.Context) {
		Expect(k8s.Delete(ctx, outdated)).To(Succeed())
		Eventually(func() error { return k8s.Get(ctx, client.ObjectKeyFromObject(outdated), outdated) }).Should(MatchError(apierrors.IsNotFound, "IsNotFound"))
		install(ctx)
	})
	return upgrade
}

// uninstall removes an API until the spec ends or install is called.
func uninstall(ctx context.Context, a api) (install func(context.Context)) {
	GinkgoHelper()
	definition := &unstructured.Unstructured{}
	definition.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	Expect(k8s.Get(ctx, client.ObjectKey{Name: a.definition}, definition)).To(Succeed())
	again := &unstructured.Unstructured{Object: map[string]any{"spec": definition.Object["spec"]}}
	again.SetGroupVersionKind(definition.GroupVersionKind())
	again.SetName(a.definition)
	again.SetAnnotations(definition.GetAnnotations()) // the approval that definitions of *.k8s.io need

	Expect(k8s.Delete(ctx, definition)).To(Succeed())
	install = func(ctx context.Context) {
		GinkgoHelper()
		Expect(client.IgnoreAlreadyExists(k8s.Create(ctx, again.DeepCopy()))).To(Succeed())
		Eventually(serves).WithContext(ctx).WithArguments(a).Should(BeTrue())
	}
	DeferCleanup(install)
	Eventually(serves).WithContext(ctx).WithArguments(a).Should(BeFalse())
	return install
}

// serves reports whether the API server serves a kind.
func serves(_ context.Context, a api) (bool, error) {
	d, err := discovery.NewDiscoveryClientForConfig(restConfig)
	if err != nil {
		return false, err
	}
	resources, err := d.ServerResourcesForGroupVersion(a.groupVersion)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for _, r := range resources.APIResources {
		if r.Kind == a.kind {
			return true, nil
		}
	}
	return false, nil
}
