package importer

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/bergctf/berg-operator/cmd/kubectl-berg/localfile"
)

// composeFiles are the default file names of docker compose, in its order.
var composeFiles = []string{"compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml"}

// overrides are the names that docker compose adds.
var overrides = []string{"compose.override.yml", "compose.override.yaml", "docker-compose.override.yml", "docker-compose.override.yaml"}

// Import reads a file or folder.
func Import(path string, o Options) (Result, error) {
	info, err := os.Stat(path)
	if err != nil {
		return Result{}, fmt.Errorf("open: %w", err)
	}
	if info.IsDir() {
		if link, err := os.Readlink(path); err == nil { // WalkDir does not follow it
			if !filepath.IsAbs(link) {
				link = filepath.Join(filepath.Dir(path), link)
			}
			return Import(link, o)
		}
		return newResult(path, o, func(out *Result) error { return out.folder(path, o) })
	}
	content, err := localfile.Folder{}.Read(path)
	if err != nil {
		return Result{}, fmt.Errorf("%s: %w", path, err)
	}
	return newResult(filepath.Dir(path), o, func(out *Result) error {
		err := out.file(path, content, o)
		if err != nil && isRCDS(content) && out.folder(filepath.Dir(path), o) == nil {
			return nil // a file of an event's own tool: the others are imported, and a note names it
		}
		return err
	})
}

// newResult collects a result, whose files are in a folder.
func newResult(folder string, o Options, collect func(*Result) error) (Result, error) {
	out := Result{Questions: []Note{}, Lost: []Note{}, Chosen: []Note{}, Builds: []Build{}, folderName: folder}
	var err error
	if out.files, err = openFiles(folder, o); err != nil {
		return out, err
	}
	err = collect(&out)
	for _, name := range slices.Sorted(maps.Keys(out.files.refused)) {
		if errors.Is(err, ErrNothing) {
			err = fmt.Errorf("%s: %s", name, refusal(out.files.refused[name]))
		}
		out.Lost = append(out.Lost, Note{File: name, Key: "file", Message: refusal(out.files.refused[name])})
	}
	return out, err
}

// Content imports the content of a file that has no name, in the current folder.
func Content(content []byte, o Options) (Result, error) {
	return newResult(".", o, func(out *Result) error { return out.file(standardInput, content, o) })
}

func (out *Result) file(path string, content []byte, o Options) error {
	switch {
	case len(bytes.TrimSpace(content)) == 0:
		return fmt.Errorf("%s: %w", path, errEmpty)
	case isDockerfile(filepath.Base(path)) || looksLikeDockerfile(content):
		return out.dockerfiles([]string{path}, content, o)
	case isKlodd(content):
		return out.klodd(path, content, o)
	case isKCTF(content):
		return out.kctf(path, content, o)
	case isRCDS(content):
		return out.rcds(path, content, o)
	case path != standardInput && !slices.Contains(composeFiles, filepath.Base(path)) && parseAbout(path, content) != nil:
		return out.folder(filepath.Dir(path), o)
	default:
		return out.compose(path, nil, content, o)
	}
}

// folder imports the files that docker compose would start there. Otherwise it searches the subfolders: each with a
// compose file is a Challenge. Dockerfiles alone are the containers of one Challenge. Handouts, solutions and health
// checks are left out where there is anything else.
func (out *Result) folder(path string, o Options) error {
	var notUnderstood error
	if file := filepath.Join(path, "challenge.toml"); out.files.isFile(file) {
		out.Lost = append(out.Lost, Note{File: file, Key: "file", Message: "is TOML, and is not read: write what it says of name, flag and ports into the Challenge"})
	}
	all := out.challengeFiles(path)
	for n, file := range all {
		before := *out
		notUnderstood = out.here(file, o)
		isCompose := slices.Contains(composeFiles, filepath.Base(file))
		if notUnderstood == nil {
			for _, other := range all[n+1:] {
				out.Lost = append(out.Lost, Note{File: other, Key: "file", Message: "is left out, since " + file + " is imported: import it by its name if it is the challenge"})
			}
			return nil
		}
		if isCompose && !errors.Is(notUnderstood, errEmpty) && !errors.Is(notUnderstood, errNoServices) {
			return notUnderstood
		}
		*out = before
		if isCompose || out.findAbout(path) == nil { // otherwise its fields are named
			out.Lost = append(out.Lost, Note{File: file, Key: "file", Message: "is not understood, and not imported: " + strings.TrimPrefix(oneLine(notUnderstood.Error()), file+": ")})
		}
	}
	challenges, dockerfiles, err := out.search(path)
	if err != nil {
		return err
	}
	challenges, dockerfiles = out.withoutAside(path, challenges, dockerfiles)
	if len(challenges) > 0 {
		if err := out.each(path, challenges, dockerfiles, o); len(dockerfiles) == 0 || !errors.Is(err, ErrNothing) {
			return err
		}
	}
	if len(dockerfiles) > 0 {
		slices.Sort(dockerfiles)
		return out.dockerfiles(dockerfiles, nil, o)
	}
	switch a := out.findAbout(path); {
	case a != nil && a.image() != "":
		return out.imageOnly(a, o)
	case notUnderstood != nil:
		return notUnderstood
	case a != nil:
		return fmt.Errorf("%s: describes a challenge without a container: it names no image, and no Dockerfile is in its folder: %w", a.file, ErrNothing)
	default:
		return fmt.Errorf("%s: %w", path, ErrNothing)
	}
}

