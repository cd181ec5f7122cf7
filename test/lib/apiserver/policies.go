package apiserver

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// RemovePolicy deletes a ValidatingAdmissionPolicy and its binding of the same name until restore is called, at the latest until the
// spec ends.
func RemovePolicy(ctx context.Context, name string) (restore func()) {
	GinkgoHelper()
	policy, binding := &admissionregistrationv1.ValidatingAdmissionPolicy{}, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
	objects := []client.Object{policy, binding}
	for _, o := range objects {
		Expect(Client.Get(ctx, client.ObjectKey{Name: name}, o)).To(Succeed())
	}
	restore = func() {
		GinkgoHelper()
		for _, o := range objects {
			again := o.DeepCopyObject().(client.Object)
			again.SetResourceVersion("")
			again.SetUID("")
			if err := Client.Create(context.Background(), again); !apierrors.IsAlreadyExists(err) {
				Expect(err).NotTo(HaveOccurred())
			}
		}
	}
	DeferCleanup(restore)
	for _, o := range objects {
		Expect(Client.Delete(ctx, o.DeepCopyObject().(client.Object))).To(Succeed())
	}
	return restore
}
