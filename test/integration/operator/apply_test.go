package operator

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
)

// gadgets are a Kind of their own, without a status subresource and with a default.
const gadgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.kit.example.com}
spec:
  group: kit.example.com
  scope: Namespaced
  names: {plural: gadgets, singular: gadget, kind: Gadget, listKind: GadgetList}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              size: {type: integer, maximum: 9}
              share: {type: number}
              colour: {type: string, default: red}
              extra: {type: string}
              parts: {type: array, items: {type: object, x-kubernetes-preserve-unknown-fields: true}}
              form:
                type: string
                x-kubernetes-validations: [{rule: self == oldSelf, message: it is cast in iron}]
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
`

func gadget(namespace string, modify ...func(spec map[string]any)) *unstructured.Unstructured {
	spec := map[string]any{
		"size": int64(3), "share": 0.5, "form": "round",
		"parts": []any{map[string]any{"name": "wheel", "count": int64(4)}},
	}
	for _, m := range modify {
		m(spec)
	}
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "kit.example.com/v1", "kind": "Gadget",
		"metadata": map[string]any{"namespace": namespace, "name": "gadget"}, "spec": spec,
	}}
	return u
}

// applier is a family's: it applies for another custom resource in each namespace.
type applier struct {
	apply.Writer
	marks ownership.Labels
}

func newApplier() applier {
	return applier{
		Writer: apply.Writer{Client: k8s, Live: k8s, Manager: "kit", DriftBackoff: apply.NewDriftBackoff(clock.RealClock{})},
		marks:  ownership.Labels{Domain: "kit.example.com", Owner: "owner", Found: map[string]string{"kit.example.com/managed-by": "kit"}},
	}
}

func (a applier) proof(namespace string) ownership.Owner {
	return a.marks.For(types.UID(namespace), nil)
}

func (a applier) apply(ctx context.Context, desired client.Object) (client.Object, error) {
	return apply.Apply(ctx, a.Writer, a.proof(desired.GetNamespace()), desired)
}

// restarted has forgotten what it wrote.
func (a applier) restarted() applier {
	a.DriftBackoff = apply.NewDriftBackoff(clock.RealClock{})
	return a
}

// What the kit promises of any kind of object, and no family uses as yet.
var _ = Describe("An object whose type is not known", Label("versions"), func() {
	var kit applier
	BeforeEach(func(ctx context.Context) {
		kit = newApplier()
		apiserver.InstallDefinition(ctx, apiserver.Object(gadgets))
	})
	applied := func(ctx context.Context, desired *unstructured.Unstructured) *unstructured.Unstructured {
		GinkgoHelper()
		live, err := kit.apply(ctx, desired)
		Expect(err).NotTo(HaveOccurred())
		return live.(*unstructured.Unstructured)
	}

	It("is created once and left alone while it is right", func(ctx context.Context) {
		ns := apiserver.Namespace(ctx)
		first := applied(ctx, gadget(ns))
		Expect(first.GetLabels()).To(HaveKeyWithValue("kit.example.com/managed-by", "kit"))
		Expect(first.GetAnnotations()).To(HaveKeyWithValue("kit.example.com/owner-uid", ns))
		colour, _, _ := unstructured.NestedString(first.Object, "spec", "colour")
		Expect(colour).To(Equal("red"), "the API server fills in no default")
		Expect(applied(ctx, gadget(ns)).GetResourceVersion()).To(Equal(first.GetResourceVersion()))
	})

	DescribeTable("is put back after a change by hand", func(ctx context.Context, patch string) {
		ns := apiserver.Namespace(ctx)
		before := applied(ctx, gadget(ns))
		Expect(k8s.Patch(ctx, before.DeepCopy(), apiserver.RawPatch(`{"status":{"by":"others"}}`), client.FieldOwner("kubectl"))).To(Succeed())
		Expect(k8s.Patch(ctx, before.DeepCopy(), apiserver.RawPatch(patch), client.FieldOwner("kubectl"))).To(Succeed())
		after := applied(ctx, gadget(ns))
		Expect(after.Object["spec"]).To(Equal(before.Object["spec"]))
		Expect(after.GetUID()).To(Equal(before.GetUID()))
		Expect(after.Object).To(HaveKeyWithValue("status", HaveKeyWithValue("by", "others")))
		Expect(applied(ctx, gadget(ns)).GetResourceVersion()).To(Equal(after.GetResourceVersion()), "it is found again")
	},
		Entry("of a number", `{"spec":{"size":4}}`),
		Entry("of a fraction", `{"spec":{"share":0.25}}`),
		Entry("of a list", `{"spec":{"parts":[]}}`),
		Entry("inside a list", `{"spec":{"parts":[{"name":"wheel","count":5}]}}`),
		Entry("of a default", `{"spec":{"colour":"blue"}}`),
		Entry("of a field that no plan mentions", `{"spec":{"extra":"1"}}`),
	)

	It("is refused when it belongs to another owner", func(ctx context.Context) {
		ns := apiserver.Namespace(ctx)
		Expect(k8s.Create(ctx, gadget(ns))).To(Succeed())
		_, err := kit.apply(ctx, gadget(ns))
		Expect(err).To(BeAssignableToTypeOf(&ownership.RefusedError{}))
	})

	It("is pruned when no step wants it, and others stay", func(ctx context.Context) {
		ns := apiserver.Namespace(ctx)
		applied(ctx, gadget(ns))
		other := gadget(ns)
		other.SetName("others")
		Expect(k8s.Create(ctx, other)).To(Succeed())
		config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "config"}}

		steps := func(configs ...*corev1.ConfigMap) []apply.Step {
			return []apply.Step{{Condition: "Configured", Objects: []apply.Set{apply.All(configs)}}}
		}
		all := &unstructured.UnstructuredList{}
		all.SetGroupVersionKind(gadget(ns).GroupVersionKind().GroupVersion().WithKind(gadget(ns).GetKind() + "List"))
		Expect(apply.Prune(ctx, kit.Writer, kit.proof(ns), all, ns, func(types.NamespacedName) bool { return false })).To(Succeed())
		Expect(apply.Steps(ctx, kit.Writer, kit.proof(ns), ns, steps(config))).To(BeEmpty())
		Expect(apierrors.IsNotFound(k8s.Get(ctx, client.ObjectKeyFromObject(gadget(ns)), gadget(ns)))).To(BeTrue())
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(other), other)).To(Succeed())
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(config), config)).To(Succeed())
		Expect(apply.Steps(ctx, kit.Writer, kit.proof(ns), ns, steps())).To(BeEmpty())
		Expect(apierrors.IsNotFound(k8s.Get(ctx, client.ObjectKeyFromObject(config), config))).To(BeTrue())
	})
})

var _ = Describe("What the API server refuses to change", Label("versions"), func() {
	var kit, replacing applier
	BeforeEach(func(ctx context.Context) {
		kit = newApplier()
		replacing = kit
		replacing.Replace = true
		apiserver.InstallDefinition(ctx, apiserver.Object(gadgets))
	})
	in := func(ns string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: ns, Name: "it"} }
	template := func(app string) corev1.PodTemplateSpec {
		return corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}},
			Spec:       corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "example.com/" + app}}},
		}
	}

	DescribeTable("is replaced where the caller says so, and only there", func(ctx context.Context, object func(ns, variant string) client.Object) {
		ns := apiserver.Namespace(ctx)
		before, err := kit.apply(ctx, object(ns, "a"))
		Expect(err).NotTo(HaveOccurred())

		_, err = kit.apply(ctx, object(ns, "b"))
		Expect(apierrors.IsInvalid(err)).To(BeTrue(), "error %v", err)
		now := object(ns, "a")
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(now), now)).To(Succeed())
		Expect(now.GetUID()).To(Equal(before.GetUID()))
		Expect(now.GetGeneration()).To(Equal(before.GetGeneration()), "it was changed")

		wanted := object(ns, "b")
		var after client.Object
		Eventually(func(g Gomega) { // finalizers may hold the old one for a moment, and its node port
			after, err = replacing.apply(ctx, wanted)
			g.Expect(err).NotTo(HaveOccurred())
		}).Should(Succeed())
		Expect(after.GetUID()).NotTo(Equal(before.GetUID()))
		checksum := apply.ChecksumAnnotation(kit.marks.Annotation())
		Expect(after.GetAnnotations()).To(HaveKeyWithValue(checksum, wanted.GetAnnotations()[checksum]))

		By("a restart")
		restarted := replacing.restarted()
		for range 2 {
			again, err := restarted.apply(ctx, object(ns, "b"))
			Expect(err).NotTo(HaveOccurred())
			Expect(again.GetUID()).To(Equal(after.GetUID()), "it is replaced though nothing has changed")
		}
	},
		Entry("the selector of a Deployment", func(ns, variant string) client.Object {
			return &appsv1.Deployment{ObjectMeta: in(ns), Spec: appsv1.DeploymentSpec{
				Replicas: ptr.To[int32](0), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": variant}},
				Template: func() corev1.PodTemplateSpec {
					t := template(variant)
					t.Spec.RestartPolicy = corev1.RestartPolicyAlways
					return t
				}(),
			}}
		}),
		Entry("the template of a Job", func(ns, variant string) client.Object {
			return &batchv1.Job{ObjectMeta: in(ns), Spec: batchv1.JobSpec{Suspend: ptr.To(true), Template: template(variant)}}
		}),
		Entry("the type of a Secret", func(ns, variant string) client.Object {
			return &corev1.Secret{ObjectMeta: in(ns), Type: corev1.SecretType("example.com/" + variant)}
		}),
		Entry("an immutable Secret", func(ns, variant string) client.Object {
			return &corev1.Secret{ObjectMeta: in(ns), Immutable: ptr.To(true), Data: map[string][]byte{"k": []byte(variant)}}
		}),
		Entry("an immutable ConfigMap", func(ns, variant string) client.Object {
			return &corev1.ConfigMap{ObjectMeta: in(ns), Immutable: ptr.To(true), Data: map[string]string{"k": variant}}
		}),
		Entry("the address of a Service", func(ns, variant string) client.Object {
			s := &corev1.Service{ObjectMeta: in(ns), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
			if variant == "b" {
				s.Spec.ClusterIP = corev1.ClusterIPNone
			}
			return s
		}),
		Entry("the class of a Service, which asks for the node port that it has", func(ns, variant string) client.Object {
			// The API server allots none below 30086 itself, as long as there are others.
			return &corev1.Service{ObjectMeta: in(ns), Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: ptr.To("example.com/" + variant),
				Ports: []corev1.ServicePort{{Port: 80, NodePort: 30007}},
			}}
		}),
		Entry("the role of a RoleBinding", func(ns, variant string) client.Object {
			return &rbacv1.RoleBinding{ObjectMeta: in(ns), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: variant}}
		}),
		Entry("a field of a custom resource", func(ns, variant string) client.Object {
			return gadget(ns, func(spec map[string]any) { spec["form"] = variant })
		}),
	)

	It("stays when what is wanted is not valid itself", func(ctx context.Context) {
		ns := apiserver.Namespace(ctx)
		before, err := replacing.apply(ctx, gadget(ns))
		Expect(err).NotTo(HaveOccurred())
		for _, size := range []int64{10, 1 << 40} {
			_, err = replacing.apply(ctx, gadget(ns, func(spec map[string]any) { spec["form"], spec["size"] = "square", size }))
			Expect(apierrors.IsInvalid(err)).To(BeTrue(), "error %v", err)
		}
		now := gadget(ns)
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(now), now)).To(Succeed())
		Expect(now.GetUID()).To(Equal(before.GetUID()))
	})

	It("is not created before its finalizers are gone", func(ctx context.Context) {
		ns := apiserver.Namespace(ctx)
		before, err := kit.apply(ctx, gadget(ns))
		Expect(err).NotTo(HaveOccurred())
		Expect(k8s.Patch(ctx, gadget(ns), apiserver.RawPatch(`{"metadata":{"finalizers":["example.com/kept"]}}`))).To(Succeed())
		square := func() *unstructured.Unstructured {
			return gadget(ns, func(spec map[string]any) { spec["form"] = "square" })
		}
		for range 2 {
			_, err = replacing.apply(ctx, square())
			Expect(err).To(BeAssignableToTypeOf(&apply.TerminatingError{}))
		}
		apiserver.RemoveFinalizers(ctx, gadget(ns))
		after, err := replacing.apply(ctx, square())
		Expect(err).NotTo(HaveOccurred())
		Expect(after.GetUID()).NotTo(Equal(before.GetUID()))
	})
})
