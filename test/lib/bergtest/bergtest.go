// Package bergtest makes Challenges and their instances for the specs of every suite, and
// waits for what is particular to them. What holds for resources of any kind is in expect.
package bergtest

import (
	"context"
	"strings"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/limits"
)

// Specs of Challenges, in YAML.
const (
	// OneContainer runs one pod behind one route.
	OneContainer = `containers: [{hostname: web, image: "example.com/web:1", ports: [{name: web, port: 8080, type: publicHttpRoute}]}]`
	// EveryKind has three pods, and every kind of object, port and flag.
	EveryKind = `
containers:
- hostname: web
  image: example.com/web:1
  ports:
  - {name: web, port: 8080, appProtocol: http, type: publicHttpRoute}
  - {name: chat, port: 7000, type: publicTlsRoute}
  dynamicFlag: {content: {path: "/flag-{entropy}.txt"}}
- hostname: pwn
  image: example.com/pwn:1
  ports:
  - {name: game, port: 1337, type: publicPort}
  - {name: game-udp, port: 1337, protocol: udp, type: publicPort}
  dynamicFlag: {executable: {path: /get_flag}}
- hostname: db
  image: example.com/db:1
  ports:
  - {name: db, port: 5432}
  dynamicFlag: {env: {name: FLAG}}
`
)

// Namespace makes a namespace for the Challenges and instances of one spec. At its end its
// instances are deleted; the suite ends by waiting until all of them are gone.
func Namespace(ctx context.Context) string {
	GinkgoHelper()
	ns := apiserver.Namespace(ctx)
	DeferCleanup(func(ctx context.Context) {
		Eventually(func() error { // of hundreds, one request may take too long
			return apiserver.Client.DeleteAllOf(ctx, &bergv1.ChallengeInstance{}, client.InNamespace(ns))
		}).Should(Succeed())
	})
	return ns
}

// NoneLeft waits until there is no instance in the cluster: at the end of a suite.
func NoneLeft(ctx context.Context) {
	GinkgoHelper()
	expect.None(ctx, &bergv1.ChallengeInstanceList{})
}

// Challenge creates a Challenge from the YAML of its spec.
func Challenge(ctx context.Context, namespace, name, spec string, modify ...func(*bergv1.Challenge)) *bergv1.Challenge {
	GinkgoHelper()
	c := &bergv1.Challenge{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	Expect(yaml.UnmarshalStrict([]byte(spec), &c.Spec)).To(Succeed())
	for _, m := range modify {
		m(c)
	}
	Expect(apiserver.Client.Create(ctx, c)).To(Succeed())
	return c
}

// Publish creates a Challenge in a namespace of its own, and returns the namespace.
func Publish(ctx context.Context, name, spec string, modify ...func(*bergv1.Challenge)) (namespace string) {
	GinkgoHelper()
	namespace = Namespace(ctx)
	Challenge(ctx, namespace, name, spec, modify...)
	return namespace
}

// Frozen is for a Challenge that is frozen from its beginning: of one that is frozen later the
// operator may hear after it has heard of an instance, by another watch.
func Frozen(c *bergv1.Challenge) { c.Annotations = map[string]string{bergv1.AnnotationFrozen: "yes"} }

// Instance creates an instance of a Challenge, for an owner of its own.
func Instance(ctx context.Context, namespace, challenge string, modify ...func(*bergv1.ChallengeInstance)) *bergv1.ChallengeInstance {
	GinkgoHelper()
	i := &bergv1.ChallengeInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "instance-"},
		Spec: bergv1.ChallengeInstanceSpec{
			ChallengeRef: bergv1.ChallengeReference{Name: challenge, Namespace: namespace},
			OwnerID:      uuid.NewString(),
			Flag:         "flag{integration}",
		},
	}
	for _, m := range modify {
		m(i)
	}
	Expect(apiserver.Client.Create(ctx, i)).To(Succeed())
	return i
}

// Several creates n instances of a Challenge.
func Several(ctx context.Context, namespace, challenge string, n int) []*bergv1.ChallengeInstance {
	GinkgoHelper()
	all := make([]*bergv1.ChallengeInstance, n)
	for i := range all {
		all[i] = Instance(ctx, namespace, challenge)
	}
	return all
}

// NamedAfterOwner makes every request about an instance name its owner.
func NamedAfterOwner(i *bergv1.ChallengeInstance) { i.Name, i.GenerateName = i.Spec.OwnerID, "" }

// OwnedBy gives an instance an owner.
func OwnedBy(owner string) func(*bergv1.ChallengeInstance) {
	return func(i *bergv1.ChallengeInstance) { i.Spec.OwnerID = owner }
}

// Delete deletes an instance, and waits until neither it nor its namespace exists.
func Delete(ctx context.Context, i *bergv1.ChallengeInstance) {
	GinkgoHelper()
	Expect(apiserver.Client.Delete(ctx, i)).To(Succeed())
	Gone(ctx, i)
}

// Gone waits until neither an instance nor its namespace exists.
func Gone(ctx context.Context, i *bergv1.ChallengeInstance) {
	GinkgoHelper()
	GoneWithin(ctx, i, limits.Wait)
}

// GoneWithin is Gone with a limit of its own.
func GoneWithin(ctx context.Context, i *bergv1.ChallengeInstance, limit time.Duration) {
	GinkgoHelper()
	expect.GoneWithin(ctx, i, limit)
	// The finalizer goes after the namespace, never before.
	Expect(NamespaceExists(ctx, i)).To(BeFalse(), "the namespace exists")
}

