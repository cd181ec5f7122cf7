// Package hexactftest creates HexaCTF challenges and their definitions for the specs of every suite, and waits for their
// states. Expectations for resources of any kind are in package expect.
package hexactftest

import (
	"context"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/expect"
)

// Specs of ChallengeDefinitions, in YAML.
const (
	// OneComponent is reached at a node port, and lives for half an hour.
	OneComponent = `
components:
- name: web
  deployment: {spec: {template: {spec: {containers: [{name: web, image: "example.com/web:1", ports: [{containerPort: 8080}]}]}}}}
  service: {spec: {type: NodePort, ports: [{port: 80, targetPort: 8080}]}}
`
	// TwoComponents are a server that players reach, and a database that it reaches.
	TwoComponents = `
components:
- name: web
  deployment: {spec: {replicas: 2, template: {spec: {containers: [{name: web, image: "example.com/web:1"}, {name: helper, image: "example.com/helper:1"}]}}}}
  service: {spec: {type: NodePort, ports: [{port: 8080}]}}
- name: db
  deployment: {spec: {template: {spec: {containers: [{name: db, image: "example.com/db:1"}]}}}}
  service: {spec: {ports: [{port: 5432}]}}
`
)

// LabelOperator with the value allowed lets the operator create challenges in a namespace.
const LabelOperator = "apps.hexactf.io/operator"

// Namespace creates a namespace for the challenges of one spec. At its end they are deleted, and it waits until they are
// gone: in the next spec the broker may not answer.
func Namespace(ctx context.Context) string {
	GinkgoHelper()
	ns := apiserver.Namespace(ctx)
	apiserver.LabelNamespace(ctx, ns, LabelOperator, "allowed")
	DeferCleanup(func(ctx context.Context) {
		Eventually(func() error { // of hundreds, one request may take too long
			return apiserver.Client.DeleteAllOf(ctx, &hexactfv1.Challenge{}, client.InNamespace(ns))
		}).Should(Succeed())
		Eventually(func() []string {
			return apiserver.Names(ctx, &hexactfv1.ChallengeList{}, client.InNamespace(ns))
		}).Should(BeEmpty())
	})
	return ns
}

// NoneLeft waits until there is no challenge in the cluster: at the end of a suite.
func NoneLeft(ctx context.Context) {
	GinkgoHelper()
	expect.None(ctx, &hexactfv1.ChallengeList{})
}

// Definition creates a ChallengeDefinition from the YAML of its spec.
func Definition(ctx context.Context, namespace, name, spec string, modify ...func(*hexactfv1.ChallengeDefinitionSpec)) *hexactfv1.ChallengeDefinition {
	GinkgoHelper()
	d := &hexactfv1.ChallengeDefinition{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	Expect(yaml.UnmarshalStrict([]byte(spec), &d.Spec)).To(Succeed())
	for _, m := range modify {
		m(&d.Spec)
	}
	Expect(apiserver.Client.Create(ctx, d)).To(Succeed())
	return d
}

// Define creates a definition in a namespace of its own, and returns the namespace.
func Define(ctx context.Context, name, spec string, modify ...func(*hexactfv1.ChallengeDefinitionSpec)) (namespace string) {
	GinkgoHelper()
	namespace = Namespace(ctx)
	Definition(ctx, namespace, name, spec, modify...)
	return namespace
}

// Lasting makes the challenges of a definition live for a time.
func Lasting(d time.Duration) func(*hexactfv1.ChallengeDefinitionSpec) {
	return func(s *hexactfv1.ChallengeDefinitionSpec) { s.Duration = &metav1.Duration{Duration: d} }
}

// New returns a challenge of problem 42 for a player of its own, named as by the platform's API server. It does not create
// it.
func New(namespace, definition string) *hexactfv1.Challenge {
	user := "player-" + uuid.NewString()[:8]
	return &hexactfv1.Challenge{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "challenge-42-" + user,
			Labels: map[string]string{hexactfv1.LabelChallengeID: "42", hexactfv1.LabelUser: user},
		},
		Spec: hexactfv1.ChallengeSpec{Definition: definition, Namespace: namespace},
	}
}

// Challenge creates one.
func Challenge(ctx context.Context, namespace, definition string, modify ...func(*hexactfv1.Challenge)) *hexactfv1.Challenge {
	GinkgoHelper()
	c := New(namespace, definition)
	for _, m := range modify {
		m(c)
	}
	Expect(apiserver.Client.Create(ctx, c)).To(Succeed())
	return c
}

// Reaches waits until a challenge is in a state, and refreshes it.
func Reaches(ctx context.Context, c *hexactfv1.Challenge, state hexactfv1.State) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(apiserver.Client.Get(ctx, client.ObjectKeyFromObject(c), c)).To(Succeed())
		g.Expect(c.Status.CurrentStatus.State).To(Equal(state), "%s; conditions: %s", c.Status.CurrentStatus.ErrorMsg, expect.Conditions(c))
	}).Should(Succeed())
}

// Delete deletes a challenge, if it exists.
func Delete(ctx context.Context, c *hexactfv1.Challenge) {
	GinkgoHelper()
	err := apiserver.Client.Delete(ctx, c.DeepCopy())
	if !apierrors.IsNotFound(err) {
		Expect(err).NotTo(HaveOccurred())
	}
}
