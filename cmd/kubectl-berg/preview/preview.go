// Package preview computes what a rollout will do to an instance: which pods restart, and why.
package preview

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/sealed"
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
	// Settings reports that the operator's settings have changed. The Challenge does not tell which
	// pods that restarts.
	Settings bool `json:"settingsChanged,omitempty"`
	// Images reports that images have changed under the same names. The condition UpToDate names the containers.
	Images bool `json:"imagesChanged,omitempty"`
}

// snapshot is the part of status.challengeSnapshot that the preview needs.
type snapshot struct {
	AllowOutboundTraffic bool               `json:"allowOutboundTraffic"`
	Containers           []sealed.Container `json:"containers"`
}

// Compare compares the Challenge with the snapshot that an instance runs.
func Compare(i *bergv1.ChallengeInstance, c *bergv1.Challenge) (Preview, error) {
	var started snapshot
	if raw := i.Status.ChallengeSnapshot; raw != nil {
		if err := json.Unmarshal(raw.Raw, &started); err != nil {
			return Preview{}, fmt.Errorf("status.challengeSnapshot: %w", err)
		}
	}
	p := Preview{Policy: started.AllowOutboundTraffic != c.Spec.AllowOutboundTraffic}
	var hidden map[string][]string
	lost := false
	if condition := meta.FindStatusCondition(i.Status.Conditions, bergv1.ConditionUpToDate); condition != nil {
		p.Settings = condition.Reason == bergv1.ReasonConfigurationChanged
		p.Images = condition.Reason == bergv1.ReasonImageChanged
		hidden = sealed.Noted(condition.Message)
		lost = condition.Reason == bergv1.ReasonValuesLost
	}
	running := make([]bergv1.Container, 0, len(started.Containers))
	for _, s := range started.Containers {
		running = append(running, s.Container)
	}
	endpointChange := ""
	if before, after := variables(running), variables(c.Spec.Containers); !slices.Equal(before, after) {
		endpointChange = "addresses in *_ENDPOINT: " + difference(before, after)
	}
	before := byName(started.Containers)
	for _, now := range c.Spec.Containers {
		was, known := before[now.Hostname]
		delete(before, now.Hostname)
		change := Change{Container: now.Hostname, Effect: Starts}
		if known {
			private := hidden[now.Hostname]
			switch {
			case !was.Environment.Sealed():
				private = sealed.Changes(sealed.PrivateOf(was.Open()), sealed.PrivateOf(now))
			case lost:
				private = []string{"what it was started with is lost"}
			}
			change.Why = differences(was.Container, now, private)
			if endpointChange != "" {
				change.Why = append(change.Why, endpointChange)
			}
			change.Effect = Stays
			if len(change.Why) > 0 {
				change.Effect = Restarts
			}
		}
		p.Containers = append(p.Containers, change)
	}
	for _, was := range started.Containers {
		if _, gone := before[was.Hostname]; gone {
			p.Containers = append(p.Containers, Change{Container: was.Hostname, Effect: Ends})
		}
	}
	return p, nil
}

func byName(all []sealed.Container) map[string]sealed.Container {
	out := map[string]sealed.Container{}
	for _, c := range all {
		out[c.Hostname] = c
	}
	return out
}

// variables are the addresses in the environment of every container: those of ports with a name.
func variables(all []bergv1.Container) (out []string) {
	for _, c := range all {
		for _, p := range c.Ports {
			if p.Name != "" {
				out = append(out, fmt.Sprintf("%s (%s:%d/%s, %s)", p.Name, c.Hostname, p.Port, transport(p), p.EffectiveType()))
			}
		}
	}
	return out
}

func transport(p bergv1.Port) string { return strings.ToLower(string(p.Transport())) }

func difference(before, after []string) string {
	var out []string
	for _, v := range before {
		if !slices.Contains(after, v) {
			out = append(out, "-"+v)
		}
	}
	for _, v := range after {
		if !slices.Contains(before, v) {
			out = append(out, "+"+v)
		}
	}
	if len(out) == 0 {
		return "different order"
	}
	return strings.Join(out, " ")
}

// differences are the changes of a container that restart its pod. private are those of what the snapshot may hide. They do
// not contain values of variables, which may be secret.
func differences(was, now bergv1.Container, private []string) (out []string) {
	add := func(label string, a, b any) {
		if !sealed.Same(a, b) {
			out = append(out, label)
		}
	}
	if was.Image != now.Image {
		out = append(out, fmt.Sprintf("image %s → %s", was.Image, now.Image))
	}
	out = append(out, private...)
	add("ports", numbers(was.Ports), numbers(now.Ports))
	add("resourceRequests", amounts(was.ResourceRequests), amounts(now.ResourceRequests))
	add("resourceLimits", amounts(was.ResourceLimits), amounts(now.ResourceLimits))
	add("dynamicFlag", was.DynamicFlag, now.DynamicFlag)
	add("additionalCapabilities", capabilities(was), capabilities(now))
	add("sandbox", was.Sandbox, now.Sandbox)
	add("runtimeClassName", was.RuntimeClassName, now.RuntimeClassName)
	add("egressBandwidth", was.EgressBandwidth, now.EgressBandwidth)
	add("ingressBandwidth", was.IngressBandwidth, now.IngressBandwidth)
	return out
}

// numbers are the port numbers and protocols: the pod template has no other fields of a port.
func numbers(all []bergv1.Port) (out []string) {
	for _, p := range all {
		out = append(out, fmt.Sprintf("%d/%s", p.Port, transport(p)))
	}
	return out
}

func capabilities(c bergv1.Container) (out []string) {
	for _, name := range c.AdditionalCapabilities {
		out = append(out, strings.TrimPrefix(name, "CAP_"))
	}
	return out
}

// amounts normalises quantities: 0.5 and 500m are equal.
func amounts(r *bergv1.Resources) (out [2]string) {
	if r == nil {
		return out
	}
	for i, a := range []*bergv1.Amount{r.CPU, r.Memory} {
		if a == nil {
			continue
		}
		out[i] = string(*a)
		if q, err := a.Quantity(); err == nil {
			out[i] = q.String()
		}
	}
	return out
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
