package importer

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/yamlnode"
)

// isRCDS reports whether a file is a challenge of rCTF that rcds deploys: it has containers, and is no object of Kubernetes.
func isRCDS(content []byte) bool {
	root, err := parseYAML(content)
	if err != nil || yamlnode.Child(root, "apiVersion") != nil || yamlnode.Child(root, "services") != nil {
		return false
	}
	containers := yamlnode.Target(yamlnode.Child(root, "containers"))
	return containers != nil && containers.Kind == yamlv3.MappingNode
}

// rcdsChallenge has the fields of a challenge of rcds that the importer reads.
type rcdsChallenge struct {
	Name        string                   `json:"name"`
	Author      rcdsNames                `json:"author"`
	Description string                   `json:"description"`
	Category    string                   `json:"category"`
	Flag        rcdsFlag                 `json:"flag"`
	Containers  map[string]rcdsContainer `json:"containers"`
	Expose      map[string][]struct {
		Target int32 `json:"target"`
		// TCP is a port of the host, or a host name under which a proxy ends TLS.
		TCP  any `json:"tcp"`
		TLS  any `json:"tls"`
		HTTP any `json:"http"`
	} `json:"expose"`
}

type rcdsContainer struct {
	Image       string                             `json:"image"`
	Build       rcdsBuild                          `json:"build"`
	Ports       []int32                            `json:"ports"`
	Environment map[string]bergv1.EnvironmentValue `json:"environment"`
	Resources   corev1.ResourceRequirements        `json:"resources"`
	Egress      bool                               `json:"egress"`
	Security    *corev1.SecurityContext            `json:"securityContext"`
}

// rcdsNames is one name or a list.
type rcdsNames []string

// UnmarshalJSON reads both.
func (n *rcdsNames) UnmarshalJSON(data []byte) error { return oneOrMore(data, (*[]string)(n)) }

// rcdsFlag is a text, or a file that has it.
type rcdsFlag struct {
	text string
	File string `json:"file"`
}

// UnmarshalJSON reads both.
func (f *rcdsFlag) UnmarshalJSON(data []byte) error {
	if bytes.HasPrefix(data, []byte(`"`)) {
		return yaml.Unmarshal(data, &f.text)
	}
	type object rcdsFlag
	return yaml.Unmarshal(data, (*object)(f))
}

// rcdsBuild is a folder, or an object with one.
type rcdsBuild struct {
	Context    string            `json:"context"`
	Dockerfile string            `json:"dockerfile"`
	Args       map[string]string `json:"args"`
}

// UnmarshalJSON reads both.
func (b *rcdsBuild) UnmarshalJSON(data []byte) error {
	if bytes.HasPrefix(data, []byte(`"`)) {
		return yaml.Unmarshal(data, &b.Context)
	}
	type object rcdsBuild
	b.Context = "."
	return yaml.Unmarshal(data, (*object)(b))
}

// Fields that are carried over, or say nothing about how a challenge runs.
var (
	rcdsFields = []string{
		"name", "author", "description", "category", "flag", "containers", "expose", "provide", "id", "value", "visible", "deploy", "sortWeight", "sort_weight", "tags", "tiebreakEligible",
	}
	rcdsContainerFields = []string{"image", "build", "ports", "environment", "resources", "egress", "securityContext"}
)

// rcds imports a challenge of rCTF.
func (out *Result) rcds(file string, content []byte, o Options) error {
	var c rcdsChallenge
	root, err := parseYAML(content)
	if err == nil {
		err = yaml.Unmarshal(content, &c)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Containers)) {
		if each := c.Containers[name]; err == nil && each.Image == "" && each.Build.Context == "" {
			err = fmt.Errorf("containers.%s must have image or build", name)
		}
	}
	if err != nil {
		return fmt.Errorf("%s: must be a challenge of rCTF in YAML: %s", file, typeError(err))
	}
	folder := filepath.Dir(file)
	d := out.draft(file, cmp.Or(folderName(file), c.Name), o)
	spec := &d.challenge.Spec
	spec.DisplayName, spec.Author, spec.Description = c.Name, strings.Join(c.Author, ", "), c.Description
	if c.Category != "" {
		spec.Categories = []string{c.Category}
	}
	if c.Flag.File != "" {
		c.Flag.text = d.readFlag(filepath.Join(folder, filepath.FromSlash(c.Flag.File)))
	}
	d.flag(c.Flag.text)
	containers := yamlnode.Target(yamlnode.Child(root, "containers"))
	for i := 0; i+1 < len(containers.Content); i += 2 {
		name := containers.Content[i].Value
		d.rcdsContainer(name, containers.Content[i+1], c, folder)
	}
	d.otherFields(&service{name: d.challenge.Name, node: root}, root, rcdsFields)
	return d.finish()
}

func (d *draft) rcdsContainer(name string, node *yamlv3.Node, c rcdsChallenge, folder string) {
	from := c.Containers[name]
	s := &service{name: name, node: node, named: from.Image}
	if from.Build.Context != "" {
		context := filepath.Join(folder, filepath.FromSlash(from.Build.Context))
		dockerfile := filepath.Join(context, cmp.Or(filepath.FromSlash(from.Build.Dockerfile), "Dockerfile"))
		s.build = &Build{Context: context, Args: from.Build.Args}
		if from.Build.Dockerfile != "" {
			s.build.Dockerfile = dockerfile
		}
		d.readDockerfile(s, "build", dockerfile, context, "")
	}
	s.container.Environment = map[string]bergv1.EnvironmentValue{}
	for _, key := range slices.Sorted(maps.Keys(from.Environment)) {
		text, err := from.Environment[key].Text()
		if err != nil {
			d.lost(s, "environment", key, err.Error())
			continue
		}
		s.container.Environment[key] = bergv1.StringValue(text)
	}
	s.container.ResourceRequests, s.container.ResourceLimits = convertResources(from.Resources.Requests), convertResources(from.Resources.Limits)
	d.validAmounts(s)
	d.challenge.Spec.AllowOutboundTraffic = d.challenge.Spec.AllowOutboundTraffic || from.Egress
	for _, e := range c.Expose[name] {
		name, _ := e.TCP.(string)
		_, err := strconv.Atoi(name)
		secure := e.TLS != nil && e.TLS != false || name != "" && err != nil
		s.published = append(s.published, port{number: e.Target, http: e.HTTP != nil, tls: secure && e.HTTP == nil, tcp: e.TCP != nil && !secure && e.HTTP == nil})
	}
	for _, number := range from.Ports {
		if !slices.ContainsFunc(s.published, func(p port) bool { return p.number == number }) {
			s.exposed = append(s.exposed, port{number: number})
		}
	}
	d.security(s, s, &s.container, from.Security)
	d.otherFields(s, node, rcdsContainerFields)
	d.otherFields(s, yamlnode.Child(node, "securityContext"), podSecurityFields)
	d.services = append(d.services, s)
}
