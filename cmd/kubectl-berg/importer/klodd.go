package importer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	yamlv3 "go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/bergctf/berg-operator/cmd/kubectl-berg/lint"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/yamlnode"
)

const kloddGroup = "klodd.tjcsec.club"

func isKlodd(content []byte) bool { return bytes.Contains(content, []byte(kloddGroup+"/")) }

// kloddChallenge has the fields of klodd's kind Challenge that the importer reads.
type kloddChallenge struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
	Spec struct {
		Name    string `json:"name"`
		Timeout int64  `json:"timeout"`
		Pods    []struct {
			Name  string `json:"name"`
			Ports []struct {
				Port     int32  `json:"port"`
				Protocol string `json:"protocol"`
			} `json:"ports"`
			Egress bool           `json:"egress"`
			Spec   corev1.PodSpec `json:"spec"`
		} `json:"pods"`
		Expose      exposes           `json:"expose"`
		Middlewares []json.RawMessage `json:"middlewares"`
	} `json:"spec"`
}

type expose struct {
	Kind string `json:"kind"`
	Pod  string `json:"pod"`
	Port int32  `json:"port"`
}

// exposes is one or a list.
type exposes []expose

// UnmarshalJSON reads both.
func (e *exposes) UnmarshalJSON(data []byte) error { return oneOrMore(data, (*[]expose)(e)) }

// oneOrMore reads a list, or one item as a list.
func oneOrMore[T any](data []byte, into *[]T) error {
	if bytes.HasPrefix(bytes.TrimSpace(data), []byte("[")) {
		return json.Unmarshal(data, into)
	}
	var single T
	if err := json.Unmarshal(data, &single); err != nil {
		return err
	}
	*into = []T{single}
	return nil
}

func (out *Result) klodd(file string, content []byte, o Options) error {
	documents, err := parseDocuments(content)
	if err != nil {
		return fmt.Errorf("%s: %s", file, lint.FormatYAMLError(err))
	}
	found := false
	for _, document := range documents {
		var k kloddChallenge
		if !isKlodd(document.text) {
			continue
		}
		if err := yaml.Unmarshal(document.text, &k); err != nil {
			return fmt.Errorf("%s: must be a challenge of klodd in YAML: %s", file, typeError(err))
		}
		found = true
		if err := out.kloddOne(file, k, yamlnode.Child(document.root, "spec"), o); err != nil {
			return err
		}
		o.Name = ""
	}
	if !found {
		return fmt.Errorf("%s: %w", file, ErrNothing)
	}
	return nil
}

func (out *Result) kloddOne(file string, k kloddChallenge, spec *yamlv3.Node, o Options) error {
	d := out.draft(file, k.Metadata.Name, o)
	d.challenge.Spec.DisplayName = k.Spec.Name
	if k.Spec.Timeout > 0 {
		d.result.Lost = append(d.result.Lost, Note{
			File: file, Line: yamlnode.Line(spec, "timeout"), Key: "timeout", Text: sourceText(yamlnode.Child(spec, "timeout")),
			Message: "a time is part of each instance: set spec.timeout of the ChallengeInstance, or CHALLENGE_INSTANCE_TIMEOUT",
		})
	}
	if len(k.Spec.Middlewares) > 0 {
		d.result.Lost = append(d.result.Lost, Note{
			File: file, Line: yamlnode.Line(spec, "middlewares"), Key: "middlewares", Text: sourceText(yamlnode.Child(spec, "middlewares")),
			Message: "the Gateway has no middlewares for one challenge",
		})
	}
	for i, pod := range k.Spec.Pods {
		if pod.Egress {
			d.challenge.Spec.AllowOutboundTraffic = true
		}
		var node *yamlv3.Node
		if pods := yamlnode.Child(spec, "pods"); pods != nil && i < len(pods.Content) {
			node = pods.Content[i]
		}
		for j, c := range pod.Spec.Containers {
			s := &service{name: pod.Name, node: node, named: c.Image}
			if j > 0 {
				s.name = pod.Name + "-" + c.Name
				d.lost(s, "spec", c.Name, "containers of a pod shared localhost: this one has a hostname of its own")
			}
			s.container = d.podContainer(s, c, yamlnode.Item(yamlnode.Child(yamlnode.Child(node, "spec"), "containers"), j))
			s.container.RuntimeClassName = ptr.Deref(pod.Spec.RuntimeClassName, "")
			if j == 0 {
				for _, p := range pod.Ports {
					target := port{number: p.Port, udp: p.Protocol == "UDP"}
					e := slices.IndexFunc(k.Spec.Expose, func(e expose) bool { return e.Pod == pod.Name && e.Port == p.Port })
					if e < 0 {
						s.exposed = append(s.exposed, target)
						continue
					}
					target.http, target.tcp = k.Spec.Expose[e].Kind == "http", k.Spec.Expose[e].Kind == "tcp"
					s.published = append(s.published, target)
				}
			}
			d.services = append(d.services, s)
		}
		d.otherFields(&service{name: pod.Name, node: node}, yamlnode.Child(node, "spec"), podFields)
	}
	return d.finish()
}
