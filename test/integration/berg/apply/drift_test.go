package apply

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/expect"
)

// byHand is a change that a client makes to an object of an instance.
type byHand struct {
	what string
	// patch is a merge patch, or a JSON patch if it begins with a bracket.
	patch string
	// restarts says that the change makes the Deployment replace its pod.
	restarts bool
}

// Each table stays below the number of changes of one object in a row that the
// operator undoes without a pause.
var _ = Describe("What is changed by hand is put back, exactly", func() {
	DescribeTable("in a", func(ctx context.Context, object client.Object, name string, changes []byHand) {
		i := bergtest.StartRunning(ctx, "drift", bergtest.EveryKind)
		key := client.ObjectKey{Namespace: i.Status.Namespace, Name: name}
		if name == "" { // the namespace itself
			key = client.ObjectKey{Name: i.Status.Namespace}
		}
		for _, change := range changes {
			By(change.what)
			before, pods := contentAt(ctx, object, key), podUIDs(ctx, i)
			changed := bergtest.Blank(object, key)
			Expect(k8s.Patch(ctx, changed, apiserver.RawPatch(change.patch), client.FieldOwner("another-client"))).To(Succeed())
			Expect(cmp.Diff(before, contentOf(changed))).NotTo(BeEmpty(), "the change did not take place")
			Eventually(func() string { return cmp.Diff(before, contentAt(ctx, object, key)) }).Should(BeEmpty())
			if change.restarts {
				reachesHealth(ctx, i)
			} else {
				Expect(podUIDs(ctx, i)).To(Equal(pods), "pods were touched")
			}
			Expect(k8s.Get(ctx, client.ObjectKeyFromObject(i), i)).To(Succeed())
			Expect(i.Status.Phase).To(Equal(bergv1.PhaseRunning))
		}
	},
		Entry("Deployment: what it runs", &appsv1.Deployment{}, "db", []byHand{
			{"image", `[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"example.com/evil:1"}]`, true},
			{"variable", `[{"op":"replace","path":"/spec/template/spec/containers/0/env/0/value","value":"evil"}]`, true},
			{"variable added", `[{"op":"add","path":"/spec/template/spec/containers/0/env/-","value":{"name":"EVIL","value":"1"}}]`, true},
			{"command", `[{"op":"add","path":"/spec/template/spec/containers/0/command","value":["sh"]}]`, true},
			{"container", `[{"op":"add","path":"/spec/template/spec/containers/-","value":{"name":"sidecar","image":"example.com/evil:1"}}]`, true},
			{"init container", `{"spec":{"template":{"spec":{"initContainers":[{"name":"evil","image":"example.com/evil:1"}]}}}}`, true},
			{"volume", `[{"op":"add","path":"/spec/template/spec/volumes/-","value":{"name":"evil","emptyDir":{}}}]`, true},
			{"security context", `[{"op":"add","path":"/spec/template/spec/containers/0/securityContext/runAsUser","value":1}]`, true},
		}),
		Entry("Deployment: how it runs", &appsv1.Deployment{}, "db", []byHand{
			{"network of the host", `{"spec":{"template":{"spec":{"hostNetwork":true,"securityContext":{"sysctls":null}}}}}`, true},
			{"processes of the host", `{"spec":{"template":{"spec":{"hostPID":true}}}}`, true},
			{"toleration", `{"spec":{"template":{"spec":{"tolerations":[{"operator":"Exists"}]}}}}`, true},
			{"node selector", `{"spec":{"template":{"spec":{"nodeSelector":{"kubernetes.io/os":"linux"}}}}}`, true},
			{"service account", `{"spec":{"template":{"spec":{"serviceAccountName":"other","automountServiceAccountToken":true}}}}`, true},
			{"a default", `{"spec":{"template":{"spec":{"dnsPolicy":"Default"}}}}`, true},
			{"label of the pods", `{"spec":{"template":{"metadata":{"labels":{"evil":"1"}}}}}`, true},
			{"annotation of the pods", `{"spec":{"template":{"metadata":{"annotations":{"kubernetes.io/egress-bandwidth":null}}}}}`, true},
		}),
		Entry("Deployment: the rest", &appsv1.Deployment{}, "db", []byHand{
			{"replicas", `{"spec":{"replicas":0}}`, true},
			{"paused", `{"spec":{"paused":true}}`, false},
			{"defaults", `{"spec":{"minReadySeconds":5,"revisionHistoryLimit":1,"progressDeadlineSeconds":7}}`, false},
			{"strategy", `{"spec":{"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":2}}}}`, false},
			{"label changed", `{"metadata":{"labels":{"app.kubernetes.io/component":"evil"}}}`, false},
			{"label that it is found by", `{"metadata":{"labels":{"app.kubernetes.io/managed-by":null}}}`, false},
			{"checksum of the plan", `{"metadata":{"annotations":{"berg.norelect.ch/plan-checksum":null}}}`, false},
		}),
		Entry("Service", &corev1.Service{}, "db", []byHand{
			{"external addresses", `{"spec":{"externalIPs":["192.0.2.1"]}}`, false},
			{"session affinity", `{"spec":{"sessionAffinity":"ClientIP"}}`, false},
			{"traffic policy", `{"spec":{"internalTrafficPolicy":"Local"}}`, false},
			{"addresses that are not ready", `{"spec":{"publishNotReadyAddresses":true}}`, false},
			{"selector", `{"spec":{"selector":{"evil":"1"}}}`, false},
			{"port", `[{"op":"add","path":"/spec/ports/-","value":{"name":"evil","port":1}}]`, false},
			{"load balancer", `{"spec":{"type":"LoadBalancer","loadBalancerIP":"192.0.2.1","loadBalancerSourceRanges":["192.0.2.0/24"]}}`, false},
			{"external name", `{"spec":{"type":"ExternalName","externalName":"evil.example.com","clusterIP":"","clusterIPs":null}}`, false},
			{"label that it is found by", `{"metadata":{"labels":{"app.kubernetes.io/managed-by":null}}}`, false},
		}),
		Entry("Service of a node port", &corev1.Service{}, "pwn-node-port", []byHand{
			{"external addresses", `{"spec":{"externalIPs":["192.0.2.1"]}}`, false},
			{"traffic policies", `{"spec":{"externalTrafficPolicy":"Local","trafficDistribution":"PreferSameZone"}}`, false},
			{"target", `[{"op":"replace","path":"/spec/ports/0/targetPort","value":1}]`, false},
			{"addresses of one protocol", `{"spec":{"ipFamilyPolicy":"SingleStack"}}`, false},
			{"application protocol", `[{"op":"add","path":"/spec/ports/0/appProtocol","value":"http"}]`, false},
		}),
		Entry("CiliumNetworkPolicy", &ciliumv2.CiliumNetworkPolicy{}, "challenge-network-policy", []byHand{
			{"egress to everywhere", `[{"op":"add","path":"/spec/egress/-","value":{"toEntities":["all"]}}]`, false},
			{"a rule made wider", `[{"op":"add","path":"/spec/egress/0/toEntities","value":["all"]},{"op":"remove","path":"/spec/egress/0/toEndpoints"}]`, false},
			{"a rule made narrower", `[{"op":"add","path":"/spec/ingress/0/toPorts","value":[{"ports":[{"port":"1","protocol":"TCP"}]}]}]`, false},
			{"ingress removed", `[{"op":"remove","path":"/spec/ingress"}]`, false},
			{"a second set of rules", `{"specs":[{"endpointSelector":{},"egress":[{"toEntities":["all"]}]}]}`, false},
			{"no denial by default", `{"spec":{"enableDefaultDeny":{"egress":false,"ingress":false}}}`, false},
			{"the endpoint selector", `{"spec":{"endpointSelector":{"matchLabels":{"no-pod":"here"}}}}`, false},
		}),
		Entry("HTTPRoute", &gatewayv1.HTTPRoute{}, "web-8080", []byHand{
			{"filter", `[{"op":"add","path":"/spec/rules/0/filters","value":[{"type":"RequestHeaderModifier","requestHeaderModifier":{"set":[{"name":"x","value":"y"}]}}]}]`, false},
			{"match", `[{"op":"add","path":"/spec/rules/0/matches","value":[{"path":{"type":"PathPrefix","value":"/evil"}}]}]`, false},
			{"timeouts", `[{"op":"add","path":"/spec/rules/0/timeouts","value":{"request":"1s"}}]`, false},
			{"weight", `[{"op":"add","path":"/spec/rules/0/backendRefs/0/weight","value":7}]`, false},
			{"hostnames", `{"spec":{"hostnames":["evil.example.com"]}}`, false},
			{"parent", `[{"op":"replace","path":"/spec/parentRefs/0/name","value":"evil"}]`, false},
			{"label of the hostname", `{"metadata":{"labels":{"berg.norelect.ch/hostname":"evil"}}}`, false},
		}),
		Entry("TLSRoute", &gatewayv1.TLSRoute{}, "web-7000", []byHand{
			{"hostnames", `{"spec":{"hostnames":["evil.example.com"]}}`, false},
			{"backend", `[{"op":"replace","path":"/spec/rules/0/backendRefs/0/port","value":1}]`, false},
			{"name of a rule", `[{"op":"add","path":"/spec/rules/0/name","value":"evil"}]`, false},
		}),
		Entry("ConfigMap", &corev1.ConfigMap{}, "flag-content", []byHand{
			{"the flag", `{"binaryData":{"content":"ZXZpbAo="}}`, false},
			{"more data", `{"data":{"evil":"1"}}`, false},
			{"immutable", `{"immutable":true}`, false},
			{"immutable with another flag", `{"immutable":true,"binaryData":{"content":"ZXZpbAo="}}`, false},
			{"no data", `{"binaryData":null}`, false},
		}),
		Entry("PodDisruptionBudget", &policyv1.PodDisruptionBudget{}, "db-pdb", []byHand{
			{"selector", `{"spec":{"selector":{"matchLabels":{"evil":"1"}}}}`, false},
			{"budget", `{"spec":{"minAvailable":0}}`, false},
			{"eviction of pods that are not ready", `{"spec":{"unhealthyPodEvictionPolicy":"IfHealthyBudget"}}`, false},
		}),
		Entry("Namespace", &corev1.Namespace{}, "", []byHand{
			{"pod security weakened", `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"privileged"}}}`, false},
			{"pod security removed", `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":null,"pod-security.kubernetes.io/warn":null}}}`, false},
			{"owner", `{"metadata":{"labels":{"berg.norelect.ch/owner-id":"another"}}}`, false},
			{"component, which keeps other instances out", `{"metadata":{"labels":{"app.kubernetes.io/component":null}}}`, false},
			{"annotation", `{"metadata":{"annotations":{"berg.norelect.ch/instance":null}}}`, false},
		}),
	)
})

