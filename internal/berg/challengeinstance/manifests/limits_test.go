package manifests

import (
	"fmt"
	"strings"
	"testing"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/rules"
)

// containersOf returns n containers, each spoiled by modify.
func containersOf(n int, modify func(int, *bergv1.Container)) []bergv1.Container {
	out := make([]bergv1.Container, n)
	for i := range out {
		out[i] = bergv1.Container{Hostname: fmt.Sprintf("c%d", i), Image: "i"}
		modify(i, &out[i])
	}
	return out
}

func portsOf(n int, t bergv1.PortType) []bergv1.Port {
	out := make([]bergv1.Port, n)
	for i := range out {
		out[i] = bergv1.Port{Port: int32(i + 1), Type: t}
	}
	return out
}

func TestLimits(t *testing.T) {
	nothing := func(int, *bergv1.Container) {}
	for name, tc := range map[string]struct {
		containers []bergv1.Container
		field      string
	}{
		"containers, at most":  {containersOf(rules.MaxContainers, nothing), ""},
		"containers, too many": {containersOf(rules.MaxContainers+1, nothing), "spec.containers"},
		"ports of one, at most": {containersOf(1, func(_ int, c *bergv1.Container) {
			c.Ports = portsOf(rules.MaxPorts, bergv1.InternalPort)
		}), ""},
		"ports of one, too many": {containersOf(1, func(_ int, c *bergv1.Container) {
			c.Ports = portsOf(rules.MaxPorts+1, bergv1.InternalPort)
		}), "spec.containers[0].ports"},
		"ports of all, at most": {containersOf(rules.MaxAllPorts/rules.MaxPorts, func(_ int, c *bergv1.Container) {
			c.Ports = portsOf(rules.MaxPorts, bergv1.InternalPort)
		}), ""},
		"ports of all, too many": {containersOf(rules.MaxAllPorts/rules.MaxPorts+1, func(_ int, c *bergv1.Container) {
			c.Ports = portsOf(rules.MaxPorts, bergv1.InternalPort)
		}), "spec.containers"},
		"node ports, at most": {containersOf(2, func(_ int, c *bergv1.Container) {
			c.Ports = portsOf(rules.MaxNodePorts/2, bergv1.PublicPort)
		}), ""},
		"node ports, too many": {containersOf(2, func(_ int, c *bergv1.Container) {
			c.Ports = portsOf(rules.MaxNodePorts/2+1, bergv1.PublicPort)
		}), "spec.containers"},
		"variables, at most":  {containersOf(1, variables(rules.MaxVariables, 10)), ""},
		"variables, too many": {containersOf(1, variables(rules.MaxVariables+1, 10)), "spec.containers[0].environment"},
		"environment, too large": {containersOf(3, func(i int, c *bergv1.Container) {
			if i == 2 {
				variables(2, rules.MaxEnvironment/2)(i, c)
			}
		}), "spec.containers[2].environment"},
		"all together, too large": {containersOf(rules.MaxContainers, variables(2, rules.MaxSnapshot/rules.MaxContainers/2)), "spec.containers"},
		"capabilities, too many": {containersOf(1, func(_ int, c *bergv1.Container) {
			for range rules.MaxAdded + 1 {
				c.AdditionalCapabilities = append(c.AdditionalCapabilities, "CHOWN")
			}
		}), "spec.containers[0].additionalCapabilities"},
	} {
		t.Run(name, func(t *testing.T) {
			errs := rules.Validate(tc.containers, rules.AllowedBy(testConfig(t, nil).Challenge))
			switch {
			case tc.field == "" && len(errs) > 0:
				t.Errorf("refused: %s", Summary(errs, ""))
			case tc.field != "" && (len(errs) != 1 || errs[0].Field != tc.field):
				t.Errorf("want one error of %s: %v", tc.field, errs.ToAggregate())
			case tc.field != "" && (len(errs[0].Error()) > 256 || strings.Contains(errs[0].Error(), "xxx")):
				t.Errorf("the error repeats what is too large: %.512s", errs[0])
			}
		})
	}
}

func variables(n, size int) func(int, *bergv1.Container) {
	return func(_ int, c *bergv1.Container) {
		c.Environment = map[string]bergv1.EnvironmentValue{}
		for i := range n {
			c.Environment[fmt.Sprintf("V%d", i)] = bergv1.StringValue(strings.Repeat("x", size))
		}
	}
}
