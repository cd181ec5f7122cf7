// Package yamlnode finds the nodes of fields in YAML, also behind aliases and in merged mappings.
package yamlnode

import yamlv3 "go.yaml.in/yaml/v3"

// Target follows an alias to its anchor.
func Target(node *yamlv3.Node) *yamlv3.Node {
	for node != nil && node.Kind == yamlv3.AliasNode {
		node = node.Alias
	}
	return node
}

// Child returns the value of a key, whether the key is written or merged in by <<; nil if there is none.
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

// Item returns the i-th item of a list, nil if there is none.
func Item(node *yamlv3.Node, i int) *yamlv3.Node {
	node = Target(node)
	if node == nil || node.Kind != yamlv3.SequenceNode || i >= len(node.Content) {
		return nil
	}
	return node.Content[i]
}
