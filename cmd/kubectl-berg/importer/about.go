package importer

import (
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"

	"github.com/bergctf/berg-operator/cmd/kubectl-berg/yamlnode"
)

// aboutFiles are names of files that describe a challenge to players, as ctfcli and the tools of events have them.
var aboutFiles = []string{
	"challenge.yml", "challenge.yaml", "challenge.json", "ctfcli.yaml", "ctfcli.yml", "chall.yml", "chall.yaml", "info.yml", "info.yaml", "metadata.yml", "metadata.yaml",
}

// about is what such a file says.
type about struct {
	file string
	root *yamlv3.Node
}

// Fields of these files that are carried over, or say nothing about a Challenge.
var aboutFields = []string{
	"name", "author", "authors", "category", "categories", "description", "value", "flag", "flags", "tags", "type", "image", "connection_info", "protocol", "container",
	"host", "version", "state", "visible", "id", "deploy", "provide", "containers", "expose", "difficulty",
}

// parseAbout reads a file, nil if it describes no challenge.
func parseAbout(file string, content []byte) *about {
	root, err := parseYAML(content)
	if err != nil || yamlnode.Child(root, "apiVersion") != nil || yamlnode.Child(root, "services") != nil || fieldText(root, "name") == "" {
		return nil
	}
	for _, key := range []string{"category", "categories", "flag", "flags", "value", "description"} {
		if yamlnode.Child(root, key) != nil {
			return &about{file, root}
		}
	}
	return nil
}

// image returns the image of the challenge in a registry, "" for none, a folder or a compose file.
func (a *about) image() string {
	name := strings.TrimPrefix(fieldText(a.root, "image"), "docker://")
	if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "/") || strings.HasPrefix(name, "__") {
		return ""
	}
	return name
}

// findAbout returns the file that describes the challenge of a folder: in it, or in the nearest folder above that is imported.
func (out *Result) findAbout(folder string) *about {
	for {
		if found := out.aboutIn(folder); found != nil {
			return found
		}
		rel, err := filepath.Rel(out.folderName, folder)
		if err != nil || rel == "." || strings.HasPrefix(rel, "..") {
			return nil
		}
		folder = filepath.Dir(folder)
	}
}

// aboutIn returns the file in a folder that describes its challenge, nil if there is none.
func (out *Result) aboutIn(folder string) *about {
	for _, name := range aboutFiles {
		file := filepath.Join(folder, name)
		if content, err := out.files.read(file); err == nil {
			if found := parseAbout(file, content); found != nil {
				return found
			}
		}
	}
	return nil
}

// fieldText returns the value of a key, "" if it is no scalar.
func fieldText(node *yamlv3.Node, key string) string { return scalarText(yamlnode.Child(node, key)) }

func scalarText(node *yamlv3.Node) string {
	if node = yamlnode.Target(node); node == nil || node.Kind != yamlv3.ScalarNode || node.Tag == "!!null" {
		return ""
	}
	return strings.TrimSpace(node.Value)
}

// fieldTexts returns the scalars of a key with one value or a list.
func fieldTexts(node *yamlv3.Node, keys ...string) (all []string) {
	for _, key := range keys {
		if value := fieldText(node, key); value != "" {
			all = append(all, value)
		}
		if list := yamlnode.Target(yamlnode.Child(node, key)); list != nil && list.Kind == yamlv3.SequenceNode {
			for _, item := range list.Content {
				if value := scalarText(item); value != "" {
					all = append(all, value)
				}
			}
		}
	}
	return all
}

