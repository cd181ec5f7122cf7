package importer

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/rules"
)

// DefaultRegistry stands in names of images until the author names a registry.
const DefaultRegistry = "registry.example.com"

// Options are what the author's files do not say.
type Options struct {
	// Name of the Challenge. Default: that of the compose project, or of the folder.
	Name string
	// Namespace of the Challenge, "" for none.
	Namespace string
	// Registry and Tag name the images that the author builds.
	Registry string
	Tag      string
	// Environment replaces variables in a compose file, before those of its file .env.
	Environment map[string]string
	// Profiles of a compose file to include.
	Profiles []string
	// Allowed is what the operator allows.
	Allowed rules.Allowed
}

// Note is something that the author should know.
type Note struct {
	File string `json:"file"`
	Line int    `json:"line,omitempty"`
	// Service is empty for the whole file.
	Service string `json:"service,omitempty"`
	Key     string `json:"key"`
	// Text is what the author wrote.
	Text    string `json:"text,omitempty"`
	Message string `json:"message"`
}

// String is the note in one line.
func (n Note) String() string {
	parts := []string{n.File}
	if n.Line > 0 {
		parts[0] = fmt.Sprintf("%s:%d", n.File, n.Line)
	}
	for _, part := range []string{n.Service, n.Key, n.Text, n.Message} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, ": ")
}

// Build is an image that the author builds and pushes.
type Build struct {
	Image      string            `json:"image"`
	Context    string            `json:"context"`
	Dockerfile string            `json:"dockerfile,omitempty"`
	Target     string            `json:"target,omitempty"`
	Args       map[string]string `json:"args,omitempty"`
}

// Result is what was made of the author's files.
type Result struct {
	Challenges []bergv1.Challenge `json:"challenges"`
	// Lost are parts that a Challenge cannot express.
	Lost []Note `json:"lost"`
	// Chosen are defaults for what the files do not say.
	Chosen []Note  `json:"chosen"`
	Builds []Build `json:"builds"`
}

// ErrNothing means that a file or folder has nothing to import.
var ErrNothing = errors.New("no compose file, Dockerfile or challenge of klodd found")

// composeFiles are the names that docker compose looks for, in its order.
var composeFiles = []string{"compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml"}

// overrides are the names that docker compose adds.
var overrides = []string{"compose.override.yml", "compose.override.yaml", "docker-compose.override.yml", "docker-compose.override.yaml"}

// Import reads a file or folder.
func Import(path string, o Options) (Result, error) {
	out := Result{Lost: []Note{}, Chosen: []Note{}, Builds: []Build{}}
	info, err := os.Stat(path)
	if err != nil {
		return out, fmt.Errorf("open: %w", err)
	}
	if !info.IsDir() {
		content, err := os.ReadFile(path)
		if err != nil {
			return out, fmt.Errorf("read: %w", err)
		}
		return out, out.file(path, content, o)
	}
	return out, out.folder(path, o)
}

// Content imports the content of a file that has no name, in the current folder.
func Content(content []byte, o Options) (Result, error) {
	out := Result{Lost: []Note{}, Chosen: []Note{}, Builds: []Build{}}
	return out, out.file("standard input", content, o)
}

func (out *Result) file(path string, content []byte, o Options) error {
	switch {
	case isDockerfile(filepath.Base(path)) || path == "standard input" && bytes.HasPrefix(bytes.TrimSpace(content), []byte("FROM ")):
		return out.dockerfiles([]string{path}, o)
	case isKlodd(content):
		return out.klodd(path, content, o)
	default:
		return out.compose(path, nil, content, o)
	}
}

// folder imports what docker compose would start there. Otherwise it looks at the folders below: each with a compose file
// is a Challenge. Dockerfiles alone are the containers of one Challenge.
func (out *Result) folder(path string, o Options) error {
	if done, err := out.here(path, o); done {
		return err
	}
	var files []string
	below := 0
	err := filepath.WalkDir(path, func(at string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && at != path && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "node_modules"):
			return fs.SkipDir
		case entry.IsDir() && at != path:
			single := o
			if below > 0 {
				single.Name = "" // one name is for one Challenge
			}
			if done, err := out.here(at, single); done {
				below++
				return cmp.Or(err, fs.SkipDir)
			}
		case !entry.IsDir() && isDockerfile(entry.Name()):
			files = append(files, at)
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case below > 0:
		return nil
	case len(files) == 0:
		return fmt.Errorf("%s: %w", path, ErrNothing)
	}
	slices.Sort(files)
	return out.dockerfiles(files, o)
}

// here imports a compose file or a challenge of klodd in a folder.
func (out *Result) here(path string, o Options) (bool, error) {
	for _, name := range composeFiles {
		file := filepath.Join(path, name)
		content, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		var more []string
		for _, name := range overrides {
			if _, err := os.Stat(filepath.Join(path, name)); err == nil {
				more = append(more, filepath.Join(path, name))
				break
			}
		}
		return true, out.compose(file, more, content, o)
	}
	for _, name := range []string{"challenge.yaml", "challenge.yml", "klodd.yaml", "klodd.yml"} {
		file := filepath.Join(path, name)
		if content, err := os.ReadFile(file); err == nil && isKlodd(content) {
			return true, out.klodd(file, content, o)
		}
	}
	return false, nil
}

func isDockerfile(name string) bool {
	lower := strings.ToLower(name)
	return lower == "dockerfile" || lower == "containerfile" || strings.HasPrefix(lower, "dockerfile.") && lower != "dockerfile.dockerignore" ||
		strings.HasSuffix(lower, ".dockerfile")
}

// genericFolders say where a challenge runs, not which one it is.
var genericFolders = []string{
	"app", "build", "chall", "challenge", "challs", "container", "deploy", "deployment", "dist", "docker", "env", "files", "handout", "infra",
	"instance", "public", "remote", "server", "service", "source", "src", "web",
}

// folderName names a Challenge after the folder of a file.
func folderName(file string) string {
	at, err := filepath.Abs(filepath.Dir(file))
	if err != nil {
		return ""
	}
	for slices.Contains(genericFolders, strings.ToLower(filepath.Base(at))) && len(filepath.Dir(at)) > 1 {
		at = filepath.Dir(at)
	}
	return filepath.Base(at)
}

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
