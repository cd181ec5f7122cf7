package integration

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
)

// The operator in this process is this account and nobody else: it has the rights
// that config/default gives it, so that the API server finds out what is missing.
const operatorUser = "system:serviceaccount:" + operatorNamespace + ":" + operatorAccount

// may asks the API server whether a user is allowed something.
func may(ctx context.Context, user string, what authorizationv1.ResourceAttributes) bool {
	GinkgoHelper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:               user,
		Groups:             []string{"system:serviceaccounts", "system:authenticated"},
		ResourceAttributes: &what,
	}}
	Expect(k8s.Create(ctx, review)).To(Succeed())
	return review.Status.Allowed
}