var _ = Describe("In the namespace of an instance", func() {
	It("what is deleted comes back, with the same content", func(ctx context.Context) {
		i := bergtest.StartRunning(ctx, "drift", bergtest.EveryKind)
		ours := bergtest.Objects(ctx, i)
		Expect(ours).To(HaveLen(15))
		for _, o := range ours {
			By(fmt.Sprintf("%s %s", o.GetKind(), o.GetName()))
			before := contentOf(o)
			Expect(k8s.Delete(ctx, o.DeepCopy())).To(Succeed())
			back := o.DeepCopy()
			Eventually(func(g Gomega) {
				g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(o), back)).To(Succeed())
				g.Expect(back.GetUID()).NotTo(Equal(o.GetUID()))
				g.Expect(back.GetDeletionTimestamp()).To(BeNil())
			}).Should(Succeed())
			if o.GetName() != "pwn-node-port" && !strings.HasPrefix(o.GetKind(), "Deployment") {
				Expect(cmp.Diff(before, contentOf(back))).To(BeEmpty())
			}
		}
		reachesHealth(ctx, i)
	})

	It("what others add to metadata, and objects of others, stay as they are", func(ctx context.Context) {
		i := bergtest.StartRunning(ctx, "drift", bergtest.EveryKind)
		theirs := []client.Object{
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}},
			&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}}},
			&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}},
			&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}, Spec: appsv1.DeploymentSpec{
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "example.com/theirs:1"}}},
				},
			}},
			&gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}},
			&gatewayv1.TLSRoute{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}, Spec: gatewayv1.TLSRouteSpec{
				Hostnames: []gatewayv1.Hostname{"theirs.example.com"}, Rules: []gatewayv1.TLSRouteRule{{BackendRefs: []gatewayv1.BackendRef{
					{BackendObjectReference: gatewayv1.BackendObjectReference{Name: "theirs", Port: new(gatewayv1.PortNumber(1))}},
				}}},
			}},
			&ciliumv2.CiliumNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}},
		}
		for _, o := range theirs {
			o.SetNamespace(i.Status.Namespace)
			// As the operator labels its own, but without the proof, or with that of another.
			o.SetLabels(map[string]string{bergv1.LabelManagedBy: bergv1.ManagedBy})
			if o.GetName() == "theirs" {
				o.SetAnnotations(map[string]string{bergv1.AnnotationInstanceUID: "00000000-0000-4000-8000-000000000000"})
			}
			if policy, ok := o.(*ciliumv2.CiliumNetworkPolicy); ok {
				Expect(yaml.Unmarshal([]byte(`{spec: {endpointSelector: {}, egress: [{}]}}`), policy)).To(Succeed())
			}
			Expect(k8s.Create(ctx, o)).To(Succeed(), "%T", o)
		}
		ours := bergtest.Objects(ctx, i)
		Expect(ours).To(HaveLen(15))
		anchor := bergtest.Blank(&corev1.ConfigMap{}, client.ObjectKey{Namespace: i.Status.Namespace, Name: "theirs"})
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(anchor), anchor)).To(Succeed())
		for _, o := range ours {
			Expect(k8s.Patch(ctx, o, apiserver.RawPatch(fmt.Sprintf(
				`{"metadata":{"labels":{"team":"red"},"annotations":{"note":"x"},"finalizers":["example.com/hold"],"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"theirs","uid":"%s"}]}}`,
				anchor.GetUID())), client.FieldOwner("another-client"))).To(Succeed())
		}
		DeferCleanup(func(ctx context.Context) {
			for _, o := range ours {
				Expect(client.IgnoreNotFound(k8s.Patch(ctx, o, apiserver.RawPatch(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
			}
		})

		// A Service that comes back proves that the operator has looked at all this.
		Expect(k8s.Patch(ctx, bergtest.Blank(&corev1.Service{}, client.ObjectKey{Namespace: i.Status.Namespace, Name: "db"}), apiserver.RawPatch(`{"spec":{"sessionAffinity":"ClientIP"}}`))).To(Succeed())
		Eventually(func(g Gomega) {
			var db corev1.Service
			g.Expect(k8s.Get(ctx, client.ObjectKey{Namespace: i.Status.Namespace, Name: "db"}, &db)).To(Succeed())
			g.Expect(db.Spec.SessionAffinity).To(Equal(corev1.ServiceAffinityNone))
		}).Should(Succeed())

		for _, o := range ours {
			now := o.DeepCopy()
			Expect(k8s.Get(ctx, client.ObjectKeyFromObject(o), now)).To(Succeed())
			Expect(now.GetUID()).To(Equal(o.GetUID()))
			Expect(now.GetLabels()).To(HaveKeyWithValue("team", "red"))
			Expect(now.GetAnnotations()).To(HaveKeyWithValue("note", "x"))
			Expect(now.GetFinalizers()).To(ConsistOf("example.com/hold"))
			owners := 1
			if strings.HasSuffix(o.GetKind(), "NetworkPolicy") {
				owners = 0 // an owner could take the confinement of pods away
			}
			Expect(now.GetOwnerReferences()).To(HaveLen(owners), o.GetKind())
			if k := o.GetKind(); owners == 1 && k != "Deployment" && k != "PodDisruptionBudget" && o.GetName() != "db" {
				Expect(now.GetResourceVersion()).To(Equal(o.GetResourceVersion()), "%s %s was written", k, o.GetName())
			}
		}
		for _, o := range theirs {
			now := bergtest.Blank(o, client.ObjectKeyFromObject(o))
			Expect(k8s.Get(ctx, client.ObjectKeyFromObject(o), now)).To(Succeed())
			Expect(now.GetUID()).To(Equal(o.GetUID()))
			Expect(now.GetDeletionTimestamp()).To(BeNil())
			Expect(now.GetGeneration()).To(Equal(o.GetGeneration()))
		}
	})

	It("what carries the proof and is not planned goes, of every kind", func(ctx context.Context) {
		i := bergtest.StartRunning(ctx, "drift", bergtest.EveryKind)
		var extras []*unstructured.Unstructured
		for _, o := range bergtest.Objects(ctx, i) {
			extra := o.DeepCopy()
			extra.SetName("extra")
			extra.SetUID("")
			extra.SetResourceVersion("")
			extra.SetCreationTimestamp(metav1.Time{})
			extra.SetManagedFields(nil)
			if extra.GetKind() == "Service" {
				extra.Object["spec"] = map[string]any{"ports": []any{map[string]any{"port": int64(1)}}}
			}
			err := k8s.Create(ctx, extra)
			if !apierrors.IsAlreadyExists(err) { // one of each kind will do
				Expect(err).NotTo(HaveOccurred())
				extras = append(extras, extra)
			}
		}
		Expect(len(extras)).To(BeNumerically(">=", 7))
		for _, extra := range extras {
			Eventually(func() bool {
				return apierrors.IsNotFound(k8s.Get(ctx, client.ObjectKeyFromObject(extra), extra.DeepCopy()))
			}).Should(BeTrue(), "%s stays", extra.GetKind())
		}
	})

	It("what has lost its proof is refused, untouched, until it has it back", func(ctx context.Context) {
		i := bergtest.StartRunning(ctx, "drift", bergtest.OneContainer)
		lose := func(patch string) string { return strings.ReplaceAll(patch, "UID", "berg.norelect.ch/instance-uid") }
		for object, reason := range map[client.Object]string{
			bergtest.Blank(&corev1.Service{}, client.ObjectKey{Namespace: i.Status.Namespace, Name: "web"}): bergv1.ReasonObjectConflict,
			bergtest.Blank(&corev1.Namespace{}, client.ObjectKey{Name: i.Status.Namespace}):                 bergv1.ReasonNamespaceConflict,
		} {
			By(reason)
			pods := podUIDs(ctx, i)
			Expect(k8s.Patch(ctx, object, apiserver.RawPatch(lose(`{"metadata":{"annotations":{"UID":null},"labels":{"berg.norelect.ch/challenge":"changed"}}}`)))).To(Succeed())
			condition := bergv1.ConditionServicesCreated
			if reason == bergv1.ReasonNamespaceConflict {
				condition = bergv1.ConditionNamespaceCreated
			}
			expect.Shows(ctx, i, condition, metav1.ConditionFalse, reason)
			now := bergtest.Blank(object, client.ObjectKeyFromObject(object))
			Expect(k8s.Get(ctx, client.ObjectKeyFromObject(object), now)).To(Succeed())
			Expect(now.GetResourceVersion()).To(Equal(object.GetResourceVersion()), "it was touched")
			Expect(podUIDs(ctx, i)).To(Equal(pods))

			Expect(k8s.Patch(ctx, object, apiserver.RawPatch(lose(`{"metadata":{"annotations":{"UID":"`+string(i.UID)+`"}}}`)))).To(Succeed())
			expect.Shows(ctx, i, condition, metav1.ConditionTrue, bergv1.ReasonCreated)
			expect.Reaches(ctx, i, bergv1.PhaseRunning)
		}
	})

	It("what another controller keeps changing is put back with growing pauses, which it tells", func(ctx context.Context) {
		i := bergtest.StartRunning(ctx, "drift", bergtest.OneContainer)
		key := client.ObjectKey{Namespace: i.Status.Namespace, Name: "web"}
		w, err := k8s.Watch(ctx, &corev1.ServiceList{}, client.InNamespace(key.Namespace), client.MatchingFields{"metadata.name": key.Name})
		Expect(err).NotTo(HaveOccurred())
		var repairs atomic.Int64
		fought := make(chan error, 1)
		go func() { // undoes each repair, as fast as it is told of it
			for e := range w.ResultChan() {
				if service, ok := e.Object.(*corev1.Service); !ok || len(service.Spec.ExternalIPs) > 0 {
					continue
				}
				repairs.Add(1)
				if err := k8s.Patch(ctx, bergtest.Blank(&corev1.Service{}, key), apiserver.RawPatch(`{"spec":{"externalIPs":["192.0.2.1"]}}`), client.FieldOwner("fighter")); err != nil {
					fought <- err
					return
				}
			}
			fought <- nil
		}()
		expect.Shows(ctx, i, bergv1.ConditionServicesCreated, metav1.ConditionFalse, bergv1.ReasonContested)
		expect.Says(ctx, i, "fighter")
		Expect(i.Status.Phase).To(Equal(bergv1.PhaseRunning))
		expect.Shows(ctx, i, bergv1.ConditionHealthy, metav1.ConditionTrue, bergv1.ReasonReady)
		before := repairs.Load()
		Consistently(func() int64 { return repairs.Load() - before }).WithTimeout(5*time.Second).Should(BeNumerically("<=", 4), "repairs in five seconds")

		w.Stop()
		Eventually(fought).Should(Receive(BeNil()))
		// The condition is True after each repair, so also just before the last fight.
		Eventually(func(g Gomega) {
			var after corev1.Service
			g.Expect(k8s.Get(ctx, key, &after)).To(Succeed())
			g.Expect(after.Spec.ExternalIPs).To(BeEmpty())
		}).Should(Succeed())
		expect.Shows(ctx, i, bergv1.ConditionServicesCreated, metav1.ConditionTrue, bergv1.ReasonCreated)
	})
})

