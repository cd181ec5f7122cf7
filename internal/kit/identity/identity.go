// Package identity finds out who the operator is to the API server, and which rights it has. The
// operator creates bindings for itself in new namespaces. Such a binding must name the
// ServiceAccount that it was installed with, which may have any name, or the user who runs it on a
// laptop.
package identity

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	clientauthenticationv1 "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

// Identity asks the API server once, at the first use: an operator without such bindings sends no
// request.
type Identity struct {
	client clientauthenticationv1.SelfSubjectReviewsGetter

	mu    sync.Mutex
	known *rbacv1.Subject
}

// New returns an Identity that has not sent a request yet.
func New(config *rest.Config, via *http.Client) (*Identity, error) {
	c, err := clientauthenticationv1.NewForConfigAndClient(config, via)
	if err != nil {
		return nil, err
	}
	return &Identity{client: c}, nil
}

// Subject returns the operator as the subject of a binding. After an error of the API server the
// next call asks again. The lock is held during the request: callers that come together wait for one answer.
func (s *Identity) Subject(ctx context.Context) (rbacv1.Subject, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known != nil {
		return *s.known, nil
	}
	review, err := s.client.SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return rbacv1.Subject{}, fmt.Errorf("ask the API server who the operator is: %w", err)
	}
	s.known = ptr.To(parseSubject(review.Status.UserInfo.Username))
	return *s.known, nil
}

func parseSubject(username string) rbacv1.Subject {
	if account, ok := strings.CutPrefix(username, "system:serviceaccount:"); ok {
		if namespace, name, ok := strings.Cut(account, ":"); ok {
			return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
		}
	}
	return rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: username}
}

// WhenGranted calls do, which needs a right that a binding granted a moment ago. It tries again while the right is missing:
// an API server learns of a binding by a watch, and a second API server learns of the binding later than the server that stored it.
// The delays between attempts grow from 5 ms: seven attempts take 0.3 s, nine 1.3 s. It returns the error of the last
// attempt.
func WhenGranted(ctx context.Context, attempts int, do func() error) error {
	var last error
	delays := wait.Backoff{Duration: 5 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: attempts}
	err := wait.ExponentialBackoffWithContext(ctx, delays, func(context.Context) (bool, error) {
		last = do()
		if LacksRight(last) {
			return false, nil
		}
		return true, last
	})
	if last != nil {
		return last
	}
	return err
}

// LacksRight distinguishes a missing right from other refusals with the same code, which have a cause: a namespace that is being
// deleted forbids creations, and an admission policy refuses. Trying again would not help. Both kinds are 403. Only a missing
// right is worth waiting for after a binding.
func LacksRight(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsForbidden(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details == nil || len(details.Causes) == 0
}
