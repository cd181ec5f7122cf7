package importer

import (
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
)

// nodeOf reads a file for the places and words in it; nil if it is empty.
func nodeOf(content []byte) (*yamlv3.Node, error) {
	var root yamlv3.Node
	if err := yamlv3.Unmarshal(content, &root); err != nil || len(root.Content) == 0 {
		return nil, err
	}
	return root.Content[0], nil
}

// child is the value of a key, also behind an alias or in a merged mapping.
func child(node *yamlv3.Node, key string) *yamlv3.Node {
	for node != nil && node.Kind == yamlv3.AliasNode {
		node = node.Alias
	}
	if node == nil || node.Kind != yamlv3.MappingNode {
		return nil
	}
	var merged *yamlv3.Node
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == key {
			return node.Content[i+1]
		}
		if node.Content[i].Value == "<<" {
			from := node.Content[i+1]
			all := []*yamlv3.Node{from}
			if from.Kind == yamlv3.SequenceNode {
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

// item is one of a list, nil if there is none.
func item(node *yamlv3.Node, i int) *yamlv3.Node {
	for node != nil && node.Kind == yamlv3.AliasNode {
		node = node.Alias
	}
	if node == nil || node.Kind != yamlv3.SequenceNode || i >= len(node.Content) {
		return nil
	}
	return node.Content[i]
}

// wordsOf returns the words of the author, in one line.
func wordsOf(node *yamlv3.Node) string {
	if node == nil {
		return ""
	}
	for node.Kind == yamlv3.AliasNode {
		node = node.Alias
	}
	if node.Kind == yamlv3.ScalarNode {
		return strings.Join(strings.Fields(node.Value), " ")
	}
	flow := *node
	flow.Style = yamlv3.FlowStyle
	text, err := yamlv3.Marshal(&flow)
	if err != nil {
		return ""
	}
	return strings.Join(strings.Fields(string(text)), " ")
}
