package lint

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/yamlnode"
	"github.com/bergctf/berg-operator/internal/berg/rules"
)

// Severity says whether a Challenge cannot run, or is probably a mistake.
type Severity string

// The severities.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
)

// Finding is one mistake.
type Finding struct {
	File     string   `json:"file"`
	Line     int      `json:"line"`
	Column   int      `json:"column"`
	Severity Severity `json:"severity"`
	// Rule is the field without indexes, or yaml for the source itself.
	Rule      string `json:"rule"`
	Challenge string `json:"challenge,omitempty"`
	Field     string `json:"field,omitempty"`
	Message   string `json:"message"`
}

// Source is a file.
type Source struct {
	Name    string
	Content []byte
	// Named: the user named the file, so it is expected to hold YAML.
	Named bool
}

// Result is the content of one file.
type Result struct {
	Findings []Finding
	// Challenges are the Challenges that can be read.
	Challenges []bergv1.Challenge
	// Found is the number of Challenges, whether they can be read or not.
	Found int
}

// Check checks a file. A file without a Challenge has no findings, unless it was named and is not YAML.
func Check(s Source, settings rules.Settings) Result {
	var out Result
	for _, d := range documents(s.Content) {
		out.document(s, d, settings)
	}
	slices.SortStableFunc(out.Findings, func(a, b Finding) int { return cmp.Or(a.Line-b.Line, a.Column-b.Column) })
	return out
}

type document struct {
	text []byte
	// before is the number of lines before the document.
	before int
}

// documents splits a file at the lines that begin with ---. Each document is parsed alone, so that an error in one does not hide
// the others.
func documents(content []byte) (all []document) {
	content = bytes.TrimPrefix(content, []byte("\xef\xbb\xbf"))
	current, line := document{}, 0
	for text := range bytes.Lines(content) {
		rest, separator := bytes.CutPrefix(text, []byte("---"))
		rest = bytes.TrimSpace(rest)
		if separator && (len(rest) == 0 || rest[0] == '#') {
			all = append(all, current)
			current = document{before: line + 1}
		} else {
			current.text = append(current.text, text...)
		}
		line++
	}
	return append(all, current)
}

// The words in which the parser of YAML says where a problem is.
var (
	lineOfError   = regexp.MustCompile(`line (\d+): `)
	unknownAnchor = regexp.MustCompile(`unknown anchor '([^']*)'`)
	group         = bergv1.GroupVersion.Group
)

// document finds the Challenges of a document: one object, or the items of a List. It reports a document that is not YAML where
// it may be about a Challenge, because a folder can have templates of other programs.
func (out *Result) document(s Source, d document, settings rules.Settings) {
	var root yamlv3.Node
	err := yamlv3.Unmarshal(d.text, &root)
	if err == nil {
		err = yamlnode.Check(&root)
	}
	if err != nil {
		if s.Named || bytes.Contains(d.text, []byte(group)) {
			out.syntax(s, d, err)
		}
		return
	}
	if len(root.Content) == 0 || root.Content[0].Kind != yamlv3.MappingNode {
		return
	}
	top := root.Content[0]
	if list := yamlnode.Child(top, "items"); list != nil && strings.HasSuffix(scalarText(yamlnode.Child(top, "kind")), "List") {
		for i := range yamlnode.Target(list).Content { // as kubectl get -o yaml writes them
			each := yamlnode.Item(list, i)
			if text, err := yamlv3.Marshal(each); err == nil {
				out.challenge(s, document{text, d.before}, yamlnode.Target(each), settings)
			}
		}
		return
	}
	out.challenge(s, d, top, settings)
}

const (
	challengeKind = "Challenge"
	// maxTypos is the number of wrong letters in the API group up to which an object counts as a Challenge.
	maxTypos = 2
)

// challenge checks one object, whose text has all that it refers to.
func (out *Result) challenge(s Source, d document, top *yamlv3.Node, settings rules.Settings) {
	kind, apiVersion := scalarText(yamlnode.Child(top, "kind")), scalarText(yamlnode.Child(top, "apiVersion"))
	apiGroup, _, _ := strings.Cut(apiVersion, "/")
	misspelt := apiVersion == "" || strings.HasPrefix(apiVersion, group) || distance(strings.ToLower(apiGroup), group) <= maxTypos
	kindMisspelt := kind == "" || strings.EqualFold(kind, challengeKind)
	if (kind != challengeKind || !misspelt) && (apiGroup != group || !kindMisspelt) {
		return
	}
	out.Found++
	c := checker{result: out, file: s.Name, before: d.before, top: top, challenge: scalarText(yamlnode.Child(yamlnode.Child(top, "metadata"), "name"))}
	if apiVersion != bergv1.GroupVersion.String() {
		c.add(Error, "apiVersion", fmt.Sprintf("must be %s", bergv1.GroupVersion))
	}
	if kind != challengeKind {
		c.add(Error, "kind", "must be "+challengeKind)
	}
	c.duplicates(top)
	c.noJSON(top)
	data, err := yaml.YAMLToJSON(d.text)
	if err != nil {
		if !c.failed {
			out.syntax(s, d, err)
		}
		return
	}
	var value any
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber() // a number of twenty digits must reach the API server unchanged
	if err := decoder.Decode(&value); err != nil {
		out.syntax(s, d, err)
		return
	}
	c.types(value)
	var challenge bergv1.Challenge
	if err := json.Unmarshal(data, &challenge); err != nil {
		if !c.failed {
			c.add(Error, "", err.Error())
		}
		return
	}
	out.Challenges = append(out.Challenges, challenge)
	c.errors(rules.SchemaErrors(&challenge))
	c.errors(rules.Errors(&challenge, settings))
	for _, w := range rules.Warnings(&challenge) {
		c.add(Warning, w.Field, w.Message)
	}
	for i, container := range challenge.Spec.Containers {
		if settings.SandboxAssumed && container.Sandbox == bergv1.SandboxNested {
			c.add(Warning, fmt.Sprintf("spec.containers[%d].sandbox", i), "the operator refuses it by default: it is assumed that the administrator has set CHALLENGE_NESTED_SECCOMP_PROFILE. "+
				"Say what your operator has with --setting CHALLENGE_NESTED_SECCOMP_PROFILE=VALUE, which may be empty")
		}
	}
}

