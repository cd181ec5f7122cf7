package command

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/cluster"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/why"
	"github.com/bergctf/berg-operator/internal/berg/view"
)

// key saves the field names at each read.
func key(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// instance reads one instance in the namespace of the user.
func instance(ctx context.Context, c *cluster.Cluster, name string) (*bergv1.ChallengeInstance, error) {
	i := &bergv1.ChallengeInstance{}
	if err := c.Get(ctx, key(c.Namespace, name), i); err != nil {
		return nil, cluster.Explain(fmt.Sprintf("read instance %s in namespace %s", name, c.Namespace), err)
	}
	return i, nil
}

// trimmed removes the kind from the name of an instance, as in ci/alice.
func trimmed(name string) string {
	return withoutKind(name, "ci/", "instance/", "challengeinstance/", "challengeinstances/", "challengeinstance.berg.norelect.ch/", "challengeinstances.berg.norelect.ch/")
}

// trimmedChallenge removes the kind from the name of a Challenge, as in challenge/guestbook.
func trimmedChallenge(name string) string {
	return withoutKind(name, "challenge/", "challenges/", "challenge.berg.norelect.ch/", "challenges.berg.norelect.ch/")
}

// withoutKind removes the first prefix that matches.
func withoutKind(name string, kinds ...string) string {
	for _, kind := range kinds {
		if rest, ok := strings.CutPrefix(name, kind); ok {
			return rest
		}
	}
	return name
}

// ofInstance reports whether a pod belongs to this instance, and not to an earlier one of its owner or to another user.
func ofInstance(p corev1.Pod, i *bergv1.ChallengeInstance) bool {
	if why.NamespaceTaken(i) {
		return false
	}
	id, labelled := p.Annotations[bergv1.LabelInstanceID]
	return p.Labels[bergv1.LabelComponent] == bergv1.ComponentPod && (!labelled || id == i.Status.InstanceID)
}

// live leaves out instances that are terminating.
func live(all []*bergv1.ChallengeInstance) []*bergv1.ChallengeInstance {
	return slices.DeleteFunc(all, view.IsEnding)
}

// instanceLifetime returns the time from the start of an instance to its expiry. It is known after the start.
func instanceLifetime(i *bergv1.ChallengeInstance) (d time.Duration, known bool) {
	if d, known = timeoutLifetime(i); known && i.Spec.Until != nil {
		d = min(d, i.Spec.Until.Sub(view.TimeoutFrom(i).Time))
	}
	return d, known
}

// timeoutLifetime is instanceLifetime without spec.until.
func timeoutLifetime(i *bergv1.ChallengeInstance) (d time.Duration, known bool) {
	if i.Status.StartedAt == nil {
		return 0, false
	}
	// The spec comes first: the status may not have followed yet.
	if own, err := time.ParseDuration(i.Spec.Timeout); err == nil && own > 0 {
		return own, true
	}
	if i.Status.ExpiresAt != nil {
		return i.Status.ExpiresAt.Sub(view.TimeoutFrom(i).Time), true
	}
	// A frozen instance has no expiry. It was started with this default.
	if timeout := i.Status.DefaultTimeout; timeout != nil {
		d = timeout.Duration
	}
	return d, d > 0
}

// parseLifetime reads a duration of a second or more, as in 1h30m, in whole seconds.
func parseLifetime(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Second {
		return 0, console.Errorf(console.ExitUsage, "%q: must be a duration such as 30m or 1h30m", text)
	}
	return d.Truncate(time.Second), nil
}

// timeoutText formats a duration for spec.timeout. It is in seconds, so that equal durations have equal texts: endAt compares
// them.
func timeoutText(d time.Duration) string { return fmt.Sprintf("%ds", int64(d/time.Second)) }
