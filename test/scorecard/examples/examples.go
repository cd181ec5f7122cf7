// Package examples starts the examples of the bundle on a cluster, and sees to it
// that they run, say only what the documentation knows, and leave nothing behind.
package examples

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
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

	"github.com/bergctf/berg-operator/docs"
)

// glance is the time between two looks at an example.
const glance = 500 * time.Millisecond

// Run is one run of the examples.
type Run struct {
	// Client needs the rights in config/scorecard/rbac.
	Client client.Client
	// Namespace to run them in instead of their own, if their kind has namespaces.
	Namespace string
	// Timeout bounds how long an example may take to start, and to go.
	Timeout time.Duration
	// Documentation is the text that must name every condition and reason.
	Documentation string
}

// Outcome is the result of one example.
type Outcome struct {
	// Name of the example.
	Name string
	// Did is what it did if there are no problems, in a word.
	Did string
	// Problems, one line each; none if all went well.
	Problems []string
}

// family is how the examples of one family are tried. Each has a file of this package, which adds
// it.
type family struct {
	// addToScheme registers its kinds.
	addToScheme func(*runtime.Scheme) error
	// tried returns those of the examples that the operator works on, under names that nothing else
	// has, and creates what they need.
	tried func(all []unstructured.Unstructured, at place) ([]resource, error)
}

var families []family

func add(f family) bool {
	families = append(families, f)
	return true
}

// place is where the examples are tried.
type place struct {
	namespace string
	// prefix begins the names: the examples may be installed already.
	prefix string
	// create creates what an example needs; it is deleted at the end.
	create func(client.Object) error
}

// AddToScheme registers every kind that the examples, and what is looked at of them, are of.
func AddToScheme(scheme *runtime.Scheme) error {
	builder := runtime.SchemeBuilder{corev1.AddToScheme, eventsv1.AddToScheme}
	for _, f := range families {
		builder.Register(f.addToScheme)
	}
	return builder.AddToScheme(scheme)
}

// Try runs the examples, all at the same time, and removes them again.
func (r Run) Try(ctx context.Context, examples []unstructured.Unstructured) ([]Outcome, error) {
	var needed []client.Object
	defer func() {
		for _, o := range needed {
			_ = r.Client.Delete(context.WithoutCancel(ctx), o)
		}
	}()
	at := place{
		namespace: r.Namespace, prefix: "scorecard-" + uuid.NewString()[:8] + "-",
		create: func(o client.Object) error {
			if err := r.Client.Create(ctx, o); err != nil {
				return fmt.Errorf("create %s: %w", o.GetName(), err)
			}
			needed = append(needed, o)
			return nil
		},
	}
	var tried []resource
	for _, f := range families {
		some, err := f.tried(examples, at)
		if err != nil {
			return nil, err
		}
		tried = append(tried, some...)
	}
	if len(tried) == 0 {
		return nil, errors.New("there is no example of anything that the operator works on")
	}

	results := make(chan Outcome)
	for _, x := range tried {
		go func() {
			problems := r.try(ctx, x)
			results <- Outcome{x.example, x.doing(), problems}
		}()
	}
	var outcomes []Outcome
	for range tried {
		outcomes = append(outcomes, <-results)
	}
	slices.SortFunc(outcomes, func(a, b Outcome) int { return strings.Compare(a.Name, b.Name) })
	return outcomes, nil
}

// read refuses fields that the kind does not have.
func read[T any](e unstructured.Unstructured) (*T, error) {
	into := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(e.Object, into, true); err != nil {
		return nil, fmt.Errorf("example %s: %w", e.GetName(), err)
	}
	return into, nil
}

// resource is an example that the operator works on.
type resource struct {
	client.Object
	// example is the name of the example.
	example string
	// runs and fails are the phases that end the wait for it.
	runs, fails string
	phase       func() string
	conditions  func() []metav1.Condition
	// namespace in which everything of it is; empty before there is one.
	namespace func() string
	// check returns the problems of one that runs; nil for no such look.
	check func() []string
	// then returns the examples that need this one, to be tried while it runs; nil for none.
	then func() []resource
	// did tells what came of it in a word; nil for one that runs.
	did func() string
}

