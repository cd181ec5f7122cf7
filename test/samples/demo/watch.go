package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

const (
	// startTimeout is how long the samples may take to run: their images are small and local.
	startTimeout = 3 * time.Minute
	// endTimeout is how long an instance may take to end after it was told to.
	endTimeout = 2 * time.Minute
)

// waitUntilRunning shows what becomes of the instances until all of them run.
func (d *demo) waitUntilRunning(ctx context.Context) error {
	look := []string{
		d.kubectlLine("describe ci -n " + samplesNamespace),
		d.kubectlLine("get pods,events -A"),
	}
	return d.show.step(ctx, "wait until the instances run", look, func(ctx context.Context) (outcome, error) {
		instances, err := d.demoInstances(ctx)
		if err != nil {
			return "", err
		}
		names := make([]string, len(instances))
		for i, instance := range instances {
			names[i] = instance.Name
		}
		err = d.follow(ctx, startTimeout, names, func(instance *bergv1.ChallengeInstance) bool {
			return instance != nil && instance.Status.Phase == bergv1.PhaseRunning
		})
		return outcome(fmt.Sprintf("%d of %d", len(names), len(names))), err
	})
}

// follow shows every change of the named instances until each has once satisfied reached, which is
// called with nil for an instance that is gone.
func (d *demo) follow(ctx context.Context, timeout time.Duration, names []string, reached func(*bergv1.ChallengeInstance) bool) error {
	deadline, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("not there after %s", timeout))
	defer cancel()
	f := &follower{show: d.show, began: time.Now(), missing: slices.Clone(names), reached: reached, seen: d.seen}
	for len(f.missing) > 0 {
		if err := f.watchOnce(deadline, d.target.client); err != nil {
			if deadline.Err() == nil {
				return err
			}
			// The context of the watch is done, not that of the demo.
			return d.explain(context.WithoutCancel(ctx), f.missing, context.Cause(deadline))
		}
	}
	return nil
}

type follower struct {
	show    *show
	began   time.Time
	missing []string
	reached func(*bergv1.ChallengeInstance) bool
	seen    map[types.UID]bergv1.ChallengeInstanceStatus
}

// watchOnce lists and then watches, until the API server ends the watch, nothing is missing any more,
// or the context is done.
func (f *follower) watchOnce(ctx context.Context, c client.WithWatch) error {
	list := &bergv1.ChallengeInstanceList{}
	if err := c.List(ctx, list, client.InNamespace(samplesNamespace)); err != nil {
		return fmt.Errorf("list the instances: %w", err)
	}
	found := map[string]bool{}
	for i := range list.Items {
		found[list.Items[i].Name] = true
		f.see(&list.Items[i])
	}
	for _, name := range slices.Clone(f.missing) {
		if !found[name] {
			f.seeGone(name)
		}
	}
	if len(f.missing) == 0 {
		return nil
	}
	events, err := c.Watch(ctx, &bergv1.ChallengeInstanceList{}, client.InNamespace(samplesNamespace),
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion}})
	if err != nil {
		return fmt.Errorf("watch the instances: %w", err)
	}
	defer events.Stop()
	for len(f.missing) > 0 {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case event, open := <-events.ResultChan():
			instance, ok := event.Object.(*bergv1.ChallengeInstance)
			switch {
			case !open || !ok:
				// The watch ended or has grown too old: a new list tells what was missed.
				return nil
			case event.Type == watch.Deleted:
				f.seeGone(instance.Name)
			default:
				f.see(instance)
			}
		}
	}
	return nil
}

func (f *follower) see(instance *bergv1.ChallengeInstance) {
	if !slices.Contains(f.missing, instance.Name) {
		return
	}
	before := f.seen[instance.UID]
	f.seen[instance.UID] = instance.Status
	for _, line := range changes(before, instance.Status) {
		f.say(instance.Name, line)
	}
	if f.reached(instance) {
		f.done(instance.Name)
	}
}

func (f *follower) seeGone(name string) {
	if !slices.Contains(f.missing, name) || !f.reached(nil) {
		return
	}
	f.say(name, "gone")
	f.done(name)
}

func (f *follower) say(name, line string) {
	f.show.note("%6.1fs  %-5s %s", time.Since(f.began).Seconds(), name, line)
}

func (f *follower) done(name string) {
	f.missing = slices.DeleteFunc(f.missing, func(other string) bool { return other == name })
}

// changes tells in words what differs between two observations of an instance.
func changes(before, after bergv1.ChallengeInstanceStatus) []string {
	var lines []string
	for _, condition := range after.Conditions {
		i := slices.IndexFunc(before.Conditions, func(old metav1.Condition) bool { return old.Type == condition.Type })
		if i >= 0 && before.Conditions[i].Status == condition.Status && before.Conditions[i].Reason == condition.Reason {
			continue
		}
		lines = append(lines, conditionLine(condition))
	}
	if before.Phase != after.Phase {
		from := string(before.Phase)
		if from == "" {
			from = "(new)"
		}
		lines = append(lines, fmt.Sprintf("%s → %s", from, after.Phase))
	}
	return lines
}

func conditionLine(condition metav1.Condition) string {
	sign := map[metav1.ConditionStatus]string{metav1.ConditionTrue: "+", metav1.ConditionFalse: "-"}[condition.Status]
	if sign == "" {
		sign = "?"
	}
	line := fmt.Sprintf("  %s %s", sign, condition.Type)
	if condition.Status != metav1.ConditionTrue {
		line += fmt.Sprintf(" (%s: %s)", condition.Reason, condition.Message)
	}
	return line
}

// explain adds to a timeout what the instances that are missing say about themselves.
func (d *demo) explain(ctx context.Context, names []string, cause error) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	reasons := []error{fmt.Errorf("%s: %w", strings.Join(names, ", "), cause)}
	var look []string
	for _, name := range names {
		instance := &bergv1.ChallengeInstance{}
		if err := d.target.client.Get(ctx, client.ObjectKey{Namespace: samplesNamespace, Name: name}, instance); err != nil {
			reasons = append(reasons, fmt.Errorf("%s: %w", name, err))
			continue
		}
		reasons = append(reasons, fmt.Errorf("%s is in phase %q", name, instance.Status.Phase))
		for _, condition := range instance.Status.Conditions {
			if condition.Status != metav1.ConditionTrue {
				reasons = append(reasons, fmt.Errorf("%s: %s", name, strings.TrimSpace(conditionLine(condition))))
			}
		}
		reasons = append(reasons, d.podReasons(ctx, instance.Status.Namespace)...)
		look = append(look, d.kubectlLine("get events -n "+instance.Status.Namespace))
	}
	return &hintedError{errors.Join(reasons...), look}
}

// podReasons tells which containers wait, and for what.
func (d *demo) podReasons(ctx context.Context, namespace string) []error {
	pods := &corev1.PodList{}
	if err := d.target.client.List(ctx, pods, client.InNamespace(namespace)); err != nil {
		return []error{fmt.Errorf("list the pods of %s: %w", namespace, err)}
	}
	var reasons []error
	for _, pod := range pods.Items {
		for _, status := range pod.Status.ContainerStatuses {
			if waiting := status.State.Waiting; waiting != nil {
				reasons = append(reasons, fmt.Errorf("pod %s waits: %s %s", pod.Name, waiting.Reason, waiting.Message))
			}
		}
	}
	return reasons
}
