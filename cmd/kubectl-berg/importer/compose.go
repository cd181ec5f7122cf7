package importer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/sirupsen/logrus"
	yamlv3 "go.yaml.in/yaml/v3"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/lint"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/localfile"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/yamlnode"
)

// unknownKey matches an error about a key that compose files do not have.
var unknownKey = regexp.MustCompile(`^(?:validating \S+: )?services\.\S+ (?:false schema|additional properties)`)

// compose imports a compose file, with its override files.
func (out *Result) compose(file string, extraFiles []string, content []byte, o Options) error {
	root, err := parseYAML(content)
	if err != nil {
		return fmt.Errorf("%s: must be YAML: %s", file, lint.FormatYAMLError(err))
	}
	if root == nil {
		return fmt.Errorf("%s: %w", file, errEmpty)
	}
	if root.Kind != yamlv3.MappingNode {
		return fmt.Errorf("%s: must be a compose file: it is no YAML mapping", file)
	}
	if yamlnode.Child(root, "services") == nil {
		switch kind := fieldText(root, "kind"); {
		case strings.HasPrefix(fieldText(root, "apiVersion"), bergv1.GroupVersion.Group+"/"):
			return fmt.Errorf("%s: is a %s already: check it with kubectl berg lint -f", file, kind)
		case kind != "" && fieldText(root, "apiVersion") != "":
			return fmt.Errorf("%s: must be a compose file: it is an object of Kubernetes of kind %s", file, kind)
		case !firstFormat(root):
			return fmt.Errorf("%s: must be a compose file: it has no services. To import the compose file or Dockerfile next to it, name the folder", file)
		}
		content = []byte("services:\n  " + strings.ReplaceAll(strings.ReplaceAll(string(content), "\r", ""), "\n", "\n  "))
		root = &yamlv3.Node{Kind: yamlv3.MappingNode, Content: []*yamlv3.Node{{Kind: yamlv3.ScalarNode, Value: "services"}, root}}
	}
	folder := filepath.Dir(file)
	name := sourceText(yamlnode.Child(root, "name"))
	if strings.Contains(name, "$") || name == "" {
		name = folderName(file)
	}
	d := out.draft(file, name, o)
	d.root = root
	l := composeLoader{draft: d, folder: folder, environment: o.Environment, unset: map[string]bool{}}
	logrus.SetOutput(io.Discard) // compose-go warns of keys that mean nothing
	if out.files.isFile(filepath.Join(folder, ".env")) {
		l.file, err = l.variables(filepath.Join(folder, ".env"))
		switch {
		case errors.Is(err, localfile.ErrRefused):
			d.lost(nil, "env_file", filepath.Join(folder, ".env"), refusal(err))
		case err != nil:
			return fmt.Errorf("%s: %s", filepath.Join(folder, ".env"), oneLine(err.Error()))
		}
	}
	if l.dropEmptyPorts(yamlnode.Child(root, "services")) {
		if content, err = yamlv3.Marshal(root); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	details := types.ConfigDetails{WorkingDir: folder, ConfigFiles: []types.ConfigFile{{Filename: file, Content: content}}, Environment: types.Mapping{}}
	for _, path := range extraFiles {
		extra, err := out.files.Read(path)
		if err != nil {
			return fmt.Errorf("%s: %s", path, refusal(err))
		}
		details.ConfigFiles = append(details.ConfigFiles, types.ConfigFile{Filename: path, Content: extra})
	}
	project, err := l.load(details)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if len(project.Services) == 0 {
		return fmt.Errorf("%s: %w", file, errNoServices)
	}
	groups := d.compose(project, yamlnode.Child(root, "services"), &l)
	for _, name := range slices.Sorted(maps.Keys(l.unset)) {
		out.Chosen = append(out.Chosen, Note{File: file, Key: "${" + name + "}", Message: "is not set, and is replaced by nothing: set it with --env " + name + "=VALUE, or in " + filepath.Join(folder, ".env") +
			". If the dollar belongs to the text, write $$, or in a file of variables single quotes around the value"})
	}
	if len(groups) < 2 || !o.Split {
		return d.finish()
	}
	for _, g := range groups {
		o.Name = ""
		part := out.draft(file, g.name, o)
		part.root, part.services = root, g.services
		if err := part.finish(); err != nil {
			return err
		}
	}
	return nil
}

// errNoServices means that a compose file starts nothing.
var errNoServices = errors.New("must be a compose file: it has no services")

// firstFormat reports whether a file has the format of the first version of compose: services without a key above them.
func firstFormat(root *yamlv3.Node) bool {
	for i := 1; i < len(root.Content); i += 2 {
		if yamlnode.Child(root.Content[i], "image") == nil && yamlnode.Child(root.Content[i], "build") == nil {
			return false
		}
	}
	return len(root.Content) > 0
}

// load reads files as docker compose does. What docker compose refuses is imported as far as possible, and named.
func (l *composeLoader) load(details types.ConfigDetails) (*types.Project, error) {
	first, attempt := l.checkReferences(details), 0
	switch {
	case errors.Is(first, localfile.ErrRefused):
		attempt = 2 // without other files
	case first != nil:
		return nil, errors.New(lint.FormatYAMLError(first))
	}
	for ; attempt < 3; attempt++ {
		project, err := loadProject(details, func(o *loader.Options) {
			o.SetProjectName("challenge", true)
			o.SkipNormalization, o.SkipConsistencyCheck, o.SkipResolveEnvironment, o.SkipResolveLabels = true, true, true, true
			o.SkipValidation = attempt > 0
			o.SkipExtends, o.SkipInclude = attempt > 1, attempt > 1
			o.Profiles = []string{"*"}
			o.Interpolate.LookupValue, o.Interpolate.Substitute = l.lookup, l.substitute
		})
		if err == nil {
			if errors.Is(first, localfile.ErrRefused) {
				l.lost(nil, "services", "", "extends and include are left out: "+refusal(first))
			} else if first != nil && !unknownKey.MatchString(first.Error()) { // each of those is named by itself
				l.lost(nil, "services", "", "docker compose refuses the file: "+oneLine(first.Error()))
			}
			return project, nil
		}
		if first == nil || errors.Is(first, localfile.ErrRefused) { // the file fails without the others, too
			first = err
		}
	}
	if len(l.unset) > 0 {
		return nil, fmt.Errorf("%s (set %s with --env NAME=VALUE)", oneLine(first.Error()), strings.Join(slices.Sorted(maps.Keys(l.unset)), ", "))
	}
	return nil, errors.New(oneLine(first.Error()))
}

// loadProject loads a project without the validation of compose-go, which then panics on a value of the wrong type. It
// returns an error instead.
func loadProject(details types.ConfigDetails, options func(*loader.Options)) (project *types.Project, err error) {
	defer func() {
		if failed := recover(); failed != nil {
			err = fmt.Errorf("a value has the wrong type: %v", failed)
		}
	}()
	return loader.LoadWithContext(context.Background(), details, options)
}

// dropEmptyPorts removes ports whose number is a variable that is not set, and reports whether there are any: docker
// compose refuses the whole file for them.
func (l *composeLoader) dropEmptyPorts(services *yamlv3.Node) (dropped bool) {
	services = yamlnode.Target(services)
	if services == nil || services.Kind != yamlv3.MappingNode {
		return false
	}
	for i := 0; i+1 < len(services.Content); i += 2 {
		s := &service{name: services.Content[i].Value, node: services.Content[i+1]}
		ports := yamlnode.Target(yamlnode.Child(s.node, "ports"))
		if ports == nil || ports.Kind != yamlv3.SequenceNode {
			continue
		}
		ports.Content = slices.DeleteFunc(ports.Content, func(item *yamlv3.Node) bool {
			text := sourceText(item)
			if !strings.Contains(text, "$") || yamlnode.Target(item).Kind != yamlv3.ScalarNode {
				return false
			}
			number, err := l.substitute(text, l.lookup)
			number, _, _ = strings.Cut(number[strings.LastIndex(number, ":")+1:], "/")
			if err != nil || number != "" {
				return false
			}
			l.lost(s, "ports", text, "has no number, since its variable is not set: set it with --env, or in "+filepath.Join(l.folder, ".env"))
			dropped = true
			return true
		})
	}
	return dropped
}
