package importer

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"

	"github.com/compose-spec/compose-go/v2/dotenv"
	"github.com/compose-spec/compose-go/v2/template"
	"github.com/compose-spec/compose-go/v2/types"
)

var (
	plainVariable    = regexp.MustCompile(`(^|[^$])\$(?:\{(\w+)\}|(\w+))`)
	requiredVariable = regexp.MustCompile(`\$\{(\w+):?\?[^}]*\}`)
)

type composeLoader struct {
	*draft
	folder            string
	environment, file map[string]string
	unset             map[string]bool
}

func (l *composeLoader) lookup(name string) (string, bool) {
	if value, ok := l.environment[name]; ok {
		return value, true
	}
	value, ok := l.file[name]
	if !ok && name == "COMPOSE_PROJECT_NAME" {
		return l.challenge.Name, true
	}
	return value, ok
}

// substitute replaces variables as docker compose does. One that is required and not set is replaced by nothing, too.
func (l *composeLoader) substitute(text string, mapping template.Mapping) (string, error) {
	note := func(name string) {
		if _, ok := mapping(name); !ok {
			l.unset[name] = true
		}
	}
	for _, found := range plainVariable.FindAllStringSubmatch(text, -1) {
		note(found[2] + found[3])
	}
	text = requiredVariable.ReplaceAllStringFunc(text, func(found string) string {
		name := requiredVariable.FindStringSubmatch(found)[1]
		note(name)
		value, _ := mapping(name)
		return strings.ReplaceAll(value, "$", "$$")
	})
	return template.SubstituteWithOptions(text, mapping, template.WithoutLogging)
}

// readEnvironment reads a file of variables.
func (l *composeLoader) readEnvironment(file types.EnvFile) (map[string]string, error) {
	if file.Format == "raw" {
		content, err := l.result.files.Read(file.Path)
		if err != nil {
			return nil, err
		}
		out := map[string]string{}
		for line := range strings.Lines(string(content)) {
			if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(name, "#") {
				out[name] = value
			}
		}
		return out, nil
	}
	return l.variables(file.Path)
}

// variables reads a file of variables, and notes the variables that its values refer to and nothing sets.
func (l *composeLoader) variables(file string) (map[string]string, error) {
	content, err := l.result.files.Read(file)
	if err != nil {
		return nil, err
	}
	var missing []string
	out, err := dotenv.ParseWithLookup(bytes.NewReader(content), func(name string) (string, bool) {
		value, ok := l.lookup(name)
		if !ok {
			missing = append(missing, name)
		}
		return value, ok
	})
	if err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	for _, name := range missing {
		if _, ok := out[name]; !ok {
			l.unset[name] = true
		}
	}
	return out, nil
}
