package importer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/yamlnode"
)

// Write returns Challenges as YAML, with their fields in the order of the documentation.
func Write(all []bergv1.Challenge) ([]byte, error) {
	var out bytes.Buffer
	encoder := yamlv3.NewEncoder(&out)
	encoder.SetIndent(2)
	for _, c := range all {
		data, err := json.Marshal(c)
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", c.Name, err)
		}
		var node yamlv3.Node
		if err := yamlv3.Unmarshal(data, &node); err != nil {
			return nil, fmt.Errorf("encode %s: %w", c.Name, err)
		}
		block(&node)
		if err := encoder.Encode(&node); err != nil {
			return nil, fmt.Errorf("encode %s: %w", c.Name, err)
		}
	}
	if err := encoder.Close(); err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return out.Bytes(), nil
}

// block removes the style of JSON, and writes modes as authors do. Strings that any version of YAML reads as something else
// are quoted: the encoder does so for values only.
func block(node *yamlv3.Node) {
	node.Style = 0
	if node.Kind == yamlv3.ScalarNode && node.Tag == "!!str" && !strings.ContainsAny(node.Value, "\n\r") {
		var plain any
		if err := yaml.Unmarshal([]byte(node.Value), &plain); err != nil || plain != node.Value {
			node.Style = yamlv3.DoubleQuotedStyle
		}
	}
	for _, n := range node.Content {
		block(n)
	}
	if flag := yamlnode.Child(node, "dynamicFlag"); flag != nil {
		if mode := yamlnode.Child(yamlnode.Child(flag, "content"), "mode"); mode != nil {
			if bits, err := strconv.Atoi(mode.Value); err == nil {
				mode.Value = fmt.Sprintf("0%03o", bits)
			}
		}
	}
}
