package report

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"reflect"
	"strings"
	"time"
)

// File is a file of a bundle.
type File struct {
	Name  string `json:"name"`
	Bytes int    `json:"bytes"`
	text  []byte
}

// Files returns the files of a bundle, without flags and secrets.
func (b Bundle) Files(r *Redactor) ([]File, error) {
	missing := b.Missing
	files := []File{}
	for _, part := range []struct {
		name  string
		value any
	}{
		{"version.json", map[string]any{"at": b.At.Format(time.RFC3339), "plugin": b.Plugin, "kubernetes": b.Server, "operator": b.Operator}},
		{"settings.json", b.Settings},
		{"doctor.json", b.Checks},
		{"status.json", b.Overview},
		{"nodes.json", b.Nodes},
		{"pods.json", b.Pods},
		{"challenges.json", b.Challenges},
		{"instances.json", b.Instances},
		{"checks.json", b.Solvers},
		{"events.json", b.Events},
	} {
		kept, lost, total := fitting(part.value)
		if lost > 0 {
			missing = append(missing, fmt.Sprintf("%s: %d of %d are left out, because it is too large", part.name, lost, total))
		}
		text, err := r.json(kept)
		if err != nil {
			return nil, err
		}
		files = append(files, File{Name: part.name, text: text})
	}
	logs := b.Logs[:min(len(b.Logs), MaxLogs)]
	if omitted := len(b.Logs) - len(logs); omitted > 0 {
		missing = append(missing, fmt.Sprintf("%d logs are left out", omitted))
	}
	for _, l := range logs {
		name := l.Pod + "-" + l.Container
		if l.Previous {
			name += "-previous"
		}
		files = append(files, File{Name: "logs/" + path.Base(name) + ".log", text: []byte(r.Text(Tail(l.Text, MaxLogBytes)))})
	}
	files = append([]File{{Name: "README.txt", text: []byte(r.Text(readme(b, missing)))}}, files...)
	for i := range files {
		files[i].Bytes = len(files[i].text)
	}
	return files, nil
}

// fitting returns as many elements of a list as fit into a file, and how many of how many do not. Other values stay as they are.
func fitting(value any) (kept any, lost, total int) {
	list := reflect.ValueOf(value)
	if list.Kind() != reflect.Slice {
		return value, 0, 0
	}
	if list.Len() == 0 {
		return []any{}, 0, 0
	}
	size := 0
	for n := range list.Len() {
		text, err := json.MarshalIndent(list.Index(n).Interface(), "  ", "  ")
		if size += len(text) + len(",\n  "); err != nil || size > maxFileBytes-marginBytes {
			return list.Slice(0, n).Interface(), list.Len() - n, list.Len()
		}
	}
	return value, 0, list.Len()
}

// marginBytes is for the placeholders of removed texts, which may be longer than the texts.
const marginBytes = 64 << 10

// Tail returns the last whole lines of a text. It drops the first, incomplete line, because the rest of a flag in it
// would not be recognised.
func Tail(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	_, rest, _ := strings.Cut(text[len(text)-limit:], "\n")
	return rest
}

// json writes a value with redacted strings. They are redacted one by one, so that the result stays JSON.
func (r *Redactor) json(value any) ([]byte, error) {
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var tree any
	if err := decoder.Decode(&tree); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	err = encoder.Encode(r.tree(tree))
	return out.Bytes(), err
}

// tree removes flags and secrets from all texts of a JSON value, including the keys of objects.
func (r *Redactor) tree(value any) any {
	switch value := value.(type) {
	case string:
		return r.Text(value)
	case []any:
		for i := range value {
			value[i] = r.tree(value[i])
		}
		return value
	case map[string]any:
		out := make(map[string]any, len(value))
		for key, part := range value {
			out[r.Text(key)] = r.tree(part)
		}
		return out
	default:
		return value
	}
}

// readme describes the files, and what is missing. It must name every file of Files.
func readme(b Bundle, missing []string) string {
	var out strings.Builder
	fmt.Fprintf(&out, `Report of kubectl berg %s, %s

It has no flag, no Secret, no variable, command or description of a Challenge, no output of a container of an instance or of a
solver, and no address of an instance. Where another program had quoted a flag, <flag> stands for it, and <secret> for what
looked like a secret. Read it before you send it: names of players' instances, UUIDs of owners, and names of nodes, images and
namespaces are in it.

version.json     the operator and this program
settings.json    the operator's settings
doctor.json      what kubectl berg doctor finds
status.json      what kubectl berg status shows
nodes.json       nodes and what is reserved on them
pods.json        pods of the operator, and of instances with a problem
challenges.json  what Challenges run, and their conditions
instances.json   the state of instances, those with a problem first
checks.json      the state of ChallengeChecks
events.json      events of Kubernetes, the latest first
logs/            the ends of the operator's logs
`, b.Plugin, b.At.Format(time.RFC3339))
	if len(missing) > 0 {
		out.WriteString("\nWhat is missing:\n")
		for _, m := range missing {
			fmt.Fprintf(&out, "- %s\n", m)
		}
	}
	return out.String()
}

// Write writes files as a compressed archive, in a folder of this name. Files are readable by their owner alone. The archive is
// not complete if it returns an error.
func Write(to io.Writer, folder string, moment time.Time, files []File) error {
	compressed := gzip.NewWriter(to)
	archive := tar.NewWriter(compressed)
	for _, f := range files {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: path.Join(folder, f.Name), Mode: 0o600, Size: int64(len(f.text)), ModTime: moment.Truncate(time.Second)}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(f.text); err != nil {
			return err
		}
	}
	if err := archive.Close(); err != nil {
		return err
	}
	return compressed.Close()
}
