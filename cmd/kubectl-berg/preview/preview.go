// Package preview computes the effect of a rollout on an instance: the pods that restart, and why.
package preview

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// Effect is the effect of a rollout on a container.
type Effect string

// The effects.
const (
	Stays    Effect = "stays"
	Restarts Effect = "restarts"
	Starts   Effect = "starts"
	Ends     Effect = "ends"
)

// Change is the effect of a rollout on one container, and the reasons.
type Change struct {
	Container string   `json:"container"`
	Effect    Effect   `json:"effect"`
	Why       []string `json:"why,omitempty"`
}

// Preview is the effect of a rollout on an instance.
type Preview struct {
	Containers []Change `json:"containers"`
	// Policy reports that the network policy changes, which restarts no pod.
	Policy bool `json:"networkPolicyChanges,omitempty"`
	// Settings reports that the operator's settings have changed. The Challenge does not say which pods that restarts.
	Settings bool `json:"settingsChanged,omitempty"`
	// Images reports that images have changed under the same names. The condition UpToDate names the containers.
	Images bool `json:"imagesChanged,omitempty"`
}

// Compare returns the effect of a rollout of a Challenge on an instance. It relies on the comparison of the operator in
// the status, because the snapshot of the running instance is not readable for every user. A container that the Challenge no
// longer has ends. Changes that the operator has not compared yet are missing.
func Compare(i *bergv1.ChallengeInstance, c *bergv1.Challenge) Preview {
	p, lost := Preview{}, false
	if condition := meta.FindStatusCondition(i.Status.Conditions, bergv1.ConditionUpToDate); condition != nil {
		p.Settings = condition.Reason == bergv1.ReasonConfigurationChanged
		p.Images = condition.Reason == bergv1.ReasonImageChanged
		lost = condition.Reason == bergv1.ReasonRevisionMissing
	}
	pending := map[string]bergv1.ContainerChange{}
	if changes := i.Status.PendingChanges; changes != nil {
		p.Policy = changes.NetworkPolicy
		for _, change := range changes.Containers {
			pending[change.Name] = change
		}
	}
	for _, container := range c.Spec.Containers {
		change := Change{Container: container.Hostname, Effect: Stays}
		if found, changes := pending[container.Hostname]; changes {
			change.Effect, change.Why = effects[found.Effect], found.Fields
		}
		if lost {
			change.Effect, change.Why = Restarts, []string{"the content of its start cannot be read"}
		}
		delete(pending, container.Hostname)
		p.Containers = append(p.Containers, change)
	}
	for _, name := range slices.Sorted(maps.Keys(pending)) {
		p.Containers = append(p.Containers, Change{Container: name, Effect: Ends})
	}
	return p
}

// effects are the words for the effects in the status. An effect of a later operator has none.
var effects = map[bergv1.ChangeEffect]Effect{
	bergv1.EffectStarts: Starts, bergv1.EffectRestarts: Restarts, bergv1.EffectEnds: Ends,
}

// Summary describes the preview in one line, which is equal for equal previews.
func (p Preview) Summary() string {
	var out []string
	for _, c := range p.Containers {
		text := c.Container + " " + string(c.Effect)
		if len(c.Why) > 0 {
			text += " (" + strings.Join(c.Why, ", ") + ")"
		}
		out = append(out, text)
	}
	if p.Policy {
		out = append(out, "the network policy changes")
	}
	if p.Settings {
		out = append(out, "the operator's settings have changed: any pod may restart")
	}
	if p.Images {
		out = append(out, "an image has changed under the same name: its pods restart")
	}
	return strings.Join(out, "; ")
}

// Restarting returns the number of pods that restart, start or end.
func (p Preview) Restarting() int {
	n := 0
	for _, c := range p.Containers {
		if c.Effect != Stays {
			n++
		}
	}
	return n
}
