package quix

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
)

// environmentNamespace returns the namespace of an Environment.
func environmentNamespace(ctx context.Context, env *quixv1.Environment) *corev1.Namespace {
	GinkgoHelper()
	ns := apiserver.Get[corev1.Namespace](ctx, client.ObjectKey{Name: env.Spec.ID + "-qdep"})
	return ns
}

func bindingKey(env *quixv1.Environment) client.ObjectKey {
	return client.ObjectKey{Namespace: env.Spec.ID + "-qdep", Name: env.Spec.ID + "-quix-crb"}
}

func environmentBinding(ctx context.Context, env *quixv1.Environment) *rbacv1.RoleBinding {
	GinkgoHelper()
	binding := apiserver.Get[rbacv1.RoleBinding](ctx, bindingKey(env))
	return binding
}

// environmentEvents returns the events about an Environment as <type>/<reason>, as often as they were recorded.
func environmentEvents(ctx context.Context, env *quixv1.Environment) []string {
	GinkgoHelper()
	events := apiserver.List[corev1.EventList](ctx, client.InNamespace(metav1.NamespaceDefault))
	var reported []string
	for _, e := range events.Items {
		if e.InvolvedObject.Kind != "Environment" || e.InvolvedObject.UID != env.UID {
			continue
		}
		Expect(e.ReportingController).To(Equal("environment-controller"))
		times := int32(1)
		if e.Series != nil {
			times = e.Series.Count
		}
		for range times {
			reported = append(reported, e.Type+"/"+e.Reason)
		}
	}
	return reported
}

// foreignNamespace creates a namespace that the operator does not manage.
func foreignNamespace(ctx context.Context, name string, labels map[string]string) *corev1.Namespace {
	GinkgoHelper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	apiserver.Create(ctx, ns)
	return ns
}

// leftAlone fails when an object has changed, or is being deleted.
func leftAlone(ctx context.Context, object client.Object) {
	GinkgoHelper()
	now := object.DeepCopyObject().(client.Object)
	Expect(k8s.Get(ctx, client.ObjectKeyFromObject(object), now)).To(Succeed())
	Expect(now.GetResourceVersion()).To(Equal(object.GetResourceVersion()), "%s was touched", object.GetName())
}
