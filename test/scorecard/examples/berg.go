package examples

import (
	"fmt"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

var _ = add(family{addToScheme: bergv1.AddToScheme, tried: instances})

// instances creates the Challenges of the examples, and returns their instances.
func instances(all []unstructured.Unstructured, at place) (tried []resource, _ error) {
	challenges := map[string]*bergv1.Challenge{}
	for _, e := range all {
		if e.GetKind() == "Challenge" && e.GroupVersionKind().Group == bergv1.GroupVersion.Group {
			c, err := read[bergv1.Challenge](e)
			if err != nil {
				return nil, err
			}
			c.ObjectMeta = metav1.ObjectMeta{Namespace: at.namespace, Name: at.prefix + e.GetName()}
			if err := at.create(c); err != nil {
				return nil, err
			}
			challenges[e.GetName()] = c
		}
	}
	for _, e := range all {
		if e.GetKind() == "ChallengeInstance" && e.GroupVersionKind().Group == bergv1.GroupVersion.Group {
			i, err := read[bergv1.ChallengeInstance](e)
			if err != nil {
				return nil, err
			}
			c := challenges[i.Spec.ChallengeRef.Name]
			if c == nil {
				return nil, fmt.Errorf("example %s: there is no example of its Challenge %s", e.GetName(), i.Spec.ChallengeRef.Name)
			}
			tried = append(tried, instance(i, c))
		}
	}
	return tried, nil
}

// instance makes the example of an instance one of the Challenge that stands for
// the example of its own.
func instance(i *bergv1.ChallengeInstance, c *bergv1.Challenge) resource {
	example := i.Name
	i.ObjectMeta = metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name}
	i.Spec.ChallengeRef = bergv1.ChallengeReference{Namespace: c.Namespace, Name: c.Name}
	i.Spec.OwnerID = uuid.NewString()
	return resource{
		Object: i, example: example,
		runs: string(bergv1.PhaseRunning), fails: string(bergv1.PhaseFailed),
		phase:      func() string { return string(i.Status.Phase) },
		conditions: func() []metav1.Condition { return i.Status.Conditions },
		namespace:  func() string { return i.Status.Namespace },
		check: func() []string {
			if got, want := len(i.Status.Services), publicPorts(c); got != want {
				return []string{fmt.Sprintf("status.services has %d entries, its Challenge has %d ports that are not internal", got, want)}
			}
			return nil
		},
	}
}

func publicPorts(c *bergv1.Challenge) int {
	n := 0
	for _, container := range c.Spec.Containers {
		for _, p := range container.Ports {
			if p.Type != "" && p.Type != bergv1.InternalPort {
				n++
			}
		}
	}
	return n
}