// search returns the files of challenges in subfolders, one for each, and the Dockerfiles elsewhere.
func (out *Result) search(path string) (challenges, dockerfiles []string, err error) {
	err = filepath.WalkDir(path, func(file string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil && file == path:
			return err
		case err != nil: // such as the data of a database, which belongs to another user
			out.files.refused[file] = fmt.Errorf("%w: %w", localfile.ErrRefused, err)
			return fs.SkipDir
		case entry.IsDir() && file != path && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "node_modules"):
			return fs.SkipDir
		case entry.IsDir() && file != path:
			found := out.challengeFiles(file)
			if a := out.aboutIn(file); a != nil {
				found = append(found, a.file)
			}
			if len(found) > 0 {
				challenges = append(challenges, found[0])
				return fs.SkipDir
			}
		case !entry.IsDir() && isDockerfile(entry.Name()):
			dockerfiles = append(dockerfiles, file)
		}
		return nil
	})
	return challenges, dockerfiles, err
}

// withoutAside leaves out handouts, solutions and health checks, where there is anything else.
func (out *Result) withoutAside(path string, challenges, dockerfiles []string) (_, _ []string) {
	aside := func(file string) bool { return isAside(path, file) }
	all := slices.Concat(challenges, dockerfiles)
	if !slices.ContainsFunc(all, func(file string) bool { return !aside(file) }) {
		return challenges, dockerfiles
	}
	for _, file := range all {
		if aside(file) {
			out.Chosen = append(out.Chosen, Note{File: file, Key: "folder", Message: "is left out, as a handout, a solution or a health check: import it by its name if it is the challenge"})
		}
	}
	return slices.DeleteFunc(challenges, aside), slices.DeleteFunc(dockerfiles, aside)
}

// each imports the folders of challenges, and names what is left out.
func (out *Result) each(path string, challenges, dockerfiles []string, o Options) error {
	before := len(out.Challenges)
	for n, file := range challenges {
		if n > 0 {
			o.Name = "" // one name is for one Challenge
		}
		switch err := out.folder(filepath.Dir(file), o); {
		case errors.Is(err, ErrNothing):
			out.Lost = append(out.Lost, Note{File: file, Key: "file", Message: "describes a challenge without a container: nothing is to run"})
		case err != nil:
			return err
		}
	}
	if len(out.Challenges) == before {
		return fmt.Errorf("%s: no challenge in it has a container: %w", path, ErrNothing)
	}
	for _, file := range dockerfiles {
		out.Lost = append(out.Lost, Note{File: file, Key: "file", Message: "is left out, since other folders have challenges: import its folder"})
	}
	return nil
}

// isAside reports whether a file is in a folder below another one that holds no challenge itself, or is a Dockerfile with
// the name of such a folder, as in Dockerfile.solve.
func isAside(folder, file string) bool {
	rel, err := filepath.Rel(folder, file)
	parts := strings.Split(strings.ToLower(filepath.ToSlash(rel)), "/")
	last := len(parts) - 1
	return err == nil && (slices.ContainsFunc(parts[:last], func(name string) bool { return slices.Contains(asideFolders, name) }) ||
		slices.ContainsFunc(strings.FieldsFunc(parts[last], func(r rune) bool { return strings.ContainsRune("._-", r) }), func(word string) bool {
			return isDockerfile(parts[last]) && (slices.Contains(asideFolders, word) || word == "builder" || word == "dev")
		}))
}

// challengeFiles returns the files of a folder that are challenges, in the order in which they are tried. A challenge of
// kCTF or rCTF says more than the compose file next to it, and that says more than one of klodd, which names no Dockerfile.
func (out *Result) challengeFiles(folder string) (all []string) {
	var last []string
	for _, name := range []string{"challenge.yaml", "challenge.yml", "klodd.yaml", "klodd.yml"} {
		file := filepath.Join(folder, name)
		switch content, err := out.files.Read(file); {
		case err != nil:
		case isKlodd(content):
			last = append(last, file)
		case isKCTF(content) || isRCDS(content):
			all = append(all, file)
		}
	}
	for _, name := range composeFiles {
		if file := filepath.Join(folder, name); out.files.isFile(file) {
			all = append(all, file)
			break
		}
	}
	return append(all, last...)
}

// here imports the file of a folder, and the files that docker compose adds to it.
func (out *Result) here(file string, o Options) error {
	content, err := out.files.Read(file)
	if err != nil {
		return fmt.Errorf("%s: %s", file, refusal(err))
	}
	if !slices.Contains(composeFiles, filepath.Base(file)) {
		return out.file(file, content, o)
	}
	var extraFiles []string
	for _, name := range overrides {
		override := filepath.Join(filepath.Dir(file), name)
		if out.files.isFile(override) {
			extraFiles = append(extraFiles, override)
			break
		}
	}
	return out.compose(file, extraFiles, content, o)
}

// dockerfileName matches the name of a Dockerfile, also with the name of its image, as in Dockerfile.web and
// web.Dockerfile.
var dockerfileName = regexp.MustCompile(`(?i)^(?:(?:docker|container)file(?:[._-].+)?|.+\.dockerfile)$`)

func isDockerfile(name string) bool {
	return dockerfileName.MatchString(name) && !slices.Contains([]string{".dockerignore", ".md", ".txt", ".sh"}, strings.ToLower(filepath.Ext(name)))
}

// imageOnly imports a challenge whose image is in a registry.
func (out *Result) imageOnly(a *about, o Options) error {
	d := out.draft(a.file, folderName(a.file), o)
	d.describe(&about{root: a.root})
	s := &service{name: d.challenge.Name, node: a.root, named: a.image()}
	d.services = append(d.services, s)
	return d.finish()
}
