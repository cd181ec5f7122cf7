package inprocess

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"

	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/limits"
)

// Suite is what an integration suite does before its first and after its last spec.
type Suite struct {
	// Before runs when the API server is reached and everything but the operator is installed. It returns
	// variables of the operator in addition to those that all suites share. nil does nothing.
	Before func(ctx context.Context) map[string]string
	// Gone waits until no resource that a spec made is left. The operator still runs.
	Gone func(ctx context.Context)
	// Prefixes begin the names of namespaces that the operator makes: after Gone none may be left.
	Prefixes []string
}

// Register is called once in a suite, for a package variable, since Ginkgo wants its nodes before it runs.
func (s Suite) Register() bool {
	BeforeSuite(func(ctx context.Context) {
		apiserver.Begin(ctx)
		var changes map[string]string
		if s.Before != nil {
			changes = s.Before(ctx)
		}
		Begin(changes)
	}, NodeTimeout(limits.Scaled(5*time.Minute)))

	AfterSuite(func(ctx context.Context) {
		if apiserver.Client == nil {
			return
		}
		s.Gone(ctx)
		End()
		apiserver.DeleteNamespaces(ctx, s.Prefixes...)
	}, NodeTimeout(limits.Scaled(4*time.Minute)))
	return true
}
