package importer

import (
	"encoding/json"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/mattn/go-shellwords"
)

// image is what a Dockerfile says of the image that it builds.
type image struct {
	// file is its name, "" if there is none to read.
	file    string
	context string
	// bases are the images on which it builds, the stage itself first.
	bases   []string
	exposed []port
	env     map[string]string
	copies  []copied
	workdir string
	// removed are files and folders that are not in the image any more.
	removed []string
	// lines are the instructions of the last stage, with their programs.
	lines []string
}

// copied is one file that a Dockerfile copies from its context, and its path in the image.
type copied struct {
	from, to string
	// text is the content of a file that the Dockerfile writes itself. Its from is "".
	text string
	owned
}

type stage struct {
	name, base string
	image
}

var (
	variable   = regexp.MustCompile(`\$\{?(\w+)\}?`)
	heredoc    = regexp.MustCompile(`(?:^|\s)\d*<<-?["']?([A-Za-z_][\w.]*)["']?`)
	documented = regexp.MustCompile(`(?i)^(?:run|copy|add)\s`)
	listenPort = regexp.MustCompile(`(?i)(?:tcp[46]?-l(?:isten)?:|--bind[ =]\S*:|-b[ =]?\S*:|--port[ =]|http\.server |(?:^|\s)-[a-z]*p[ =]?|` +
		`(?:0\.0\.0\.0|\[::\]|\*):|\bn(?:et)?c(?:at)?\s(?:-\w+\s)*)(\d{2,5})\b`)
	// listenCall is how programs say on which port they listen.
	listenCall = regexp.MustCompile(`(?i)(?:\blisten\(|\bport["']?\s*[=:]\s*|\|\|\s*|\bbind\(\(["'][^"']*["'],\s*)(\d{2,5})\b`)
)

// readDockerfile reads a Dockerfile, without building it. Values of arguments are their defaults or given.
func readDockerfile(file, context, target string, args map[string]string) image {
	content, err := os.ReadFile(file)
	if err != nil {
		return image{context: context}
	}
	return parseDockerfile(string(content), file, context, target, args)
}

func parseDockerfile(content, file, context, target string, args map[string]string) image {
	values := map[string]string{}
	var stages []stage
	for _, i := range instructions(content) {
		line := i.line
		name, rest, _ := strings.Cut(line, " ")
		rest = strings.TrimSpace(rest)
		name = strings.ToUpper(name)
		expand := func(text string) string {
			return variable.ReplaceAllStringFunc(text, func(v string) string {
				return values[variable.FindStringSubmatch(v)[1]]
			})
		}
		if name == "ARG" {
			for _, arg := range strings.Fields(rest) {
				key, value, _ := strings.Cut(arg, "=")
				if given, ok := args[key]; ok {
					value = given
				}
				if value != "" || values[key] == "" {
					values[key] = unquote(expand(value))
				}
			}
			continue
		}
		if name == "FROM" {
			words := slices.DeleteFunc(strings.Fields(expand(rest)), func(w string) bool { return strings.HasPrefix(w, "--") })
			s := stage{image: image{env: map[string]string{}, workdir: "/"}}
			if len(words) > 0 {
				s.base = words[0]
			}
			if len(words) > 2 {
				s.name = words[2]
			}
			for _, earlier := range stages {
				if strings.EqualFold(earlier.name, s.base) {
					s.image = earlier.image
					s.exposed, s.copies = slices.Clone(earlier.exposed), slices.Clone(earlier.copies)
					s.lines, s.removed = slices.Clone(earlier.lines), slices.Clone(earlier.removed)
				}
			}
			s.bases = append([]string{s.base}, s.bases...)
			stages = append(stages, s)
			continue
		}
		if len(stages) == 0 {
			continue
		}
		s := &stages[len(stages)-1]
		s.lines = append(s.lines, line)
		switch name {
		case "EXPOSE":
			for _, word := range strings.Fields(expand(rest)) {
				s.exposed = append(s.exposed, exposedPorts(word)...)
			}
		case "WORKDIR":
			s.workdir = path.Join("/", absolute(s.workdir, unquote(expand(rest))))
		case "ENV":
			setEnv(s.env, values, expand(rest))
		case "COPY", "ADD":
			s.copy(expand(rest), i.documents, stages)
		case "RUN":
			s.run(rest, values)
			s.runDocuments(rest, i.documents, values)
		}
	}
	if len(stages) == 0 {
		return image{context: context}
	}
	out := stages[len(stages)-1].image
	for _, s := range stages {
		if target != "" && strings.EqualFold(s.name, target) {
			out = s.image
		}
	}
	out.file, out.context = file, context
	return out
}

