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
	// Condition shows the error of the step.
	Condition string
	// Parallel: the step does not need the previous one, and both run concurrently. Other steps run
	// after all steps before them.
	Parallel bool

	// Objects are written in their order.
	Objects []Set
	// Plan returns the objects of a step if they depend on the results of the steps before it: it is
	// called after these steps. Nil: the objects are Objects.
	Plan func() []Set
	// Replace is the Writer's Replace for the objects of this step.
	Replace bool
	// Write replaces Apply, for objects that need more than one attempt. It returns the object
	// as the API server has it. Nil is Apply.
	Write func(ctx context.Context, w Writer, owner ownership.Owner, desired client.Object) (client.Object, error)

	// PruneFirst: objects of the step's kinds that are no longer wanted are deleted as soon as
	// the wanted ones exist, before the next steps. Otherwise they are deleted after all steps,
	// so that no object loses another one that it needs before the successor exists. The result
	// of a later step's Plan is not known at that time: no such step may have objects of the kind.
	PruneFirst bool
	// Then completes the step. It gets the objects as the API server has them, in the order of
	// Objects. Nil: nothing.
	Then func(ctx context.Context, live []client.Object) error
}

// Set is all objects of one kind in a step.
type Set struct {
	objects []client.Object
	// kind is an object of the kind to prune; nil: nothing is pruned.
	kind client.Object
}

// All are all wanted objects of a kind: other owned objects are pruned, also if none is wanted.
// T is a pointer to a type of the API.
func All[T client.Object](objects []T) Set {
	var none T
	return Set{objects: asObjects(objects), kind: blank(none)}
}

// Only are objects of whose kind nothing is pruned, such as a namespace.
func Only[T client.Object](objects ...T) Set { return Set{objects: asObjects(objects)} }

func asObjects[T client.Object](objects []T) []client.Object {
	out := make([]client.Object, 0, len(objects))
	for _, o := range objects {
		out = append(out, o)
	}
	return out
}

// Failure is the error that stopped a step.
type Failure struct {
	Condition string
	Err       error
}

// Failures are in the order of the steps, at most one for each step.
type Failures []Failure

// For returns the error of the first failed step of a condition; nil for none.
func (f Failures) For(condition string) error {
	for _, failure := range f {
		if failure.Condition == condition {
			return failure.Err
		}
	}
	return nil
}

// Steps runs the steps in order until one fails; all steps of a parallel group run. After the last
// step it deletes the objects that are no longer wanted, from the last step's kinds to the first
// one's, so that users of an object are deleted before it. It lists in one namespace, "" for all.
// An error of the deletions counts as one of the last step.
//
// A panic of a step becomes a panic of the caller. A step that fails stops the steps after it, because they may need its objects.
// It does not undo the steps before it: they are right by themselves, and the next reconciliation continues. Pruning waits for
// all steps: after a failure an old object may still be the only one that works.
func Steps(ctx context.Context, w Writer, owner ownership.Owner, namespace string, steps []Step) Failures {
	steps = slices.Clone(steps)
	for _, group := range groups(steps) {
		for i, step := range group {
			if step.Plan != nil {
				group[i].Objects = step.Plan()
			}
		}
		errs := concurrently(len(group), func(i int) error { return runStep(ctx, w, owner, namespace, group[i], steps) })
		var failures Failures
		for i, err := range errs {
			if err != nil {
				failures = append(failures, Failure{group[i].Condition, err})
			}
		}
		if len(failures) > 0 {
			return append(failures, confineAnyway(ctx, w, owner, failures, steps)...)
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

// confineAnyway writes the network policies of a plan that was stopped by an object that others keep changing: pods
// run during that time.
func confineAnyway(ctx context.Context, w Writer, owner ownership.Owner, stopped Failures, steps []Step) (failures Failures) {
	for _, failure := range stopped {
		var contested *ContestedError
		if !errors.As(failure.Err, &contested) {
			return nil
		}
	}
	for _, step := range steps {
		for _, set := range step.Objects {
			for _, desired := range set.objects {
				if !confining[objectKind(w.Client.Scheme(), desired)] {
					continue
				}
				if _, err := Apply(ctx, w, owner, desired); err != nil {
					failures = append(failures, Failure{step.Condition, err})
				}
			}
		}
	}
	return failures
}

// runStep runs one step.
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

// prune deletes the objects of a step's kinds that no step wants.
func prune(ctx context.Context, w Writer, owner ownership.Owner, namespace string, step Step, all []Step) error {
	var errs []error
	for _, set := range step.Objects {
		if set.kind == nil {
			continue
		}
		list, err := newList(w.Client.Scheme(), set.kind)
		if err == nil {
			keys := wantedKeys(w.Client.Scheme(), objectKind(w.Client.Scheme(), set.kind), all)
			err = Prune(ctx, w, owner, list, namespace, keys.Has)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// wantedKeys returns the objects of a kind that the steps want.
func wantedKeys(scheme *runtime.Scheme, kind schema.GroupKind, steps []Step) sets.Set[types.NamespacedName] {
	keys := sets.New[types.NamespacedName]()
	for _, step := range steps {
		for _, set := range step.Objects {
			for _, o := range set.objects {
				if objectKind(scheme, o) == kind {
					keys.Insert(client.ObjectKeyFromObject(o))
				}
			}
		}
	}
	return keys
}

// groups splits a list into groups of steps that run concurrently.
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

// concurrently calls do with each of n numbers, waits for all calls, and returns their errors. A panic in a goroutine of its own
// would end the process before package reconcile has counted it.
func concurrently(n int, do func(i int) error) []error {
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
