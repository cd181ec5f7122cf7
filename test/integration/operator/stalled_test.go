package operator

import (
	"context"
	"reflect"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/cmd/berg-operator/families"
	"github.com/bergctf/berg-operator/internal/operator"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/installed"
)

// hopeless are, for each Kind that has conditions, manifests of which the last one can never be what it asks for. NAMESPACE
// is that of the spec.
var hopeless = map[string][]string{
	"Challenge.berg.norelect.ch": {`{apiVersion: berg.norelect.ch/v1, kind: Challenge, spec: {containers: [{hostname: localhost, image: a}]}}`},
	"ChallengeInstance.berg.norelect.ch": {`{apiVersion: berg.norelect.ch/v1, kind: ChallengeInstance,
		spec: {challengeRef: {name: none, namespace: NAMESPACE}, ownerId: 0190a5b4-7c1e-7d3a-9f52-3b6d8e1f4a71}}`},
	"ChallengeCheck.berg.norelect.ch": { // of simulated nodes, a solver ends without an answer
		`{apiVersion: berg.norelect.ch/v1, kind: Challenge, metadata: {name: unsolved},
			spec: {flag: "flag{unsolved}", containers: [{hostname: web, image: a, ports: [{name: web, port: 80, type: publicHttpRoute}]}]}}`,
		`{apiVersion: berg.norelect.ch/v1, kind: ChallengeCheck, spec: {challengeRef: {name: unsolved, namespace: NAMESPACE}, solver: {image: a}}}`,
	},
	"Environment.quix.io": {`{apiVersion: quix.io/v1, kind: Environment, metadata: {name: hopeless}, spec: {id: hopeless}}`}, // ENVIRONMENT_REGEX
	"Challenge.apps.hexactf.io": {
		`{apiVersion: apps.hexactf.io/v1alpha1, kind: ChallengeDefinition, metadata: {name: empty}, spec: {}}`,
		`{apiVersion: apps.hexactf.io/v1alpha1, kind: Challenge, metadata: {name: some, labels: {apps.hexactf.io/challengeId: "42", apps.hexactf.io/user: alice}}, spec: {definition: empty}}`,
	},
	"Project.platform.operator.kibaship.com": {`{apiVersion: platform.operator.kibaship.com/v1alpha1, kind: Project, metadata: {name: hopeless}}`}, // no UUID
	"Application.platform.operator.kibaship.com": {`{apiVersion: platform.operator.kibaship.com/v1alpha1, kind: Application,
		metadata: {name: project-none-app-a-kibaship-com}, spec: {projectRef: {name: none}, type: DockerImage, dockerImage: {image: a}}}`},
	"Deployment.platform.operator.kibaship.com": {`{apiVersion: platform.operator.kibaship.com/v1alpha1, kind: Deployment,
		metadata: {name: project-none-app-b-deployment-1-kibaship-com}, spec: {applicationRef: {name: project-none-app-b-kibaship-com}}}`},
	"ContainerNetwork.usvc-dev.developer.microsoft.com": {`{apiVersion: usvc-dev.developer.microsoft.com/v1, kind: ContainerNetwork,
		metadata: {name: hopeless}, spec: {networkName: hopeless, mode: existing}}`},
	"ContainerNetworkTunnelProxy.usvc-dev.developer.microsoft.com": {`{apiVersion: usvc-dev.developer.microsoft.com/v1, kind: ContainerNetworkTunnelProxy,
		metadata: {name: hopeless}, spec: {containerNetworkName: none}}`},
}

// kubectl wait, Flux, Argo CD and Helm go by kstatus: without Ready and Stalled they take a resource for done.
var _ = Describe("A resource that needs a person", func() {
	BeforeEach(func(ctx context.Context) {
		Expect(installed.Folder(ctx, k8s, "config/berg/check", "integration")).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			Expect(k8s.Delete(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "berg-operator-berg-check"}})).To(Succeed())
		})
		for _, verb := range []string{"list", "watch"} {
			Eventually(func() bool {
				return apiserver.May(ctx, apiserver.OperatorUser, authorizationv1.ResourceAttributes{Verb: verb, Group: "batch", Resource: "jobs"})
			}).Should(BeTrue())
		}
		inprocess.Restart(map[string]string{"CHECK_CONCURRENCY": "1", "ENVIRONMENT_REGEX": "^none$"}, nil)
	})

	It("is Failed for tools that wait, of any Kind", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		want := reporting()
		Expect(want).To(HaveLen(len(hopeless)), "hopeless has Kinds that no scheme has")
		made := map[string]*unstructured.Unstructured{}
		for kind := range want {
			Expect(hopeless).To(HaveKey(kind), "add a resource of this Kind that can never be what it asks for")
			for _, manifest := range hopeless[kind] {
				o := manifestIn(ns, strings.ReplaceAll(manifest, "NAMESPACE", ns))
				if namespaced, err := k8s.IsObjectNamespaced(o); err != nil || !namespaced {
					Expect(err).NotTo(HaveOccurred())
					o.SetNamespace("")
				}
				Expect(k8s.Create(ctx, o)).To(Succeed(), kind)
				DeferCleanup(func(ctx context.Context) {
					Expect(client.IgnoreNotFound(k8s.Delete(ctx, o.DeepCopy()))).To(Succeed())
					expect.Gone(ctx, o)
				})
				made[kind] = o
			}
		}
		for kind, o := range made {
			expect.Becomes(ctx, o, func(g Gomega) {
				g.Expect(statusForTools(o)).To(Equal("Failed"), "%s: conditions: %s", kind, expect.Conditions(o))
			})
		}
	})
})

// statusForTools is what kstatus makes of a custom resource. TestHealthInFluxAndHelm of test/conform/chart asks the library itself.
func statusForTools(o *unstructured.Unstructured) string {
	GinkgoHelper()
	var resource struct {
		Status struct {
			ObservedGeneration *int64             `json:"observedGeneration"`
			Conditions         []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &resource)).To(Succeed())
	s := resource.Status
	switch {
	case s.ObservedGeneration == nil || *s.ObservedGeneration != o.GetGeneration():
		return "InProgress"
	case meta.IsStatusConditionTrue(s.Conditions, "Stalled"):
		return "Failed"
	case meta.IsStatusConditionTrue(s.Conditions, "Ready"):
		return "Current"
	default:
		return "InProgress"
	}
}

// reporting are the Kinds of all families whose status has conditions, as Kind.group.
func reporting() map[string]bool {
	GinkgoHelper()
	kinds := map[string]bool{}
	for _, f := range families.All() {
		scheme, err := operator.NewScheme(f)
		Expect(err).NotTo(HaveOccurred())
		for gvk, of := range scheme.AllKnownTypes() {
			if _, isObject := reflect.New(of).Interface().(client.Object); gvk.Group != f.API || !isObject {
				continue
			}
			if state, has := of.FieldByName("Status"); has {
				if _, has := state.Type.FieldByName("Conditions"); has {
					kinds[schema.GroupKind{Group: gvk.Group, Kind: gvk.Kind}.String()] = true
				}
			}
		}
	}
	return kinds
}
