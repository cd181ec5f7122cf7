package lint

import (
	"regexp"
	"strconv"

	yamlv3 "go.yaml.in/yaml/v3"
)

// target follows an alias to its anchor.
func target(node *yamlv3.Node) *yamlv3.Node {
	for node != nil && node.Kind == yamlv3.AliasNode {
		node = node.Alias
	}
	return node
}

// child returns the value of a key, also of one that is merged in by <<; nil if there is none.
func child(node *yamlv3.Node, key string) *yamlv3.Node {
	node = target(node)
	if node == nil || node.Kind != yamlv3.MappingNode {
		return nil
	}
	var merged *yamlv3.Node
	for i := 0; i+1 < len(node.Content); i += 2 {
		switch node.Content[i].Value {
		case key:
			return node.Content[i+1]
		case "<<":
			from := target(node.Content[i+1])
			all := []*yamlv3.Node{from}
			if from != nil && from.Kind == yamlv3.SequenceNode {
				all = from.Content
			}
			for _, each := range all {
				if found := child(each, key); found != nil && merged == nil {
					merged = found
				}
			}
		}
	}
	return merged
}

func item(node *yamlv3.Node, i int) *yamlv3.Node {
	node = target(node)
	if node == nil || node.Kind != yamlv3.SequenceNode || i >= len(node.Content) {
		return nil
	}
	return node.Content[i]
}

func textOf(node *yamlv3.Node) string {
	if node = target(node); node == nil || node.Kind != yamlv3.ScalarNode {
		return ""
	}
	return node.Value
}

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
			next = item(found, index)
		}
		if next == nil {
			name := part[1]
			if name == "" {
				name = part[2]
			}
			next = child(found, name)
		}
		if next == nil {
			return found
		}
		found = next
	}
	return found
}