// instruction is one of a Dockerfile, with the here-documents that follow it.
type instruction struct {
	line      string
	documents []document
}

// document is a here-document: a text with the name that ends it.
type document struct{ end, text string }

// instructions joins continued lines, and drops comments.
func instructions(content string) (out []instruction) {
	current := ""
	var open []string // the here-documents that have not ended
	for line := range strings.Lines(strings.TrimPrefix(content, "\ufeff")) {
		text := strings.TrimSpace(line)
		if len(open) > 0 {
			last := &out[len(out)-1]
			document := &last.documents[len(last.documents)-len(open)]
			if text == document.end {
				open = open[1:]
			} else {
				document.text += strings.TrimRight(line, "\r\n") + "\n"
			}
			continue
		}
		if text == "" || strings.HasPrefix(text, "#") {
			continue // also within a continued line
		}
		if before, more := strings.CutSuffix(text, `\`); more {
			current += before + " "
			continue
		}
		i := instruction{line: current + text}
		if documented.MatchString(i.line) {
			for _, found := range heredoc.FindAllStringSubmatch(i.line, -1) {
				open = append(open, found[1])
				i.documents = append(i.documents, document{end: found[1]})
			}
		}
		out, current = append(out, i), ""
	}
	if current != "" {
		out = append(out, instruction{line: current})
	}
	return out
}

func unquote(text string) string { return strings.Trim(text, `"'`) }

func absolute(workdir, at string) string {
	if path.IsAbs(at) {
		return at
	}
	return path.Join(workdir, at)
}

func setEnv(env, values map[string]string, text string) {
	key, value, old := strings.Cut(text, " ")
	if old && !strings.Contains(key, "=") {
		env[key] = unquote(strings.TrimSpace(value))
		values[key] = env[key]
		return
	}
	words, err := shellwords.Parse(text)
	if err != nil {
		words = strings.Fields(text)
	}
	for _, word := range words {
		if key, value, ok := strings.Cut(word, "="); ok {
			env[key] = unquote(value)
			values[key] = env[key]
		}
	}
}

// copy follows a COPY instruction: files of the context, texts of here-documents, and flags of earlier stages.
func (s *stage) copy(text string, documents []document, stages []stage) {
	var words []string
	var source *stage
	var by owned
	for _, word := range strings.Fields(text) {
		option, value, _ := strings.Cut(word, "=")
		switch {
		case option == "--from":
			if source = stageOf(stages, value); source == nil {
				return // another image
			}
		case option == "--chmod":
			by.mode = changedMode(0, value)
		case option == "--chown":
			by.chown(value)
		case !strings.HasPrefix(word, "--"):
			words = append(words, word)
		}
	}
	if rest := strings.Join(words, " "); strings.HasPrefix(rest, "[") {
		words = nil
		if json.Unmarshal([]byte(rest), &words) != nil {
			return
		}
	}
	if len(words) < 2 {
		return
	}
	to := words[len(words)-1]
	for _, from := range words[:len(words)-1] {
		into := absolute(s.workdir, to)
		if source != nil {
			s.copyOf(source, absolute("/", from), into, strings.HasSuffix(to, "/"), by)
			continue
		}
		if strings.HasSuffix(to, "/") || to == "." || len(words) > 2 {
			into = path.Join(into, path.Base(from))
		}
		if found := heredoc.FindStringSubmatch(from); found != nil {
			if at := slices.IndexFunc(documents, func(d document) bool { return d.end == found[1] }); at >= 0 && isFlagFile(into) {
				s.copies = append(s.copies, copied{to: path.Clean(into), text: strings.TrimSpace(documents[at].text), owned: by})
			}
			continue
		}
		s.copies = append(s.copies, copied{from: path.Clean(strings.TrimPrefix(from, "/")), to: path.Clean(into), owned: by})
	}
}

// stageOf returns an earlier stage by its name or number, nil for another image. The last one is not finished.
func stageOf(stages []stage, name string) *stage {
	for i := range stages[:len(stages)-1] {
		if strings.EqualFold(stages[i].name, name) || strconv.Itoa(i) == name {
			return &stages[i]
		}
	}
	return nil
}

// copyOf takes over the flags of an earlier stage that are at a path or below it.
func (s *stage) copyOf(source *stage, from, into string, folder bool, by owned) {
	for _, c := range source.copies {
		below, inside := strings.CutPrefix(c.to, strings.TrimSuffix(from, "/")+"/")
		if !isFlagFile(c.from) && !isFlagFile(c.to) || !inside && c.to != from {
			continue
		}
		switch {
		case inside:
			c.to = path.Join(into, below)
		case folder:
			c.to = path.Join(into, path.Base(from))
		default:
			c.to = into
		}
		if by != (owned{}) {
			c.owned = by
		}
		s.copies = append(s.copies, c)
	}
}

// exposedPorts reads 80, 80/udp and 8000-8002.
func exposedPorts(text string) (out []port) {
	numbers, protocol, _ := strings.Cut(text, "/")
	first, last, isRange := strings.Cut(numbers, "-")
	from, err := strconv.ParseUint(first, 10, 16)
	to := from
	if err == nil && isRange {
		to, err = strconv.ParseUint(last, 10, 16)
	}
	if err != nil || from == 0 {
		return nil
	}
	for n := from; n <= to && len(out) < 64; n++ {
		out = append(out, port{number: int32(n), udp: strings.EqualFold(protocol, "udp")})
	}
	return out
}

// portsOfPrograms are the ports of servers whose arguments name none, by a word of their command line.
var portsOfPrograms = map[string]int32{
	"gunicorn": 8000, "uvicorn": 8000, "hypercorn": 8000, "daphne": 8000, "runserver": 8000, "http.server": 8000, "flask": 5000, "quart": 5000,
	"streamlit": 8501, "rails": 3000, "rackup": 9292, "sshd": 22, "nginx": 80, "apache2ctl": 80, "apache2-foreground": 80, "httpd": 80,
}

// ports are those that the image exposes, or those that its arguments name or its program says, or those of its base.
func (i image) ports() []port {
	if len(i.exposed) > 0 {
		return i.exposed
	}
	line := strings.Join(i.program(), " ")
	if found := listensOn(line, listenPort); found != nil {
		return found
	}
	for _, name := range []string{"PORT", "JAIL_PORT"} {
		if number := i.env[name]; number != "" {
			return exposedPorts(number)
		}
	}
	for _, f := range i.startFiles() {
		if found := listensOn(f.text, listenPort, listenCall); found != nil {
			return found
		}
	}
	for word := range strings.FieldsSeq(strings.ReplaceAll(line, "/", " ")) {
		if number := portsOfPrograms[word]; number != 0 {
			return []port{{number: number}}
		}
	}
	for _, base := range i.bases {
		if p := portOf(base); p != 0 {
			return []port{{number: p}}
		}
	}
	return nil
}

// listensOn returns the ports of the first pattern that finds one in a text. Those of databases are where a program connects to.
func listensOn(text string, patterns ...*regexp.Regexp) []port {
	for _, p := range patterns {
		for _, found := range p.FindAllStringSubmatch(text, -1) {
			if ports := exposedPorts(found[1]); len(ports) > 0 && !slices.Contains(databases, ports[0].number) {
				return ports
			}
		}
	}
	return nil
}

// startFile is a file of the context that the image starts.
type startFile struct{ name, text string }

// maxStartFile is how much is read of one, in bytes.
const maxStartFile = 64 << 10

// startFiles are the scripts and sources that the command line names.
func (i image) startFiles() (all []startFile) {
	if i.context == "" {
		return nil
	}
	for _, word := range i.program() {
		name := path.Base(strings.Trim(word, `"'`))
		files := []string{filepath.Join(i.context, name)}
		for _, c := range i.copies {
			if path.Base(c.to) == name && c.from != "" {
				files = append(files, filepath.Join(i.context, filepath.FromSlash(c.from)))
			}
		}
		for _, file := range files {
			info, err := os.Stat(file)
			if err != nil || !info.Mode().IsRegular() || info.Size() > maxStartFile {
				continue
			}
			if content, err := os.ReadFile(file); err == nil {
				all = append(all, startFile{name, string(content)})
				break
			}
		}
	}
	return all
}

// program is the command line of the image, in the words of its last stage.
func (i image) program() []string {
	var entrypoint, command []string
	for _, line := range i.lines {
		name, rest, _ := strings.Cut(line, " ")
		var words []string
		if json.Unmarshal([]byte(rest), &words) != nil {
			words = strings.Fields(rest)
		}
		switch strings.ToUpper(name) {
		case "ENTRYPOINT":
			entrypoint = words
		case "CMD":
			command = words
		}
	}
	return slices.Concat(entrypoint, command)
}

// text is what tells the kind of program: names of images, instructions, and dependencies in the context.
func (i image) text() string {
	all := append(slices.Clone(i.bases), i.lines...)
	for _, name := range []string{"package.json", "requirements.txt", "pyproject.toml"} {
		if content, err := os.ReadFile(filepath.Join(i.context, name)); i.context != "" && err == nil {
			all = append(all, string(content[:min(len(content), 64<<10)]))
		}
	}
	return strings.ToLower(strings.Join(all, "\n"))
}
