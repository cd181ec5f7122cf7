package importer

import (
	"errors"
	"fmt"
	"strings"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/rules"
)

// DefaultRegistry stands in names of images until the author names a registry.
const DefaultRegistry = "registry.example.com"

// Options are choices that the author's files do not make.
type Options struct {
	// Name of the Challenge. Default: the name of the compose project or of the folder.
	Name string
	// Namespace of the Challenge, "" for none.
	Namespace string
	// Registry and Tag name the images that the author builds.
	Registry string
	Tag      string
	// Environment replaces variables in a compose file. It has priority over the file .env.
	Environment map[string]string
	// Profiles of a compose file to include.
	Profiles []string
	// FlagFile is the path of the flag in an image, as PATH or CONTAINER=PATH.
	FlagFile string
	// Split makes a Challenge of each group of services that no network connects.
	Split bool
	// AllowOutside allows files outside of the folder that is imported.
	AllowOutside bool
	// Allowed are the limits of the operator.
	Allowed rules.Allowed
}

// Note is something that the author should know.
type Note struct {
	File string `json:"file"`
	Line int    `json:"line,omitempty"`
	// Service is empty for the whole file.
	Service string `json:"service,omitempty"`
	Key     string `json:"key"`
	// Text is the text in the author's file.
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

// Result has the imported Challenges and notes about them.
type Result struct {
	Challenges []bergv1.Challenge `json:"challenges"`
	// Questions are about flags whose path the files leave open. FlagFile answers one.
	Questions []Note `json:"questions"`
	// Lost are parts that a Challenge cannot express.
	Lost []Note `json:"lost"`
	// Chosen are defaults where the files are silent.
	Chosen []Note  `json:"chosen"`
	Builds []Build `json:"builds"`

	files *files
	// folderName is the folder that is imported.
	folderName string
}

// ErrNothing means that a file or folder has nothing to import.
var ErrNothing = errors.New("no compose file, Dockerfile or challenge of klodd, kCTF or rCTF found")
