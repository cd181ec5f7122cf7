// Package yamlnode reads YAML as nodes, and finds the nodes of fields, also behind aliases and in merged mappings.
package yamlnode

import (
	"fmt"

	yamlv3 "go.yaml.in/yaml/v3"
)

// maxNodes is the maximum number of nodes of a document with all aliases replaced.
const maxNodes = 1 << 20

// Check refuses a document that has no end or explodes: an alias within its own anchor, or aliases of aliases.
// All other functions require a document that passed it.
func Check(root *yamlv3.Node) error {
	_, err := expandedSize(root, map[*yamlv3.Node]int{})
	return err
}

// expandedSize counts nodes with all aliases replaced. sizes has -1 for a node that is being counted. A node that several aliases
// name is counted once for each, but visited once.
func expandedSize(node *yamlv3.Node, sizes map[*yamlv3.Node]int) (int, error) {
	if node == nil {
		return 0, nil
	}
	switch known := sizes[node]; {
	case known > 0:
		return known, nil
	case known < 0:
		return 0, fmt.Errorf("yaml: line %d: anchor %q contains itself: remove the alias", node.Line, node.Anchor)
	}
	sizes[node] = -1
	size, err := expandedSize(node.Alias, sizes)
	for _, child := range node.Content {
		if err != nil {
			break
		}
		var below int
		below, err = expandedSize(child, sizes)
		size += below
	}
	size++
	if err == nil && size > maxNodes {
		err = fmt.Errorf("yaml: line %d: aliases expand to more than %d values: write less", node.Line, maxNodes)
	}
	sizes[node] = size
	return size, err
}

// Target follows an alias to its anchor. It ends, because Check refuses a document in which an alias leads to itself.
func Target(node *yamlv3.Node) *yamlv3.Node {
	for node != nil && node.Kind == yamlv3.AliasNode {
		node = node.Alias
	}
	return node
}

// Child returns the value of a key, whether the key is written or merged in by <<; nil if there is none. A written key goes
// before a merged one, and an earlier mapping in a list of merged ones before a later one.
func Child(node *yamlv3.Node, key string) *yamlv3.Node {
	node = Target(node)
	if node == nil || node.Kind != yamlv3.MappingNode {
		return nil
	}
	var merged *yamlv3.Node
	for i := 0; i+1 < len(node.Content); i += 2 {
		switch node.Content[i].Value {
		case key:
			return node.Content[i+1]
		case "<<":
			from := Target(node.Content[i+1])
			all := []*yamlv3.Node{from}
			if from != nil && from.Kind == yamlv3.SequenceNode {
				all = from.Content
			}
			for _, each := range all {
				if found := Child(each, key); found != nil && merged == nil {
					merged = found
				}
			}
		}
	}
	return merged
}

// Line returns the line of a key, also of a merged one; 0 if there is none.
func Line(node *yamlv3.Node, key string) int {
	value := Child(node, key)
	if value == nil {
		return 0
	}
	for node, i := Target(node), 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i+1] == value {
			return node.Content[i].Line
		}
	}
	return value.Line
}

// Item returns the i-th item of a list, nil if there is none.
func Item(node *yamlv3.Node, i int) *yamlv3.Node {
	node = Target(node)
	if node == nil || node.Kind != yamlv3.SequenceNode || i >= len(node.Content) {
		return nil
	}
	return node.Content[i]
}
