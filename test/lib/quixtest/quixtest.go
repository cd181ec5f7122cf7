// Package quixtest creates Environments for the specs of every suite. Expectations are in package expect.
package quixtest

import (
	"context"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/expect"
)

// NewID returns an ID that no other spec uses.
func NewID() string { return "it-" + uuid.NewString()[:8] }

// Environment creates an Environment. It is deleted at the end of the spec, and the suite waits until all are gone.
func Environment(ctx context.Context, id string, modify ...func(*quixv1.Environment)) *quixv1.Environment {
	GinkgoHelper()
	env := &quixv1.Environment{
		ObjectMeta: metav1.ObjectMeta{GenerateName: apiserver.NamespacePrefix},
		Spec:       quixv1.EnvironmentSpec{ID: id},
	}
	for _, m := range modify {
		m(env)
	}
	Expect(apiserver.Client.Create(ctx, env)).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		Expect(client.IgnoreNotFound(apiserver.Client.Delete(ctx, env.DeepCopy()))).To(Succeed())
	})
	return env
}

// Ready creates an Environment with an ID of its own, and waits until it is Ready.
func Ready(ctx context.Context) *quixv1.Environment {
	GinkgoHelper()
	env := Environment(ctx, NewID())
	expect.Settles(ctx, env, quixv1.PhaseReady)
	return env
}

// NoneLeft waits until there is no Environment in the cluster: at the end of a suite.
func NoneLeft(ctx context.Context) {
	GinkgoHelper()
	expect.None(ctx, &quixv1.EnvironmentList{})
}
