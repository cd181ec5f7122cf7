package apply

import (
	"context"
	"errors"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/internal/kit/ownership"
)

// Step is one of an ordered list of steps that together are a plan.
type Step struct {
	// Condition on which it shows what stops the step.
	Condition string
	// Parallel: the step needs nothing of the one before it, and both are taken at once.
	// Other steps are taken when all before them are done.
	Parallel bool

	// Objects are written in their order.
	Objects []Set
	// Plan returns the objects of a step whose objects depend on the result of the steps
	// before it: it is called after those. Nil: they are Objects.
	Plan func() []Set
	// Replace is the Writer's, for the objects of this step.
	Replace bool
	// Write writes an object in place of Apply and returns it as the API server has it, for
	// what needs more than one attempt. Nil is Apply.
	Write func(ctx context.Context, w Writer, owner ownership.Owner, desired client.Object) (client.Object, error)

	// PruneFirst: what is no longer wanted of the step's kinds is deleted as soon as what is
	// wanted exists, before the steps that follow. Otherwise that is the last thing to
	// happen, so that nothing loses what it needs before its successor exists. What a later
	// step's Plan returns is not known by then: no such step may have objects of the kind.
	PruneFirst bool
	// Then completes the step. It is given the objects as the API server has them, in the
	// order of Objects. Nil for nothing.
	Then func(ctx context.Context, live []client.Object) error
}

// Set is all objects of one kind in a step.
type Set struct {
	objects []client.Object
	// kind is an object of the kind to prune; nil to leave alone what there is beside.
	kind client.Object
}

// All are all objects of a kind that are wanted: others that carry the proof are pruned,
// also when none is wanted. T is a pointer to a type of the API.
func All[T client.Object](objects []T) Set {
	var none T
	return Set{objects: asObjects(objects), kind: blank(none)}
}

// AllOf is All for unstructured objects: like names their kind.
func AllOf[T client.Object](like T, objects []T) Set {
	return Set{objects: asObjects(objects), kind: blank(like)}
}

// Only are objects beside which nothing is pruned, such as a namespace.
func Only[T client.Object](objects ...T) Set { return Set{objects: asObjects(objects)} }

func asObjects[T client.Object](objects []T) []client.Object {
	out := make([]client.Object, 0, len(objects))
	for _, o := range objects {
		out = append(out, o)
	}
	return out
}

// Failure is what stopped a step.
type Failure struct {
	Condition string
	Err       error
}

// Failures are in the order of the steps. Of each step there is at most one.
type Failures []Failure

// Of returns what stopped the first step of a condition that was stopped; nil for none.
func (f Failures) Of(condition string) error {
	for _, failure := range f {
		if failure.Condition == condition {
			return failure.Err
		}
	}
	return nil
}

// Steps takes the steps in their order, until one is stopped; those that are taken at once
// are all taken nevertheless. After the last one it deletes what is no longer wanted, from
// the last step's kinds to the first one's: what uses something is deleted before that. It
// looks in one namespace, "" for all. What stops that counts as the last step's.
//
// A panic of a step becomes one of the caller.
func Steps(ctx context.Context, w Writer, owner ownership.Owner, namespace string, steps []Step) Failures {
	steps = slices.Clone(steps)
	for _, group := range groups(steps) {
		for i, step := range group {
			if step.Plan != nil {
				group[i].Objects = step.Plan()
			}
		}
		errs := together(len(group), func(i int) error { return runStep(ctx, w, owner, namespace, group[i], steps) })
		var failures Failures
		for i, err := range errs {
			if err != nil {
				failures = append(failures, Failure{group[i].Condition, err})
			}
		}
		if len(failures) > 0 {
			return failures
		}
	}
	var errs []error
	for _, step := range slices.Backward(steps) {
		if !step.PruneFirst {
			errs = append(errs, prune(ctx, w, owner, namespace, step, steps))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return Failures{{steps[len(steps)-1].Condition, err}}
	}
	return nil
}

// take takes one step.
func runStep(ctx context.Context, w Writer, owner ownership.Owner, namespace string, step Step, all []Step) error {
	w.Replace = step.Replace
	write := step.Write
	if write == nil {
		write = Apply
	}
	var live []client.Object
	for _, set := range step.Objects {
		for _, desired := range set.objects {
			l, err := write(ctx, w, owner, desired)
			if err != nil {
				return err
			}
			live = append(live, l)
		}
	}
	if step.PruneFirst {
		if err := prune(ctx, w, owner, namespace, step, all); err != nil {
			return err
		}
	}
	if step.Then != nil {
		return step.Then(ctx, live)
	}
	return nil
}

// prune deletes what is there of a step's kinds and wanted by no step.
func prune(ctx context.Context, w Writer, owner ownership.Owner, namespace string, step Step, all []Step) error {
	var errs []error
	for _, set := range step.Objects {
		if set.kind == nil {
			continue
		}
		list, err := listOf(w.Client.Scheme(), set.kind)
		if err == nil {
			keys := wantedKeys(w.Client.Scheme(), kindOf(w.Client.Scheme(), set.kind), all)
			err = Prune(ctx, w, owner, list, namespace, keys.Has)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// wantedKeys returns the objects of a kind that any of the steps wants.
func wantedKeys(scheme *runtime.Scheme, kind schema.GroupKind, steps []Step) sets.Set[types.NamespacedName] {
	keys := sets.New[types.NamespacedName]()
	for _, step := range steps {
		for _, set := range step.Objects {
			for _, o := range set.objects {
				if kindOf(scheme, o) == kind {
					keys.Insert(client.ObjectKeyFromObject(o))
				}
			}
		}
	}
	return keys
}

// groups splits a list into those of its steps that are taken at once.
func groups(steps []Step) [][]Step {
	var out [][]Step
	from := 0
	for i := range steps {
		if i+1 == len(steps) || !steps[i+1].Parallel {
			out = append(out, steps[from:i+1])
			from = i + 1
		}
	}
	return out
}

// together calls do with each of n numbers at once, waits for all calls, and returns what
// each of them returned.
func together(n int, do func(i int) error) []error {
	errs, panics := make([]error, n), make([]any, n)
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() {
			defer func() { panics[i] = recover() }()
			errs[i] = do(i)
		})
	}
	running.Wait()
	for _, p := range panics {
		if p != nil {
			panic(p)
		}
	}
	return errs
}
