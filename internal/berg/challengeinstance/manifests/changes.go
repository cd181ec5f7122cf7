package manifests

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/rules"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
)

const (
	// maxVariables bounds the variables of a container that a status names.
	maxVariables = 5
	// maxChange bounds the text of one change, in bytes.
	maxChange = 512
)

// Changes returns the changes that a rollout of a Challenge makes to an instance, nil for none. A reader of the status need
// not be allowed to read the Challenge: the text names fields, variables and ports, and repeats no value except image
// names. The order of the containers and fields is fixed, so the status stays the same while nothing changes.
func (s Snapshot) Changes(c *bergv1.Challenge) *bergv1.PendingChanges {
	now := Normalize(c)
	out := &bergv1.PendingChanges{NetworkPolicy: s.AllowOutboundTraffic != now.AllowOutboundTraffic}
	endpoints := ""
	if before, after := namedPorts(s.Containers), namedPorts(now.Containers); !slices.Equal(before, after) {
		endpoints = "addresses in *_ENDPOINT: " + difference(before, after)
	}
	for _, after := range now.Containers {
		index := slices.IndexFunc(s.Containers, func(b bergv1.Container) bool { return b.Hostname == after.Hostname })
		if index < 0 {
			out.Containers = append(out.Containers, bergv1.ContainerChange{Name: after.Hostname, Effect: bergv1.EffectStarts})
			continue
		}
		fields := changedFields(s.Containers[index], after)
		if endpoints != "" {
			fields = append(fields, endpoints)
		}
		if len(fields) == 0 {
			continue
		}
		for n := range fields {
			fields[n] = conditions.Shorten(fields[n], maxChange)
		}
		out.Containers = append(out.Containers, bergv1.ContainerChange{Name: after.Hostname, Effect: bergv1.EffectRestarts, Fields: fields})
	}
	for _, before := range s.Containers {
		if !slices.ContainsFunc(now.Containers, func(a bergv1.Container) bool { return a.Hostname == before.Hostname }) {
			out.Containers = append(out.Containers, bergv1.ContainerChange{Name: before.Hostname, Effect: bergv1.EffectEnds})
		}
	}
	if len(out.Containers) == 0 && !out.NetworkPolicy {
		return nil
	}
	return out
}

// changedFields names the fields that restart the pod of a container. It compares every field of the type, so that a new
// one is not missed.
func changedFields(before, after bergv1.Container) (out []string) {
	if before.Image != after.Image {
		out = append(out, fmt.Sprintf("image %s → %s", before.Image, after.Image))
	}
	out = append(out, changedVariables(before.Environment, after.Environment)...)
	x, y := comparableFields(before), comparableFields(after)
	for _, name := range sortedKeys(x) {
		if _, kept := y[name]; !kept {
			y[name] = nil
		}
	}
	for _, name := range sortedKeys(y) {
		if !same(x[name], y[name]) {
			out = append(out, name)
		}
	}
	return out
}

// comparableFields returns the fields of a container by their names, all but the image and the variables. Two values of a
// field that result in the same pod are equal.
func comparableFields(c bergv1.Container) map[string]any {
	c.Image, c.Environment = "", nil
	encoded, _ := json.Marshal(c) // it was decoded from JSON
	all := map[string]any{}
	_ = json.Unmarshal(encoded, &all)
	delete(all, "image")
	replace := func(name string, value any) {
		if _, there := all[name]; there {
			all[name] = value
		}
	}
	// The pod has the numbers of the ports alone.
	var ports, capabilities []string
	for _, p := range c.Ports {
		ports = append(ports, fmt.Sprintf("%d/%s", p.Port, p.Transport()))
	}
	for _, name := range c.AdditionalCapabilities {
		capabilities = append(capabilities, rules.Capability(name))
	}
	replace("ports", ports)
	replace("additionalCapabilities", capabilities)
	replace("resourceRequests", amounts(c.ResourceRequests))
	replace("resourceLimits", amounts(c.ResourceLimits))
	return all
}

// amounts normalises quantities: 0.5 and 500m are equal.
func amounts(r *bergv1.Resources) (out [2]string) {
	if r == nil {
		return out
	}
	for i, amount := range []*bergv1.Amount{r.CPU, r.Memory} {
		if amount == nil {
			continue
		}
		out[i] = string(*amount)
		if q, err := amount.Quantity(); err == nil {
			out[i] = q.String()
		}
	}
	return out
}

// changedVariables names variables, of many only the first.
func changedVariables(before, after map[string]bergv1.EnvironmentValue) (out []string) {
	all := map[string]bool{}
	for name, value := range before {
		now, kept := after[name]
		all[name] = !kept || !same(value, now)
	}
	for name := range after {
		if _, known := before[name]; !known {
			all[name] = true
		}
	}
	for _, name := range sortedKeys(all) {
		if all[name] {
			out = append(out, "environment "+name)
		}
	}
	if omitted := len(out) - maxVariables; omitted > 0 {
		out = append(out[:maxVariables], fmt.Sprintf("%d more variables", omitted))
	}
	return out
}

// namedPorts are the addresses in the environment of every container.
func namedPorts(all []bergv1.Container) (out []string) {
	for _, c := range all {
		for _, p := range c.Ports {
			if p.Name != "" {
				out = append(out, fmt.Sprintf("%s (%s:%d/%s, %s)", p.Name, c.Hostname, p.Port, strings.ToLower(string(p.Transport())), p.EffectiveType()))
			}
		}
	}
	return out
}

// difference lists the texts that were removed and added.
func difference(before, after []string) string {
	var out []string
	for _, text := range before {
		if !slices.Contains(after, text) {
			out = append(out, "-"+text)
		}
	}
	for _, text := range after {
		if !slices.Contains(before, text) {
			out = append(out, "+"+text)
		}
	}
	if len(out) == 0 {
		return "different order"
	}
	return strings.Join(out, " ")
}
