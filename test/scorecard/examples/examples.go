// Package examples starts the examples of the bundle on a cluster, and sees to it
// that they run, say only what the documentation knows, and leave nothing behind.
package examples

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// glance is the time between two looks at an instance.
const glance = 500 * time.Millisecond

// Run is one run of the examples.
type Run struct {
	// Client needs the rights in config/scorecard/rbac.
	Client client.Client
	// Namespace to run them in, whatever they say themselves.
	Namespace string
	// Patience bounds how long an instance may take to start, and to go.
	Patience time.Duration
	// Documentation is the text that must name every condition and reason.
	Documentation string
}

// Outcome is what became of the example of an instance.
type Outcome struct {
	// Name of the example.
	Name string
	// Problems, one line each; none if all went well.
	Problems []string
}

// Try runs the examples, all at the same time, and removes them again.
func (r Run) Try(ctx context.Context, examples []unstructured.Unstructured) ([]Outcome, error) {
	// Names of its own, because the examples may be installed already.
	prefix := "scorecard-" + uuid.NewString()[:8] + "-"
	challenges := map[string]*bergv1.Challenge{}
	defer func() {
		for _, c := range challenges {
			_ = r.Client.Delete(context.WithoutCancel(ctx), c)
		}
	}()
	var instances []*bergv1.ChallengeInstance
	for _, e := range examples {
		switch e.GetKind() {
		case "Challenge":
			c := &bergv1.Challenge{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(e.Object, c, true); err != nil {
				return nil, fmt.Errorf("example %s: %w", e.GetName(), err)
			}
			name := c.Name
			c.ObjectMeta = metav1.ObjectMeta{Namespace: r.Namespace, Name: prefix + name}
			if err := r.Client.Create(ctx, c); err != nil {
				return nil, fmt.Errorf("create the Challenge %s: %w", name, err)
			}
			challenges[name] = c
		case "ChallengeInstance":
			i := &bergv1.ChallengeInstance{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(e.Object, i, true); err != nil {
				return nil, fmt.Errorf("example %s: %w", e.GetName(), err)
			}
			instances = append(instances, i)
		}
	}
	if len(instances) == 0 {
		return nil, errors.New("there is no example of a ChallengeInstance")
	}

	results := make(chan Outcome)
	for _, i := range instances {
		name := i.Name // try gives it another
		go func() { results <- Outcome{name, r.try(ctx, i, challenges[i.Spec.ChallengeRef.Name])} }()
	}
	var outcomes []Outcome
	for range instances {
		outcomes = append(outcomes, <-results)
	}
	slices.SortFunc(outcomes, func(a, b Outcome) int { return strings.Compare(a.Name, b.Name) })
	return outcomes, nil
}

// try runs one instance from its creation to its end.
func (r Run) try(ctx context.Context, i *bergv1.ChallengeInstance, c *bergv1.Challenge) (problems []string) {
	if c == nil {
		return []string{fmt.Sprintf("there is no example of its Challenge %s", i.Spec.ChallengeRef.Name)}
	}
	i.ObjectMeta = metav1.ObjectMeta{Namespace: r.Namespace, Name: c.Name}
	i.Spec.ChallengeRef = bergv1.ChallengeReference{Namespace: c.Namespace, Name: c.Name}
	i.Spec.OwnerID = uuid.NewString()
	if err := r.Client.Create(ctx, i); err != nil {
		return []string{fmt.Sprintf("create: %v", err)}
	}
	// Also when something went wrong on the way.
	defer func() { problems = append(problems, r.remove(context.WithoutCancel(ctx), i)...) }()

	err := wait.PollUntilContextTimeout(ctx, glance, r.Patience, true, func(ctx context.Context) (bool, error) {
		if err := r.Client.Get(ctx, client.ObjectKeyFromObject(i), i); err != nil {
			return false, err
		}
		return i.Status.Phase == bergv1.PhaseRunning || i.Status.Phase == bergv1.PhaseFailed, nil
	})
	if err != nil || i.Status.Phase != bergv1.PhaseRunning {
		problems = append(problems, fmt.Sprintf("does not run: phase %s (%v): %s", i.Status.Phase, err, untrue(i)))
	} else if got, want := len(i.Status.Services), publicPorts(c); got != want {
		problems = append(problems, fmt.Sprintf("status.services has %d entries, its Challenge has %d ports that are not internal", got, want))
	}

	var events eventsv1.EventList
	if err := r.Client.List(ctx, &events, client.InNamespace(r.Namespace)); err != nil {
		problems = append(problems, fmt.Sprintf("list events: %v", err))
	}
	return append(problems, Undocumented(r.Documentation, i, events.Items)...)
}

// remove deletes an instance and looks for what is left of it.
func (r Run) remove(ctx context.Context, i *bergv1.ChallengeInstance) []string {
	if err := r.Client.Delete(ctx, i); client.IgnoreNotFound(err) != nil {
		return []string{fmt.Sprintf("delete: %v", err)}
	}
	last := i.DeepCopy()
	err := wait.PollUntilContextTimeout(ctx, glance, r.Patience, true, func(ctx context.Context) (bool, error) {
		err := r.Client.Get(ctx, client.ObjectKeyFromObject(i), last)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
	if err != nil {
		return []string{fmt.Sprintf("was deleted and does not go: phase %s (%v): %s", last.Status.Phase, err, untrue(last))}
	}
	if i.Status.Namespace == "" {
		return nil
	}
	// Everything of an instance is in its namespace.
	switch err := r.Client.Get(ctx, client.ObjectKey{Name: i.Status.Namespace}, &corev1.Namespace{}); {
	case err == nil:
		return []string{fmt.Sprintf("is gone, and the namespace %s is left over", i.Status.Namespace)}
	case !apierrors.IsNotFound(err):
		return []string{fmt.Sprintf("look for what is left over: %v", err)}
	}
	return nil
}

// Undocumented returns the conditions, and the reasons of conditions and events,
// of an instance that a text does not name in the form `Name`.
func Undocumented(text string, i *bergv1.ChallengeInstance, events []eventsv1.Event) []string {
	seen := map[string]string{}
	for _, c := range i.Status.Conditions {
		seen[c.Type] = "condition"
		seen[c.Reason] = "reason"
	}
	for _, e := range events {
		if e.Regarding.UID == i.UID {
			seen[e.Reason] = "event"
		}
	}
	var problems []string
	for name, what := range seen {
		if !strings.Contains(text, "`"+name+"`") {
			problems = append(problems, fmt.Sprintf("the %s %s is not documented", what, name))
		}
	}
	slices.Sort(problems)
	return problems
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

// untrue lists the conditions that are not True.
func untrue(i *bergv1.ChallengeInstance) string {
	var all []string
	for _, c := range i.Status.Conditions {
		if c.Status != metav1.ConditionTrue {
			all = append(all, fmt.Sprintf("%s: %s: %s", c.Type, c.Reason, c.Message))
		}
	}
	return strings.Join(all, "; ")
}
