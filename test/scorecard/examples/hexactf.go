package examples

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
)

var _ = add(family{addToScheme: hexactfv1.AddToScheme, tried: hexactfChallenges})

// hexactfChallenges creates the definitions, and returns the challenges.
func hexactfChallenges(all []unstructured.Unstructured, at place) (tried []resource, _ error) {
	for _, e := range all {
		if e.GroupVersionKind().Group != hexactfv1.GroupVersion.Group {
			continue
		}
		switch e.GetKind() {
		case "ChallengeDefinition":
			d, err := read[hexactfv1.ChallengeDefinition](e)
			if err != nil {
				return nil, err
			}
			d.ObjectMeta = metav1.ObjectMeta{Namespace: at.namespace, Name: at.prefix + d.Name}
			if err := at.create(d); err != nil {
				return nil, err
			}
		case "Challenge":
			c, err := read[hexactfv1.Challenge](e)
			if err != nil {
				return nil, err
			}
			tried = append(tried, hexactfChallenge(c, at))
		}
	}
	return tried, nil
}

// hexactfChallenge gives the example of a Challenge a unique name and a unique player.
func hexactfChallenge(c *hexactfv1.Challenge, at place) resource {
	example := c.Name
	c.ObjectMeta = metav1.ObjectMeta{Namespace: at.namespace, Name: at.prefix + c.Name, Labels: c.Labels}
	c.Labels[hexactfv1.LabelUser] = at.prefix + c.Labels[hexactfv1.LabelUser]
	c.Spec.Definition = at.prefix + c.Spec.Definition
	return resource{
		Object: c, example: example,
		runs: string(hexactfv1.StateRunning), fails: string(hexactfv1.StateError),
		phase:      func() string { return string(c.Status.CurrentStatus.State) },
		conditions: func() []metav1.Condition { return c.Status.Conditions },
		// What belongs to it goes with it, by Kubernetes.
		namespace: func() string { return "" },
	}
}
