package tunnel

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/installed"
)

var _ = Describe("Installing the operator again", Serial, func() {
	It("keeps the labels and annotations of an administrator", func(ctx context.Context) {
		marked := map[string]string{"pod-security.kubernetes.io/enforce": "privileged", "example.com/owner": "team"}
		for kind, name := range map[schema.GroupVersionKind]string{
			{Version: "v1", Kind: "Namespace"}:                                                        installed.Namespace,
			{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}:          "containernetworktunnelproxies.usvc-dev.developer.microsoft.com",
			{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"}:                  "berg-operator-tunnel",
			{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingAdmissionPolicy"}: "berg-operator-fence",
		} {
			o := &metav1.PartialObjectMetadata{}
			o.SetGroupVersionKind(kind)
			o.Name = name
			Expect(k8s.Patch(ctx, o, apiserver.RawPatch(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"privileged","example.com/owner":"team"},"annotations":{"example.com/owner":"team"}}}`))).To(Succeed())
			DeferCleanup(func(ctx context.Context) {
				Expect(k8s.Patch(ctx, o, apiserver.RawPatch(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":null,"example.com/owner":null},"annotations":{"example.com/owner":null}}}`))).To(Succeed())
			})
			Expect(installed.Definitions(ctx, k8s, "integration")).To(Succeed())
			live := &metav1.PartialObjectMetadata{}
			live.SetGroupVersionKind(kind)
			Expect(k8s.Get(ctx, client.ObjectKey{Name: name}, live)).To(Succeed())
			for key, value := range marked {
				Expect(live.Labels).To(HaveKeyWithValue(key, value), "%s %s", kind.Kind, name)
			}
			Expect(live.Annotations).To(HaveKeyWithValue("example.com/owner", "team"), "%s %s", kind.Kind, name)
		}
	})
})
