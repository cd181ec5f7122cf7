package identity

import (
	"context"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// timeout is how long a request is retried while the API server fails. A process that exits
	// instead would be restarted after up to five minutes. The startup probe of the operator's pod
	// allows one minute.
	timeout  = 20 * time.Second
	interval = 500 * time.Millisecond
)

// Retry retries a request until the API server answers, for 20 seconds. A rejection is an answer too. A request that the API
// server has answered is not repeated, because the same answer would follow.
func Retry(ctx context.Context, ask func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, interval, timeout, true, func(ctx context.Context) (bool, error) {
		last = ask(ctx)
		if apierrors.IsForbidden(last) || apierrors.IsInvalid(last) || apierrors.IsNotFound(last) || meta.IsNoMatchError(last) {
			return false, last
		}
		return last == nil, nil
	})
	if wait.Interrupted(err) && last != nil {
		return last
	}
	return err
}

// May reports whether the operator has a right. Every account may ask this.
func May(ctx context.Context, c client.Client, right authorizationv1.ResourceAttributes) (allowed bool, err error) {
	err = Retry(ctx, func(ctx context.Context) error {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &right}}
		err := c.Create(ctx, review)
		allowed = review.Status.Allowed
		return err
	})
	return allowed && err == nil, err
}

// Lacks returns the first of some rights that the operator does not have, for example "patch
// challenges.berg.norelect.ch/status in namespace berg", and "" if it has them all.
func Lacks(ctx context.Context, c client.Client, needed []authorizationv1.ResourceAttributes) (string, error) {
	for _, right := range needed {
		allowed, err := May(ctx, c, right)
		if err != nil {
			return "", err
		}
		if !allowed {
			return inWords(right), nil
		}
	}
	return "", nil
}

func inWords(right authorizationv1.ResourceAttributes) string {
	text := right.Verb + " " + right.Resource
	if right.Group != "" {
		text += "." + right.Group
	}
	if right.Subresource != "" {
		text += "/" + right.Subresource
	}
	if right.Namespace != "" {
		text += " in namespace " + right.Namespace
	}
	return text
}