func (x resource) doing() string {
	if x.did == nil {
		return "runs"
	}
	return x.did()
}

// try runs one example from its creation to its end.
func (r Run) try(ctx context.Context, x resource) (problems []string) {
	if err := r.Client.Create(ctx, x.Object); err != nil {
		return []string{fmt.Sprintf("create: %v", err)}
	}
	key := client.ObjectKeyFromObject(x)
	// Also when something went wrong on the way.
	defer func() { problems = append(problems, r.remove(context.WithoutCancel(ctx), x)...) }()

	err := wait.PollUntilContextTimeout(ctx, glance, r.Timeout, true, func(ctx context.Context) (bool, error) {
		if err := r.Client.Get(ctx, key, x.Object); err != nil {
			return false, err
		}
		return x.phase() == x.runs || x.phase() == x.fails, nil
	})
	if err != nil || x.phase() != x.runs {
		problems = append(problems, fmt.Sprintf("does not run: phase %s (%v): %s", x.phase(), err, untrue(x)))
	} else {
		problems = append(problems, r.further(ctx, x)...)
	}

	// Those of what is in no namespace are elsewhere.
	var events eventsv1.EventList
	if err := r.Client.List(ctx, &events, client.InNamespace(r.Namespace)); err != nil {
		problems = append(problems, fmt.Sprintf("list events: %v", err))
	}
	return append(problems, undocumented(r.Documentation, x, events.Items)...)
}

// further looks at one that runs, and tries what needs it.
func (r Run) further(ctx context.Context, x resource) (problems []string) {
	if x.check != nil {
		problems = x.check()
	}
	if x.then == nil {
		return problems
	}
	for _, next := range x.then() {
		for _, problem := range r.try(ctx, next) {
			problems = append(problems, next.example+": "+problem)
		}
	}
	return problems
}

// remove deletes an example and looks for what is left of it.
func (r Run) remove(ctx context.Context, x resource) []string {
	if err := r.Client.Delete(ctx, x.Object); client.IgnoreNotFound(err) != nil {
		return []string{fmt.Sprintf("delete: %v", err)}
	}
	key, namespace := client.ObjectKeyFromObject(x), x.namespace()
	err := wait.PollUntilContextTimeout(ctx, glance, r.Timeout, true, func(ctx context.Context) (bool, error) {
		err := r.Client.Get(ctx, key, x.Object)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
	if err != nil {
		return []string{fmt.Sprintf("was deleted and is not gone: phase %s (%v): %s", x.phase(), err, untrue(x))}
	}
	if namespace == "" {
		return nil
	}
	switch err := r.Client.Get(ctx, client.ObjectKey{Name: namespace}, &corev1.Namespace{}); {
	case err == nil:
		return []string{fmt.Sprintf("is gone, and the namespace %s is left over", namespace)}
	case !apierrors.IsNotFound(err):
		return []string{fmt.Sprintf("look for what is left over: %v", err)}
	}
	return nil
}

// undocumented returns the conditions, and the reasons of conditions and events,
// of an example that a text does not name in the form `Name`.
func undocumented(text string, x resource, events []eventsv1.Event) []string {
	seen := map[string]string{}
	for _, c := range x.conditions() {
		seen[c.Type] = "condition"
		seen[c.Reason] = "reason"
	}
	for _, e := range events {
		if e.Regarding.UID == x.GetUID() {
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

// untrue lists the conditions that are not True.
func untrue(x resource) string {
	var all []string
	for _, c := range x.conditions() {
		if c.Status != metav1.ConditionTrue {
			all = append(all, fmt.Sprintf("%s: %s: %s", c.Type, c.Reason, c.Message))
		}
	}
	return strings.Join(all, "; ")
}

// ReadDocumentation returns the text of the pages of docs, without decisions and runbooks.
func ReadDocumentation() (string, error) {
	var b strings.Builder
	err := fs.WalkDir(docs.Pages, ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (path == "adr" || path == "runbooks"):
			return fs.SkipDir
		case d.IsDir():
			return nil
		}
		text, err := docs.Pages.ReadFile(path)
		b.Write(text)
		return err
	})
	return b.String(), err
}
