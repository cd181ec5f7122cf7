package status

import (
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// NewProblem returns the problem for a failed write; nil for no error. namespace is the operator's namespace.
func NewProblem(on string, err error, namespace string) *outcome.Problem {
	p := outcome.NewProblem(on, err)
	if p == nil {
		return nil
	}
	if p.Class == outcome.Waiting {
		// Secrets are not watched, so that no event triggers the next reconciliation.
		p.Reason, p.Err = tunnelv1.ReasonTerminating, outcome.ErrConflict
	}
	var host *hostError
	if apierrors.IsForbidden(err) && errors.As(err, &host) {
		p.Reason = tunnelv1.ReasonHostRightsMissing
		if strings.Contains(err.Error(), "violates PodSecurity") {
			p.Message = fmt.Sprintf("The operator's namespace %[1]s enforces a Pod Security level that admits no pod in the network of a node: "+
				"kubectl label namespace %[1]s pod-security.kubernetes.io/enforce=privileged --overwrite: %[2]s", namespace, err)
			return p
		}
		p.Message = fmt.Sprintf("The operator lacks rights in its own namespace %s: an administrator must apply config/tunnel/host: %s", namespace, err)
	}
	return p
}

// hostError is an error about an object in the operator's own namespace.
type hostError struct{ error }

func (e *hostError) Unwrap() error { return e.error }

// InOwnNamespace wraps an error about an object in the operator's own namespace.
func InOwnNamespace(err error) error {
	if err == nil {
		return nil
	}
	return &hostError{err}
}
