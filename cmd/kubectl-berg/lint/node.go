package lint

import (
	"regexp"
	"strconv"

	yamlv3 "go.yaml.in/yaml/v3"

	"github.com/bergctf/berg-operator/cmd/kubectl-berg/yamlnode"
)

// scalarText returns the text of a value as it is written, "" for objects, lists and nothing.
func scalarText(node *yamlv3.Node) string {
	if node = yamlnode.Target(node); node == nil || node.Kind != yamlv3.ScalarNode {
		return ""
	}
	return node.Value
}

// step matches one part of a field's name: a name, or an index or key in brackets.
var step = regexp.MustCompile(`^\.?([^.\[\]]+)|^\[([^\]]*)\]`)

// nodeAt returns the node of a field such as spec.containers[0].environment[A], or the deepest one above it.
func nodeAt(top *yamlv3.Node, path string) *yamlv3.Node {
	found := top
	for path != "" {
		part := step.FindStringSubmatch(path)
		if part == nil {
			return found
		}
		path = path[len(part[0]):]
		var next *yamlv3.Node
		if index, err := strconv.Atoi(part[2]); part[1] == "" && err == nil {
			next = yamlnode.Item(found, index)
		}
		if next == nil {
			name := part[1]
			if name == "" {
				name = part[2]
			}
			next = yamlnode.Child(found, name)
		}
		if next == nil {
			return found
		}
		found = next
	}
	return found
}