// FormatYAMLError is the error of a YAML parser in one line, with the usual mistake of authors.
func FormatYAMLError(err error) string {
	message := strings.Join(strings.Fields(strings.TrimPrefix(err.Error(), "yaml: ")), " ")
	if strings.Contains(message, "cannot start any token") {
		message += ", usually a tab: indent with spaces"
	}
	if strings.Contains(message, "did not find expected key") {
		message += ": compare the indentation with the lines around it"
	}
	if strings.Contains(message, "mapping values are not allowed") {
		message += ": put a text with a colon in quotes, and compare the indentation with the lines around it"
	}
	return message
}

// syntax takes the line out of the message, so that the finding has it once. An unknown anchor comes without a line.
func (out *Result) syntax(s Source, d document, err error) {
	line := 1
	message := FormatYAMLError(err)
	if found := lineOfError.FindStringSubmatchIndex(message); found != nil {
		line, _ = strconv.Atoi(message[found[2]:found[3]])
		message = message[:found[0]] + message[found[1]:]
	} else if found := unknownAnchor.FindStringSubmatch(message); found != nil {
		before, _, _ := bytes.Cut(d.text, []byte("*"+found[1]))
		line = bytes.Count(before, []byte("\n")) + 1
	}
	out.Findings = append(out.Findings, Finding{
		File: s.Name, Line: d.before + line, Column: 1, Severity: Error, Rule: "yaml", Message: "cannot be read as YAML: " + message,
	})
}

// checker collects the findings of one Challenge.
type checker struct {
	result    *Result
	file      string
	before    int
	top       *yamlv3.Node
	challenge string
	failed    bool
	// reported are the fields that have an error: one is enough.
	reported map[string]bool
}

// errors adds the findings of package rules, whose fields are in the notation of nodeAt.
func (c *checker) errors(errs field.ErrorList) {
	for _, e := range errs {
		c.add(Error, e.Field, strings.TrimPrefix(e.ErrorBody(), "Invalid value: "))
	}
}

// add adds a finding at the field's position in the source.
func (c *checker) add(severity Severity, path, message string) {
	c.addAt(severity, path, message, nodeAt(c.top, path))
}

// addAt leaves out further findings about a field that has an error, because they often follow from it.
// Findings without a field are all kept.
func (c *checker) addAt(severity Severity, path, message string, node *yamlv3.Node) {
	if c.reported == nil {
		c.reported = map[string]bool{}
	}
	if path != "" && c.reported[path] {
		return
	}
	c.reported[path] = severity == Error
	c.failed = c.failed || severity == Error
	c.result.Findings = append(c.result.Findings, Finding{
		File: c.file, Line: c.before + max(1, node.Line), Column: max(1, node.Column), Severity: severity,
		Rule: ruleName(path), Challenge: c.challenge, Field: path, Message: message,
	})
}

// brackets are the indexes and keys in the name of a field.
var brackets = regexp.MustCompile(`\[[^\]]*\]`)

// ruleName names the rule of a finding by its field.
func ruleName(path string) string {
	path = strings.TrimPrefix(brackets.ReplaceAllString(path, ""), "spec.")
	return cmp.Or(path, "challenge")
}

// noJSON finds parts of YAML that the API server cannot read: a key without a name, and infinite numbers.
func (c *checker) noJSON(node *yamlv3.Node) {
	plain := func(n *yamlv3.Node, tag string) bool {
		return n.Kind == yamlv3.ScalarNode && n.Style == 0 && n.Tag == tag
	}
	for i, n := range node.Content {
		switch {
		case plain(n, "!!null") && node.Kind == yamlv3.MappingNode && i%2 == 0:
			c.addAt(Error, "", fmt.Sprintf("%s without quotes is no name in YAML: write \"%s\"", n.Value, n.Value), n)
		case plain(n, "!!float") && notFinite.MatchString(n.Value):
			c.addAt(Error, "", fmt.Sprintf("%s without quotes is a number that the API server does not know: write \"%s\"", n.Value, n.Value), n)
		}
		c.noJSON(n)
	}
}

// notFinite matches infinities and NaN in YAML.
var notFinite = regexp.MustCompile(`(?i)^[-+]?\.(inf|nan)$`)

// duplicates finds keys that are written twice. The API server's clients refuse them, or take the last.
func (c *checker) duplicates(node *yamlv3.Node) {
	if node.Kind == yamlv3.MappingNode {
		first := map[string]int{}
		for i := 0; i+1 < len(node.Content); i += 2 {
			key := node.Content[i]
			name := keyName(key)
			if line, twice := first[name]; twice && name != "<<" {
				c.addAt(Error, "", fmt.Sprintf("%s is written twice, first in line %d: remove one", name, c.before+line), key)
			}
			first[name] = key.Line
		}
	}
	for _, n := range node.Content {
		c.duplicates(n)
	}
}