// NamespaceExists reports whether the namespace of an instance exists.
func NamespaceExists(ctx context.Context, i *bergv1.ChallengeInstance) bool {
	GinkgoHelper()
	err := apiserver.Client.Get(ctx, client.ObjectKey{Name: manifests.NamespaceName(i.Spec.OwnerID)}, &corev1.Namespace{})
	if apierrors.IsNotFound(err) {
		return false
	}
	Expect(err).NotTo(HaveOccurred())
	return true
}

// ReasonOf returns the reason of a condition, "" if there is none.
func ReasonOf(i *bergv1.ChallengeInstance, conditionType string) string {
	if c := meta.FindStatusCondition(i.Status.Conditions, conditionType); c != nil {
		return c.Reason
	}
	return ""
}

// Objects returns all that the operator has put into an instance's namespace and watches.
func Objects(ctx context.Context, i *bergv1.ChallengeInstance) []*unstructured.Unstructured {
	GinkgoHelper()
	var out []*unstructured.Unstructured
	for _, kind := range []client.Object{
		&ciliumv2.CiliumNetworkPolicy{}, &corev1.Service{}, &gatewayv1.HTTPRoute{}, &gatewayv1.TLSRoute{},
		&corev1.ConfigMap{}, &policyv1.PodDisruptionBudget{}, &appsv1.Deployment{},
	} {
		gvk, err := apiutil.GVKForObject(kind, apiserver.Client.Scheme())
		Expect(err).NotTo(HaveOccurred())
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(gvk)
		Expect(apiserver.Client.List(ctx, list, client.InNamespace(i.Status.Namespace), client.HasLabels{bergv1.LabelManagedBy})).To(Succeed())
		for n := range list.Items {
			if list.Items[n].GetAnnotations()[bergv1.AnnotationInstanceUID] == string(i.UID) {
				out = append(out, &list.Items[n])
			}
		}
	}
	return out
}

// UseUp gives a namespace a quota that leaves room for no further ConfigMap and no further
// Deployment, and returns when the API server goes by it: for some milliseconds, it does not.
func UseUp(ctx context.Context, namespace string) *corev1.ResourceQuota {
	GinkgoHelper()
	none := resource.MustParse("0")
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "quota"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/configmaps": none, "count/deployments.apps": none}},
	}
	Expect(apiserver.Client.Create(ctx, quota)).To(Succeed())
	Eventually(func() error {
		return apiserver.Client.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "one-more"}}, client.DryRunAll)
	}).Should(MatchError(ContainSubstring("exceeded quota")))
	return quota
}

// Refuse makes the API server refuse an operation on a resource in the namespace of one
// owner's instances, or on the namespace itself, until lift is called.
func Refuse(ctx context.Context, owner, group, resource, operation string) (lift func()) {
	GinkgoHelper()
	return RefuseWhere(ctx, bergv1.LabelOwnerID, owner, group, resource, operation)
}

// RefuseWhere is Refuse for all namespaces that have a label.
func RefuseWhere(ctx context.Context, label, value, group, resource, operation string) (lift func()) {
	GinkgoHelper()
	c := apiserver.Client
	labels := map[string]string{label: value}
	probe := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: apiserver.NamespacePrefix, Labels: labels}}
	attempt := func() error { return c.Create(ctx, probe.DeepCopy(), client.DryRunAll) }
	if resource != "namespaces" || operation != "CREATE" {
		Expect(c.Create(ctx, probe)).To(Succeed())
		attempt = func() error { return c.Delete(ctx, probe, client.DryRunAll) }
	}
	if resource != "namespaces" {
		inside := apiserver.Object(probes[resource])
		inside.SetName("probe")
		inside.SetNamespace(probe.Name)
		attempt = func() error { return c.Create(ctx, inside.DeepCopy(), client.DryRunAll) }
		if operation == "UPDATE" {
			Expect(c.Create(ctx, inside)).To(Succeed())
			attempt = func() error {
				if err := c.Get(ctx, client.ObjectKeyFromObject(inside), inside); err != nil {
					return err
				}
				return c.Update(ctx, inside.DeepCopy(), client.DryRunAll)
			}
		}
	}
	return apiserver.Deny(ctx, apiserver.Denial{
		Name:  strings.Join([]string{operation, resource, value}, "-"),
		Group: group, Resources: []string{resource}, Operation: operation, Labels: labels,
	}, attempt)
}

// probes are objects that the API server accepts where nothing is refused.
var probes = map[string]string{
	"services":   `{apiVersion: v1, kind: Service, spec: {ports: [{port: 1}]}}`,
	"pods":       `{apiVersion: v1, kind: Pod, spec: {containers: [{name: a, image: a}]}}`,
	"configmaps": `{apiVersion: v1, kind: ConfigMap}`,
	"deployments": `
apiVersion: apps/v1
kind: Deployment
spec:
  selector: {matchLabels: {a: b}}
  template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: a}]}}`,
	"ciliumnetworkpolicies": `{apiVersion: cilium.io/v2, kind: CiliumNetworkPolicy, spec: {endpointSelector: {}, egress: [{toEntities: [host]}]}}`,
	"tlsroutes":             `{apiVersion: gateway.networking.k8s.io/v1, kind: TLSRoute, spec: {hostnames: [a.example.com], rules: [{backendRefs: [{name: a, port: 1}]}]}}`,
}
