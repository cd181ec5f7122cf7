package bergtest

import (
	"context"
	"encoding/json"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/installed"
)

// Blank returns an object of the kind of another that is only a key, without the
// Go type, which would hide fields that it does not know.
func Blank(object client.Object, key client.ObjectKey) *unstructured.Unstructured {
	GinkgoHelper()
	gvk, err := apiutil.GVKForObject(object, apiserver.Client.Scheme())
	Expect(err).NotTo(HaveOccurred())
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	u.SetNamespace(key.Namespace)
	u.SetName(key.Name)
	return u
}

// PodsByContainer returns the UID of each container's pod.
func PodsByContainer(ctx context.Context, i *bergv1.ChallengeInstance) map[string]types.UID {
	GinkgoHelper()
	var list corev1.PodList
	Expect(apiserver.Client.List(ctx, &list, client.InNamespace(i.Status.Namespace))).To(Succeed())
	out := map[string]types.UID{}
	for _, p := range list.Items {
		if p.DeletionTimestamp == nil {
			out[p.Labels[bergv1.LabelContainer]] = p.UID
		}
	}
	return out
}

// VariablesOf returns the environment variables of the container of a Deployment.
func VariablesOf(ctx context.Context, namespace, deployment string) map[string]string {
	GinkgoHelper()
	var d appsv1.Deployment
	Expect(apiserver.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: deployment}, &d)).To(Succeed())
	out := map[string]string{}
	for _, e := range d.Spec.Template.Spec.Containers[0].Env {
		out[e.Name] = e.Value
	}
	return out
}

// Hold blocks the deletion of a namespace, by an object with a finalizer, until release
// is called.
func Hold(ctx context.Context, namespace string) (release func()) {
	GinkgoHelper()
	held := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "held", Finalizers: []string{"example.com/hold"}}}
	Expect(apiserver.Client.Create(ctx, held)).To(Succeed())
	release = func() {
		before := held.DeepCopy()
		held.Finalizers = nil
		Expect(client.IgnoreNotFound(apiserver.Client.Patch(context.Background(), held, client.MergeFrom(before)))).To(Succeed())
	}
	DeferCleanup(release)
	return release
}

// BytesOf returns objects as the API server has them.
func BytesOf(ctx context.Context, objects ...client.Object) string {
	GinkgoHelper()
	var all []string
	for _, o := range objects {
		gvk, err := apiserver.Client.GroupVersionKindFor(o)
		Expect(err).NotTo(HaveOccurred())
		raw := &unstructured.Unstructured{}
		raw.SetGroupVersionKind(gvk)
		Expect(apiserver.Client.Get(ctx, client.ObjectKeyFromObject(o), raw)).To(Succeed())
		data, err := json.Marshal(raw.Object)
		Expect(err).NotTo(HaveOccurred())
		all = append(all, string(data))
	}
	return fmt.Sprint(all)
}

// PullSecretSource makes the configured pull secret in the operator's namespace.
func PullSecretSource(ctx context.Context, registry string) *corev1.Secret {
	GinkgoHelper()
	source := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: installed.Namespace, Name: "registry"},
		Type:       corev1.SecretTypeDockerConfigJson,
		Data:       map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{"` + registry + `":{}}}`)},
	}
	Expect(apiserver.Client.Create(ctx, source)).To(Succeed())
	DeferCleanup(func(ctx context.Context) { Expect(apiserver.Client.Delete(ctx, source)).To(Succeed()) })
	return source
}

// Named is the metadata of a cluster-scoped object, and NamedIn of one in a namespace.
func Named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

// NamedIn is the metadata of an object in a namespace.
func NamedIn(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}