// reachesHealth waits until an instance is healthy again, as it sees itself.
func reachesHealth(ctx context.Context, i *bergv1.ChallengeInstance) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var deployments appsv1.DeploymentList
		g.Expect(k8s.List(ctx, &deployments, client.InNamespace(i.Status.Namespace))).To(Succeed())
		for _, d := range deployments.Items {
			g.Expect(d.Status.ObservedGeneration).To(Equal(d.Generation))
			g.Expect(d.Status.UpdatedReplicas).To(Equal(int32(1)))
			g.Expect(d.Status.AvailableReplicas).To(Equal(int32(1)))
		}
		// The status of a Deployment may be that of before its pod was deleted.
		var sets appsv1.ReplicaSetList
		g.Expect(k8s.List(ctx, &sets, client.InNamespace(i.Status.Namespace))).To(Succeed())
		for _, s := range sets.Items {
			g.Expect(s.Status.ObservedGeneration).To(Equal(s.Generation))
			g.Expect(s.Status.Replicas).To(Equal(*s.Spec.Replicas))
		}
		var pods corev1.PodList
		g.Expect(k8s.List(ctx, &pods, client.InNamespace(i.Status.Namespace))).To(Succeed())
		g.Expect(pods.Items).To(HaveLen(len(deployments.Items)))
		for _, p := range pods.Items {
			g.Expect(p.DeletionTimestamp).To(BeNil())
		}
	}).Should(Succeed())
	expect.Shows(ctx, i, bergv1.ConditionHealthy, metav1.ConditionTrue, bergv1.ReasonReady)
}