// describe carries over what players read of a challenge, and its flag.
func (d *draft) describe(a *about) {
	d.about = a
	if a == nil || a.file == d.file {
		return
	}
	spec := &d.challenge.Spec
	spec.DisplayName, spec.Description, spec.Difficulty = fieldText(a.root, "name"), fieldText(a.root, "description"), fieldText(a.root, "difficulty")
	spec.Author = strings.Join(fieldTexts(a.root, "author", "authors"), ", ")
	spec.Categories, spec.Tags = fieldTexts(a.root, "category", "categories"), fieldTexts(a.root, "tags")
	lost := func(key, text, message string) {
		d.result.Lost = append(d.result.Lost, Note{File: a.file, Line: yamlnode.Line(a.root, key), Key: key, Text: text, Message: message})
	}
	if value := fieldText(a.root, "value"); value != "" {
		if points, err := strconv.ParseFloat(value, 64); err == nil && fieldText(a.root, "type") != "dynamic" {
			spec.StaticValue = &points
		} else {
			lost("value", value, "the platform calculates scores that change: configure them there")
		}
	}
	switch info := fieldText(a.root, "connection_info"); {
	case sshCommand.MatchString(info):
		spec.ConnectionInfo = sshHost.ReplaceAllString(sshPort.ReplaceAllString(info, " -p {port}"), "${1}@{host}")
		if !strings.Contains(spec.ConnectionInfo, "{port}") {
			spec.ConnectionInfo = sshCommand.ReplaceAllString(spec.ConnectionInfo, "ssh -p {port} ")
		}
	case info != "" && !plainAddress.MatchString(info):
		lost("connection_info", info, "players see the addresses of the instance: if they need more, such as a password, write connectionInfo")
	}
	flags := fieldTexts(a.root, "flag", "flags")
	for _, key := range []string{"flags", "flag"} {
		list := yamlnode.Target(yamlnode.Child(a.root, key))
		for i := 0; list != nil && list.Kind == yamlv3.SequenceNode && i < len(list.Content); i++ {
			item := list.Content[i]
			switch found := fieldText(item, "content") + fieldText(item, "flag"); {
			case found == "":
			case fieldText(item, "type") == "regex":
				lost(key, found, "a Challenge has no regular expression for flags: each instance gets its own flag")
			default:
				flags = append(flags, found)
			}
		}
	}
	for i, flag := range flags {
		if d.flag(flag); i == 1 {
			lost("flags", "", "a Challenge has one flag, and the first one is kept")
		}
	}
	if container := yamlnode.Child(a.root, "container"); yamlnode.Child(container, "exposePort") != nil {
		d.container = container
		d.otherFieldsAs(&service{name: d.challenge.Name}, a.file, container, []string{"exposePort", "flagTemplate", "containerImage", "memoryLimit", "cpuCount"}, func(string) string { return "a Challenge has no such field" })
	}
	for _, key := range []string{"containers", "expose"} {
		if node := yamlnode.Child(a.root, key); node != nil {
			lost(key, sourceText(node), "is left out: containers and ports are those of "+d.file)
		}
	}
	d.otherFieldsAs(&service{name: d.challenge.Name, node: a.root}, a.file, a.root, aboutFields, func(string) string { return "is no field of a Challenge: configure it in the platform" })
}

var (
	// sshCommand, sshPort and sshHost match the parts of a command for players, and plainAddress an address without words.
	sshCommand   = regexp.MustCompile(`\bssh\s+`)
	sshPort      = regexp.MustCompile(`\s-p\s*\d+`)
	sshHost      = regexp.MustCompile(`([\w.-]+)@[\w.-]+`)
	plainAddress = regexp.MustCompile(`^(?:(?:nc|ncat|netcat|telnet|socat|openssl)(?:\s+\S+){1,8}|\S+)$`)

	saysTLS  = regexp.MustCompile(`(?i)\b(?:n?cat|socat)\b.*\b(?:ssl|tls|openssl)\b|openssl s_client`)
	saysTCP  = regexp.MustCompile(`(?i)^(?:tcp$|tcp://)|\b(?:nc|ncat|netcat|telnet|socat)\s`)
	saysHTTP = regexp.MustCompile(`(?i)^https?(?:$|://)|\bhttps?://`)
)

// reach says how players reach a port of which no other file says it.
func (d *draft) reach(p port) port {
	if d.about == nil || p.udp || p.http || p.tls {
		return p
	}
	for _, key := range []string{"connection_info", "protocol", "description"} {
		value := fieldText(d.about.root, key)
		p.tls = saysTLS.MatchString(value)
		if p.tcp && !p.tls {
			continue // a proxy in front of it may end TLS
		}
		p.http = !p.tls && saysHTTP.MatchString(value) && key != "description"
		p.tcp = !p.tls && !p.http && saysTCP.MatchString(value)
		if p.tls || p.http || p.tcp {
			return p
		}
	}
	return p
}
