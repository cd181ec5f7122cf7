package importer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"

	"github.com/bergctf/berg-operator/cmd/kubectl-berg/yamlnode"
)

// parseYAML reads a file as nodes, which keep positions and spelling; nil if it is empty.
func parseYAML(content []byte) (*yamlv3.Node, error) {
	var root yamlv3.Node
	if err := yamlv3.Unmarshal(content, &root); err != nil || len(root.Content) == 0 {
		return nil, err
	}
	if err := yamlnode.Check(&root); err != nil {
		return nil, err
	}
	if root.Content[0].Tag == "!!null" {
		return nil, nil
	}
	return root.Content[0], nil
}

// document is one of several in a file, with its text.
type document struct {
	root *yamlv3.Node
	text []byte
}

// parseDocuments reads the documents of a file up to the first that is no YAML.
func parseDocuments(content []byte) (all []document, err error) {
	decoder := yamlv3.NewDecoder(bytes.NewReader(content))
	for {
		var node yamlv3.Node
		if decoder.Decode(&node) != nil {
			return all, nil //nolint:nilerr // the end, or a document after those that are read
		}
		if err := yamlnode.Check(&node); err != nil {
			return nil, err
		}
		text, err := yamlv3.Marshal(&node)
		if err != nil {
			return nil, fmt.Errorf("yaml: %w", err)
		}
		if len(node.Content) > 0 {
			all = append(all, document{node.Content[0], text})
		}
	}
}

// sourceText returns the words of the author, in one line.
func sourceText(node *yamlv3.Node) string {
	if node = yamlnode.Target(node); node == nil {
		return ""
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

// itemLine returns the line of an item of a list, or of a key, with a text; 0 if there is none.
func itemLine(node *yamlv3.Node, text string) int {
	if node = yamlnode.Target(node); node == nil || text == "" {
		return 0
	}
	for i, item := range node.Content {
		found := sourceText(item)
		if node.Kind == yamlv3.SequenceNode && (found == text || strings.HasPrefix(found, text+"=")) || node.Kind == yamlv3.MappingNode && i%2 == 0 && found == text {
			return item.Line
		}
	}
	return 0
}

// typeError says in the words of the file that a value has the wrong type.
func typeError(err error) string {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return fmt.Sprintf("%s must not be a value of type %s", wrong.Field, wrong.Value)
	}
	return oneLine(err.Error())
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