func contentAt(ctx context.Context, object client.Object, key client.ObjectKey) map[string]any {
	GinkgoHelper()
	u := bergtest.Blank(object, key)
	if err := k8s.Get(ctx, key, u); err != nil {
		return map[string]any{"error": err.Error()} // it is being replaced
	}
	return contentOf(u)
}

// contentOf returns an object without what changes with every write and what
// controllers add.
func contentOf(u *unstructured.Unstructured) map[string]any {
	out := runtime.DeepCopyJSON(u.Object)
	delete(out, "status")
	for _, field := range []string{"resourceVersion", "generation", "managedFields", "creationTimestamp", "uid"} {
		unstructured.RemoveNestedField(out, "metadata", field)
	}
	unstructured.RemoveNestedField(out, "metadata", "annotations", "deployment.kubernetes.io/revision")
	if u.GetKind() == "Service" { // the API server's choice, each time again
		unstructured.RemoveNestedField(out, "spec", "clusterIP")
		unstructured.RemoveNestedField(out, "spec", "clusterIPs")
	}
	return out
}

func podUIDs(ctx context.Context, i *bergv1.ChallengeInstance) map[string]types.UID {
	GinkgoHelper()
	pods := apiserver.List[corev1.PodList](ctx, client.InNamespace(i.Status.Namespace))
	out := map[string]types.UID{}
	for _, p := range pods.Items {
		out[p.Name] = p.UID
	}
	return out
}
