package examples

import (
	"fmt"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/check"
)

var _ = add(family{addToScheme: bergv1.AddToScheme, tried: instancesAndChecks})

// instancesAndChecks creates the Challenges of the examples, and returns their instances and
// checks.
func instancesAndChecks(all []unstructured.Unstructured, at place) (tried []resource, _ error) {
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
		if e.GroupVersionKind().Group != bergv1.GroupVersion.Group {
			continue
		}
		var of string
		var x func(*bergv1.Challenge) resource
		switch e.GetKind() {
		case "ChallengeInstance":
			i, err := read[bergv1.ChallengeInstance](e)
			if err != nil {
				return nil, err
			}
			of, x = i.Spec.ChallengeRef.Name, func(c *bergv1.Challenge) resource { return instance(i, c) }
		case "ChallengeCheck":
			k, err := read[bergv1.ChallengeCheck](e)
			if err != nil {
				return nil, err
			}
			of, x = k.Spec.ChallengeRef.Name, func(c *bergv1.Challenge) resource { return solved(k, c) }
		default:
			continue
		}
		c := challenges[of]
		if c == nil {
			return nil, fmt.Errorf("example %s: there is no example of its Challenge %s", e.GetName(), of)
		}
		tried = append(tried, x(c))
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
			if p.Public() {
				n++
			}
		}
	}
	return n
}

// noticed is within what time an operator that makes checks tells so of a new one.
const noticed = 30 * time.Second

// solved makes the example of a ChallengeCheck one of the Challenge that stands for the example of
// its own. An operator without CHECK_CONCURRENCY looks at none, and then nothing is to be told of
// it. Whether the way of players leads anywhere is a matter of the cluster's Gateway.
func solved(k *bergv1.ChallengeCheck, c *bergv1.Challenge) resource {
	example := k.Name + "-check"
	k.ObjectMeta = metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name}
	k.Spec.ChallengeRef = bergv1.ChallengeReference{Namespace: c.Namespace, Name: c.Name}
	// Both stages, and what is taken away at the end, within the patience of a run.
	k.Spec.Timeout = "1m"
	return resource{
		Object: k, example: example,
		runs: "made", fails: "unmade",
		phase: func() string {
			switch {
			case k.Status.LastResult != nil:
				return "made"
			case len(k.Status.Conditions) == 0 && time.Since(k.CreationTimestamp.Time) > noticed:
				return "made" // checks are turned off
			default:
				return ""
			}
		},
		conditions: func() []metav1.Condition { return k.Status.Conditions },
		namespace:  func() string { return check.NamespacePrefix + string(k.UID) },
		check: func() []string {
			r := k.Status.LastResult
			if r == nil || r.Result == bergv1.CheckSolved || r.Result == bergv1.CheckUnreachable {
				return nil
			}
			return []string{fmt.Sprintf("its check has come to %s: %s", r.Result, r.Message)}
		},
		did: func() string {
			if k.Status.LastResult == nil {
				return "is-not-looked-at"
			}
			return "is-made"
		},
	}
}
