package importer

import (
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bergctf/berg-operator/cmd/kubectl-berg/localfile"
)

// files reads the files of an author, and collects those that are not read.
type files struct {
	localfile.Folder

	refused map[string]error
}

// openFiles limits files to a folder, unless the user allows others.
func openFiles(folder string, o Options) (*files, error) {
	out := &files{refused: map[string]error{}}
	if o.AllowOutside {
		return out, nil
	}
	var err error
	out.Folder, err = localfile.Within(folder)
	return out, err
}

// maxFile is the size of the largest script or source that is read, in bytes.
const maxFile = 64 << 10

// read returns the content of a file, and remembers why it is not read.
func (f *files) read(name string) ([]byte, error) {
	content, err := f.Read(name)
	if errors.Is(err, localfile.ErrRefused) {
		f.refused[name] = err
	}
	return content, err
}

// small returns the content of a file, "" for a large one and for anything else than a file.
func (f *files) small(name string) string {
	if info := f.info(name); info == nil || info.IsDir() || info.Size() > maxFile {
		return ""
	}
	content, err := f.read(name)
	if err != nil {
		return ""
	}
	return string(content)
}

// info returns what a name leads to, nil for nothing and for what must not be read.
func (f *files) info(name string) fs.FileInfo {
	if name == "" {
		return nil
	}
	info, err := f.Stat(name)
	if errors.Is(err, localfile.ErrRefused) {
		f.refused[name] = err
	}
	if err != nil {
		return nil
	}
	return info
}

// isFile reports whether a name leads to anything but a folder.
func (f *files) isFile(name string) bool {
	info := f.info(name)
	return info != nil && !info.IsDir()
}

// isFolder reports whether a name leads to a folder.
func (f *files) isFolder(name string) bool {
	info := f.info(name)
	return info != nil && info.IsDir()
}

// refusal explains why a file is not read.
func refusal(err error) string {
	text := oneLine(err.Error())
	if strings.Contains(text, "outside of") {
		text += ": allow it with --allow-outside, or name a folder above both"
	}
	return text
}

// standardInput stands for the name of a file.
const standardInput = "standard input"

// asideFolders hold files for players, and solutions.
var asideFolders = []string{
	"attachment", "attachments", "dist", "distribute", "download", "downloads", "handout", "handouts", "publish", "public", "release",
	"debug", "example", "examples", "exploit", "healthcheck", "poc", "sol", "solution", "solutions", "solve", "solver", "test", "tests", "writeup", "writeups",
}

// maxDepth is the depth to which a copied folder is searched for flags.
const maxDepth = 3

// sources are endings of files in which authors write flags.
var sources = []string{".c", ".cpp", ".cs", ".go", ".html", ".java", ".js", ".php", ".pl", ".py", ".rb", ".rs", ".sage", ".sh", ".sql", ".ts"}

func isSource(name string) bool { return slices.Contains(sources, path.Ext(name)) }

// below are files in a folder that a function accepts, the highest first, without those for players and solvers.
func (f *files) below(folder string, accept func(name string) bool) (out []string) {
	if !f.isFolder(folder) {
		return nil
	}
	if target, err := filepath.EvalSymlinks(folder); err == nil {
		folder = target // WalkDir does not follow a link
	}
	err := filepath.WalkDir(folder, func(file string, entry fs.DirEntry, err error) error {
		rel, relErr := filepath.Rel(folder, file)
		switch {
		case err != nil || relErr != nil || rel == ".":
			return nil //nolint:nilerr // an unreadable file has no flag
		case entry.IsDir() && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "node_modules" ||
			slices.Contains(asideFolders, strings.ToLower(entry.Name())) || strings.Count(rel, string(filepath.Separator)) >= maxDepth-1):
			return fs.SkipDir
		case entry.Type().IsRegular() && accept(filepath.ToSlash(rel)):
			out = append(out, filepath.ToSlash(rel))
		}
		return nil
	})
	if err != nil {
		return nil
	}
	slices.SortStableFunc(out, func(a, b string) int { return strings.Count(a, "/") - strings.Count(b, "/") })
	return out
}
