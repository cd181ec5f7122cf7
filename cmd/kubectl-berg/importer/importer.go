package importer

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// composeFiles are the default file names of docker compose, in its order.
var composeFiles = []string{"compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml"}

// overrides are the names that docker compose adds.
var overrides = []string{"compose.override.yml", "compose.override.yaml", "docker-compose.override.yml", "docker-compose.override.yaml"}

// Import reads a file or folder.
func Import(path string, o Options) (Result, error) {
	out := Result{Questions: []Note{}, Lost: []Note{}, Chosen: []Note{}, Builds: []Build{}}
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

// standardInput stands for the name of a file.
const standardInput = "standard input"

// Content imports the content of a file that has no name, in the current folder.
func Content(content []byte, o Options) (Result, error) {
	out := Result{Questions: []Note{}, Lost: []Note{}, Chosen: []Note{}, Builds: []Build{}}
	return out, out.file(standardInput, content, o)
}

func (out *Result) file(path string, content []byte, o Options) error {
	switch {
	case isDockerfile(filepath.Base(path)) || looksLikeDockerfile(content):
		return out.dockerfiles([]string{path}, content, o)
	case isKlodd(content):
		return out.klodd(path, content, o)
	case isKCTF(content):
		return out.kctf(path, content, o)
	case isRCDS(content):
		return out.rcds(path, content, o)
	default:
		return out.compose(path, nil, content, o)
	}
}

// folder imports the files that docker compose would start there. Otherwise it searches the subfolders: each with a
// compose file is a Challenge. Dockerfiles alone are the containers of one Challenge. Handouts, solutions and health
// checks are left out where there is anything else.
func (out *Result) folder(path string, o Options) error {
	if file := challengeFile(path); file != "" {
		return out.here(file, o)
	}
	var challenges, dockerfiles []string
	err := filepath.WalkDir(path, func(file string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && file != path && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "node_modules"):
			return fs.SkipDir
		case entry.IsDir() && file != path:
			if file := challengeFile(file); file != "" {
				challenges = append(challenges, file)
				return fs.SkipDir
			}
		case !entry.IsDir() && isDockerfile(entry.Name()):
			dockerfiles = append(dockerfiles, file)
		}
		return nil
	})
	if err != nil {
		return err
	}
	aside := func(file string) bool { return isAside(path, file) }
	if slices.ContainsFunc(slices.Concat(challenges, dockerfiles), func(file string) bool { return !aside(file) }) {
		for _, file := range slices.Concat(challenges, dockerfiles) {
			if aside(file) {
				out.Chosen = append(out.Chosen, Note{File: file, Key: "folder", Message: "is left out, as a handout, a solution or a health check: import it by its name if it is the challenge"})
			}
		}
		challenges, dockerfiles = slices.DeleteFunc(challenges, aside), slices.DeleteFunc(dockerfiles, aside)
	}
	for n, file := range challenges {
		single := o
		if n > 0 {
			single.Name = "" // one name is for one Challenge
		}
		if err := out.here(file, single); err != nil {
			return err
		}
	}
	switch {
	case len(challenges) > 0:
		return nil
	case len(dockerfiles) == 0:
		return fmt.Errorf("%s: %w", path, ErrNothing)
	}
	slices.Sort(dockerfiles)
	return out.dockerfiles(dockerfiles, nil, o)
}

// asideFolders hold files for players, and solutions.
var asideFolders = []string{
	"attachment", "attachments", "dist", "distribute", "download", "downloads", "handout", "handouts", "publish", "public", "release",
	"debug", "example", "examples", "exploit", "healthcheck", "poc", "sol", "solution", "solutions", "solve", "solver", "test", "tests", "writeup", "writeups",
}

// isAside reports whether a file is in a folder below another one that holds no challenge itself.
func isAside(folder, file string) bool {
	rel, err := filepath.Rel(folder, filepath.Dir(file))
	return err == nil && slices.ContainsFunc(strings.Split(filepath.ToSlash(rel), "/"), func(name string) bool {
		return slices.Contains(asideFolders, strings.ToLower(name))
	})
}

// challengeFile returns the compose file of a folder, or a challenge of klodd, kCTF or rCTF; "" if it has none.
func challengeFile(folder string) string {
	for _, name := range composeFiles {
		if _, err := os.ReadFile(filepath.Join(folder, name)); err == nil {
			return filepath.Join(folder, name)
		}
	}
	for _, name := range []string{"challenge.yaml", "challenge.yml", "klodd.yaml", "klodd.yml"} {
		file := filepath.Join(folder, name)
		if content, err := os.ReadFile(file); err == nil && (isKlodd(content) || isKCTF(content) || isRCDS(content)) {
			return file
		}
	}
	return ""
}

// here imports the file of a folder, and the files that docker compose adds to it.
func (out *Result) here(file string, o Options) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	if !slices.Contains(composeFiles, filepath.Base(file)) {
		return out.file(file, content, o)
	}
	var extraFiles []string
	for _, name := range overrides {
		override := filepath.Join(filepath.Dir(file), name)
		if _, err := os.Stat(override); err == nil {
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
