package challenge

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// endingCluster is a cluster with an isolated challenge that is being deleted.
type endingCluster struct {
	client.Client
	*Reconciler
	challenge *hexactfv1.Challenge
	in        Inputs
}

func newEnding(t *testing.T) endingCluster {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{hexactfv1.AddToScheme, corev1.AddToScheme, appsv1.AddToScheme, networkingv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	in := testInputs(testConfig(t, nil), newComponent("web", corev1.ServiceTypeNodePort, 80), newComponent("db", ""))
	raw, err := in.Snapshot.raw()
	if err != nil {
		t.Fatal(err)
	}
	c := &hexactfv1.Challenge{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: in.Name.Namespace, Name: in.Name.Name, UID: in.UID, Finalizers: []string{hexactfv1.Finalizer},
			DeletionTimestamp: &metav1.Time{Time: noon},
		},
		Status: hexactfv1.ChallengeStatus{ChallengeID: in.Identity.ChallengeID, User: in.Identity.User, DefinitionSnapshot: raw},
	}
	objects := []client.Object{c}
	p := plan(in)
	for _, d := range p.Deployments {
		ownerFor(c).SetOn(d)
		objects = append(objects, d)
	}
	e := endingCluster{challenge: c, in: in}
	e.Client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithIndex(&corev1.Pod{}, indexPartOf, func(o client.Object) []string { return []string{o.GetLabels()[hexactfv1.LabelPartOf]} }).Build()
	e.Reconciler = &Reconciler{Access: reconcile.Access{
		Client: e.Client, Writer: apply.Writer{Client: e.Client, Live: e.Client, Manager: "test"},
		Events: events.NewFakeRecorder(100), Clock: clocktesting.NewFakePassiveClock(noon),
	}, Config: in.Config}
	return e
}

// create creates a pod of the challenge with a name.
func (e endingCluster) create(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: e.in.Name.Namespace, Name: name, Labels: map[string]string{hexactfv1.LabelPartOf: partOfLabel(e.in.Name.Name)},
	}}
	if err := e.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

// stops reconciles once, and compares whether the challenge has stopped, and how many policies there are.
func (e endingCluster) stops(t *testing.T, moment string, want bool, policies int) []networkingv1.NetworkPolicy {
	t.Helper()
	stopped, err := e.stop(t.Context(), e.challenge)
	if err != nil || stopped != want {
		t.Fatalf("%s: stopped %v, %v; want %v", moment, stopped, err, want)
	}
	var all networkingv1.NetworkPolicyList
	if err := e.List(t.Context(), &all); err != nil || len(all.Items) != policies {
		t.Fatalf("%s: %d network policies, %v; want %d", moment, len(all.Items), err, policies)
	}
	return all.Items
}

func TestPoliciesOutliveThePods(t *testing.T) {
	e := newEnding(t)
	pod := e.create(t, "web")
	all := e.stops(t, "at the beginning", false, 2)
	e.stops(t, "with zero replicas", false, 2)
	if err := e.Delete(t.Context(), &all[0]); err != nil {
		t.Fatal(err)
	}
	e.stops(t, "after a policy was deleted", false, 2)
	if err := e.Delete(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	e.stops(t, "without a pod", true, 0)
	e.stops(t, "a second time", true, 0)
}

// A Deployment that is deleted in the foreground is not scaled any more, and its ReplicaSet may create a pod until that is deleted.
func TestPoliciesOutliveADeploymentThatIsDeletedInTheForeground(t *testing.T) {
	e := newEnding(t)
	key := client.ObjectKey{Namespace: e.in.Name.Namespace, Name: e.in.prefix("web") + deploymentSuffix}
	d := &appsv1.Deployment{}
	if err := e.Get(t.Context(), key, d); err != nil {
		t.Fatal(err)
	}
	d.Finalizers = []string{metav1.FinalizerDeleteDependents}
	if err := e.Update(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	if err := e.Delete(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	e.stops(t, "at the beginning", false, 2)
	e.stops(t, "while the Deployment is there", false, 2)
	if err := e.Get(t.Context(), key, d); err != nil {
		t.Fatal(err)
	}
	d.Finalizers = nil
	if err := e.Update(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	e.stops(t, "without the Deployment", true, 0)
}

// The policies of a challenge whose finalizer was removed by hand confine its pods until they are gone.
func TestOrphanedPoliciesAreReleasedAfterTheirPods(t *testing.T) {
	e := newEnding(t)
	pod := e.create(t, "web")
	former := networkPolicies(e.in)
	for _, p := range former {
		OwnershipLabels.For("former", nil).SetOn(p)
		if err := e.Create(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	released := func() bool {
		refused := &ownership.RefusedError{Kind: "NetworkPolicy", Namespace: former[0].Namespace, Name: former[0].Name}
		if found := e.otherOwner(t.Context(), e.challenge, plan(e.in), refused); !found.Terminating {
			t.Fatal("it does not wait for the policies")
		}
		return !slices.ContainsFunc(former, func(p *networkingv1.NetworkPolicy) bool {
			live := &networkingv1.NetworkPolicy{}
			return e.Get(t.Context(), client.ObjectKeyFromObject(p), live) != nil || len(live.OwnerReferences) == 0
		})
	}
	if released() {
		t.Error("the garbage collector gets the policies while a pod is left")
	}
	if err := e.Delete(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if !released() {
		t.Error("the garbage collector does not get the policies")
	}
}

// No network policy has an owner reference: the message names its challenge all the same.
func TestTheChallengeOfANetworkPolicyIsNamed(t *testing.T) {
	e := newEnding(t)
	other := &hexactfv1.Challenge{ObjectMeta: metav1.ObjectMeta{Namespace: e.in.Name.Namespace, Name: "other", UID: "other"}}
	in := e.in
	in.Name.Name = other.Name
	policy := networkPolicies(in)[0]
	ownerFor(other).SetOn(policy)
	for _, o := range []client.Object{other, policy} {
		if err := e.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	found := e.otherOwner(t.Context(), e.challenge, plan(e.in), &ownership.RefusedError{Kind: "NetworkPolicy", Namespace: policy.Namespace, Name: policy.Name})
	if found.Challenge == nil || found.Challenge.Name != other.Name {
		t.Errorf("the owner is %+v", found)
	}
}
