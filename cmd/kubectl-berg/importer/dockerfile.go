package importer

import (
	"cmp"
	"encoding/json"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/bergctf/berg-operator/internal/berg/rules"
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
	// folders are those that the Dockerfile makes.
	folders []string
	// texts are files that the Dockerfile writes itself, by their path.
	texts map[string]string
	// groups are the numbers of those that the Dockerfile makes.
	groups map[string]string
	// check is its health check.
	check check
	// lines are the instructions of the last stage, with their programs.
	lines []string
}

// copied is a file or folder that a Dockerfile copies from its context, and its path in the image.
type copied struct {
	from, to string
	folder   bool
	// text is the content of a file that the Dockerfile writes itself. Its from is "".
	text string
	owned
}

// isFlag reports whether a file has the flag, by its names or its text.
func (c copied) isFlag() bool {
	return !c.folder && (c.from == "" || isFlagFile(c.from) || isFlagFile(c.to))
}

type stage struct {
	name, base string
	image
}

var (
	heredoc    = regexp.MustCompile(`(?:^|\s)\d*<<-?["']?([A-Za-z_][\w.]*)["']?`)
	documented = regexp.MustCompile(`(?i)^(?:run|copy|add)\s`)
	listenPort = regexp.MustCompile(`(?i)(?:tcp[46]?-l(?:isten)?:|--bind[ =]\S*:|-b[ =]?\S*:|--(?:port|listen)[ =]|--http(?:-socket)?[ =]\S*:|http\.server |(?:^|\s)-[a-z]*p[ =]?|` +
		`(?:0\.0\.0\.0|\[::\]|\*):|\bn(?:et)?c(?:at)?\s(?:-[-\w]+\s)*|\btcpserver\s(?:-[a-zA-Z]+\s(?:\d+\s)?)*?[\d.]+\s)(\d{2,5})\b`)
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
		name, rest := firstWord(line)
		scope := maps.Clone(values) // arguments, and the variables of this stage
		if len(stages) > 0 && name != "FROM" {
			maps.Copy(scope, stages[len(stages)-1].env)
		}
		expanded := func(text string) string { return expand(text, scope, false) }
		if name == "ARG" {
			for _, arg := range shellWords(rest, false) {
				key, value, _ := strings.Cut(arg, "=")
				if given, ok := args[key]; ok {
					value = given
				}
				if value != "" || values[key] == "" {
					values[key] = unquote(expanded(value))
				}
			}
			continue
		}
		if name == "FROM" {
			words := slices.DeleteFunc(strings.Fields(expanded(rest)), func(w string) bool { return strings.HasPrefix(w, "--") })
			s := stage{image: image{context: context, env: map[string]string{}, texts: map[string]string{}, groups: map[string]string{}, workdir: "/"}}
			if len(words) > 0 {
				s.base = words[0]
			}
			if len(words) > 2 {
				s.name = words[2]
			}
			for _, earlier := range stages {
				if strings.EqualFold(earlier.name, s.base) {
					s.image = earlier.image
					s.exposed, s.copies, s.env = slices.Clone(earlier.exposed), slices.Clone(earlier.copies), maps.Clone(earlier.env)
					s.texts, s.groups = maps.Clone(earlier.texts), maps.Clone(earlier.groups)
					s.lines, s.folders = slices.Clone(earlier.lines), slices.Clone(earlier.folders)
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
			for _, word := range strings.Fields(expanded(rest)) {
				s.exposed = append(s.exposed, exposedPorts(word)...)
			}
		case "WORKDIR":
			s.workdir = path.Join("/", absolute(s.workdir, unquote(expanded(rest))))
			s.folders = append(s.folders, s.workdir)
		case "HEALTHCHECK":
			s.check = healthcheck(rest)
		case "ENV":
			setEnv(s.env, expanded(rest))
		case "COPY", "ADD":
			s.copy(expanded(rest), i.documents, stages)
		case "RUN":
			s.run(rest, scope)
			s.runDocuments(rest, i.documents, scope)
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

// firstWord splits an instruction from its arguments.
func firstWord(line string) (name, rest string) {
	at := strings.IndexFunc(line, unicode.IsSpace)
	if at < 0 {
		return strings.ToUpper(line), ""
	}
	return strings.ToUpper(line[:at]), strings.TrimSpace(line[at:])
}

// looksLikeDockerfile reports whether a text without a name begins as a Dockerfile does.
func looksLikeDockerfile(content []byte) bool {
	for _, i := range instructions(string(content)) {
		switch name, rest := firstWord(i.line); {
		case name == "FROM":
			return rest != ""
		case name != "ARG":
			return false
		}
	}
	return false
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

func setEnv(env map[string]string, text string) {
	key, value, old := strings.Cut(text, " ")
	if old && !strings.Contains(key, "=") {
		env[key] = unquote(strings.TrimSpace(value))
		return
	}
	for _, word := range shellWords(text, false) {
		if key, value, ok := strings.Cut(word, "="); ok {
			env[key] = value
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
	into := path.Clean(absolute(s.workdir, to))
	folder := strings.HasSuffix(to, "/") || len(words) > 2 || s.isFolder(into)
	for _, from := range words[:len(words)-1] {
		if source != nil {
			s.copyOf(source, absolute("/", from), into, folder, by)
			continue
		}
		if found := heredoc.FindStringSubmatch(from); found != nil {
			at := into
			if folder {
				at = path.Join(into, found[1])
			}
			if n := slices.IndexFunc(documents, func(d document) bool { return d.end == found[1] }); n >= 0 {
				s.write(at, documents[n].text, by)
			}
			continue
		}
		s.copyFrom(path.Join(".", from), into, folder || strings.ContainsAny(from, "*?["), by)
	}
}

// copyFrom copies a file of the context, what is in a folder of it, or what a pattern matches there. With folder, a file
// keeps its name.
func (s *stage) copyFrom(from, into string, folder bool, by owned) {
	names := []string{from}
	if matches, err := filepath.Glob(filepath.Join(s.context, filepath.FromSlash(from))); err == nil && strings.ContainsAny(from, "*?[") {
		names = nil
		for _, match := range matches {
			if name, err := filepath.Rel(s.context, match); err == nil {
				names = append(names, filepath.ToSlash(name))
			}
		}
	}
	for _, name := range names {
		at := filepath.Join(s.context, filepath.FromSlash(name))
		if info, err := os.Stat(at); name == "." || err == nil && info.IsDir() {
			s.copies = append(s.copies, copied{from: name, to: into, folder: true, owned: by})
			s.folders = append(s.folders, into)
			for _, flag := range flagsBelow(at) {
				s.copies = append(s.copies, copied{from: path.Join(name, flag), to: path.Join(into, flag), owned: by})
			}
			continue
		}
		to := into
		if folder {
			to = path.Join(into, path.Base(name))
		}
		s.copies = append(s.copies, copied{from: name, to: to, owned: by})
	}
}

// isFolder reports whether a path of the image is a folder, as far as the Dockerfile and the usual images show it.
func (s *stage) isFolder(at string) bool {
	above := func(other string) bool { return at == "/" || strings.HasPrefix(other, at+"/") }
	return at == "/" || rules.UsuallyFolder(at) ||
		slices.ContainsFunc(s.folders, func(f string) bool { return f == at || above(f) }) ||
		slices.ContainsFunc(s.copies, func(c copied) bool { return above(c.to) })
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
		if !c.isFlag() || !inside && c.to != from {
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
		c.group = cmp.Or(source.groups[c.group], c.group)
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
	"streamlit": 8501, "rails": 3000, "rackup": 9292, "sshd": 22, "ssh": 22, "nginx": 80, "apache2ctl": 80, "apachectl": 80, "apache2-foreground": 80,
	"apache2": 80, "httpd": 80, "lighttpd": 80, "vsftpd": 21, "artisan": 8000, "sanic": 8000, "waitress-serve": 8080, "next": 3000, "anvil": 8545,
	"ganache": 8545, "ynetd": 1024,
}

// ports are those that the image exposes, or those that its arguments name or its program says, or those of its base.
func (i image) ports() []port {
	if len(i.exposed) > 0 {
		return i.exposed
	}
	line := expand(strings.Join(i.program(), " "), i.env, true)
	if found := listensOn(line, listenPort); found != nil {
		return found
	}
	for _, name := range []string{"PORT", "JAIL_PORT", "ASPNETCORE_HTTP_PORTS", "ASPNETCORE_URLS"} {
		if number := lastNumber.FindString(i.env[name]); number != "" {
			return exposedPorts(number)
		}
	}
	for _, f := range i.startFiles() {
		if found := listensOn(expand(f.text, i.env, true), listenPort, listenCall); found != nil {
			return found
		}
	}
	if words := strings.Fields(line); len(words) == 2 && path.Base(words[0]) != "sleep" { // as in /chall 4242
		if number, err := strconv.ParseUint(words[1], 10, 16); err == nil && number >= 1024 {
			return exposedPorts(words[1])
		}
	}
	for word := range strings.FieldsSeq(strings.ReplaceAll(line, "/", " ")) {
		if number := portsOfPrograms[word]; number != 0 {
			return []port{{number: number}}
		}
	}
	if strings.Contains(line, "java") && strings.Contains(i.text(), "spring") {
		return []port{{number: 8080}}
	}
	for _, base := range i.bases {
		if p := imagePort(base); p != 0 {
			return []port{{number: p}}
		}
	}
	return nil
}

// lastNumber is the port at the end of an address.
var lastNumber = regexp.MustCompile(`\d{2,5}$`)

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
		at := path.Clean(absolute(i.workdir, strings.Trim(word, `"'`)))
		for _, c := range i.copies {
			switch below, inside := strings.CutPrefix(at, strings.TrimSuffix(c.to, "/")+"/"); {
			case c.folder && inside:
				files = append(files, filepath.Join(i.context, filepath.FromSlash(c.from), filepath.FromSlash(below)))
			case c.folder:
			case path.Base(c.to) == name && c.from != "":
				files = append(files, filepath.Join(i.context, filepath.FromSlash(c.from)))
			}
		}
		for _, to := range []string{at, "/" + name} {
			if text := i.texts[to]; text != "" {
				all = append(all, startFile{name, text})
				files = nil
				break
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
		name, rest := firstWord(line)
		var words []string
		if json.Unmarshal([]byte(rest), &words) != nil {
			words = strings.Fields(rest)
		}
		switch name {
		case "ENTRYPOINT":
			entrypoint = words
		case "CMD":
			command = words
		}
	}
	return append(slices.Concat(entrypoint, command), i.startScript(command)...)
}

// startScript is the command line that the package.json of the context has for a start.
func (i image) startScript(command []string) []string {
	starts := slices.ContainsFunc(command, func(w string) bool { return slices.Contains([]string{"npm", "yarn", "pnpm", "bun"}, w) })
	if !starts || !slices.Contains(command, "start") {
		return nil
	}
	var manifest struct {
		Scripts map[string]string `json:"scripts"`
	}
	content, err := os.ReadFile(filepath.Join(i.context, "package.json"))
	if err != nil || json.Unmarshal(content, &manifest) != nil {
		return nil
	}
	return strings.Fields(manifest.Scripts["start"])
}

// text is what tells the kind of program: names of images, instructions, and dependencies in the context.
func (i image) text() string {
	all := append(slices.Clone(i.bases), i.lines...)
	all = append(all, strings.Join(i.program(), " "))
	for _, name := range []string{"package.json", "requirements.txt", "pyproject.toml", "pom.xml", "build.gradle", "build.gradle.kts", "Gemfile", "composer.json"} {
		if content, err := os.ReadFile(filepath.Join(i.context, name)); i.context != "" && err == nil {
			all = append(all, string(content[:min(len(content), 64<<10)]))
		}
	}
	return strings.ToLower(strings.Join(all, "\n"))
}
