package importer

import (
	"cmp"
	"encoding/json"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

var listenPort = regexp.MustCompile(`(?i)(?:tcp[46]?-l(?:isten)?:|--bind[ =]\S*:|-b[ =]?\S*:|--(?:port|listen|bind)[ =]|--http(?:-socket)?[ =]\S*:|http\.server (?:-\S+[ =]\S+ )*|(?:^|\s)-[a-z]*p[ =]?|` +
	`(?:0\.0\.0\.0|\[::\]|\*):|server\.port=|\bn(?:et)?c(?:at)?\s(?:-[-\w]+\s)*|\btcpserver\s(?:-[a-zA-Z]+\s(?:\d+\s)?)*?[\d.]+\s)(\d{2,5})\b`)

// listenCall matches the ways in which programs name the port on which they listen.
var listenCall = regexp.MustCompile(`(?i)(?:\blisten\(|\bport["']?\s*[=:]\s*|:port,\s*|\|\|\s*|\?\?\s*|PORT["'],\s*["']?|\b(?:bind|\w*Server)\(\(["'][^"']*["'],\s*|` +
	`\b(?:bind|ListenAndServe\w*|net\.Listen\("tcp[46]?",\s*)\(?"[^"]*:|start_server\([^)]*?["'][\d.]*["'],\s*|\bport\s*=\s*["'][^"']*["'],\s*|\bhtons\()(\d{2,5})\b`)

// listenLine matches the port in a file of a server, such as nginx.conf or Caddyfile.
var listenLine = regexp.MustCompile(`(?im)^(?:.*[{;])?\s*(?:listen\s+(?:\S+:)?|port\s*[=:]\s*|http(?:-socket)?\s*=\s*\S*:)(\d{2,5})\b|^\S*:(\d{2,5})\s*\{`)

// serverFile matches the name of a file that configures a server.
var serverFile = regexp.MustCompile(`(?i)(?:^|[/.])(?:[\w.-]*nginx[\w.-]*|default\.conf|ports\.conf|httpd\.conf|Caddyfile|xinetd|[\w.-]*xinetd\S*|nsjail\.cfg)$|^/etc/(?:nginx|xinetd\.d)/`)

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

// portsOfPrograms are the ports of servers whose arguments name no port, by a word of their command line.
var portsOfPrograms = map[string]int32{
	"gunicorn": 8000, "uvicorn": 8000, "hypercorn": 8000, "daphne": 8000, "runserver": 8000, "http.server": 8000, "flask": 5000, "quart": 5000,
	"streamlit": 8501, "rails": 3000, "rackup": 9292, "sshd": 22, "ssh": 22, "nginx": 80, "apache2ctl": 80, "apachectl": 80, "apache2-foreground": 80,
	"apache2": 80, "httpd": 80, "lighttpd": 80, "vsftpd": 21, "artisan": 8000, "sanic": 8000, "waitress-serve": 8080, "next": 3000, "anvil": 8545,
	"ganache": 8545, "ynetd": 1024, "ttyd": 7681, "jupyter": 8888, "websockify": 6080,
}

// ports returns the ports that the image exposes. Without these it returns the ports in its arguments, of its program,
// or of its base image.
func (i image) ports() []port {
	if len(i.exposed) > 0 {
		return i.exposed
	}
	line := expand(strings.Join(i.program(), " "), i.env)
	if found := listensOn(line, listenPort); found != nil {
		return found
	}
	for _, name := range []string{"PORT", "JAIL_PORT", "ASPNETCORE_HTTP_PORTS", "ASPNETCORE_URLS"} {
		if number := lastNumber.FindString(i.env[name]); number != "" {
			return exposedPorts(number)
		}
	}
	for _, f := range i.started() {
		if found := listensOn(expand(f.text, i.env), listenPort, listenCall); found != nil {
			return found
		}
	}
	for _, text := range i.serverFiles() {
		if found := listensOn(text, listenLine); found != nil {
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
	source := i.source()
	if strings.Contains(source, "sinatra") {
		return []port{{number: 4567}}
	}
	return listensOn(source, listenCall)
}

// started are the files that a command line starts, and those that its scripts for a shell start.
func (i image) started() (all []startFile) {
	for _, f := range i.named(i.program()) {
		all = append(all, f)
		if isShell(f) {
			all = append(all, i.named(strings.Fields(f.text))...)
		}
	}
	return all
}

// serverFiles are the texts of copied files that configure a server.
func (i image) serverFiles() (all []string) {
	for _, c := range i.copies {
		switch {
		case c.folder:
			for _, name := range i.files.below(filepath.Join(i.context, filepath.FromSlash(c.from)), serverFile.MatchString) {
				all = append(all, i.read(path.Join(c.from, name)))
			}
		case c.from != "" && (serverFile.MatchString(c.from) || serverFile.MatchString(c.to)):
			all = append(all, i.read(c.from))
		}
	}
	return all
}

// commandLines are the command line of the image and its scripts for a shell.
func (i image) commandLines() string {
	all := []string{strings.Join(i.program(), " ")}
	for _, f := range i.named(i.program()) {
		if isShell(f) {
			all = append(all, f.text)
		}
	}
	return strings.ToLower(strings.Join(all, "\n"))
}

// maxSources is the number of files that are searched if the command line names none.
const maxSources = 20

// programFiles are the files that the image starts, or the sources in its context where the program is compiled or a server
// finds them.
func (i image) programFiles() []startFile {
	all := i.started()
	if len(all) > 0 || i.context == "" {
		return all
	}
	names := i.files.below(i.context, func(name string) bool { return isSource(name) && path.Ext(name) != ".sh" })
	return i.contextFiles(names[:min(len(names), maxSources)])
}

// contextFiles reads files of the context.
func (i image) contextFiles(names []string) (all []startFile) {
	for _, name := range names {
		all = append(all, startFile{name, i.read(name)})
	}
	return all
}

// read returns the text of a file in the context, as files.small does.
func (i image) read(name string) string {
	return i.files.small(filepath.Join(i.context, filepath.FromSlash(name)))
}

// source is the text of these files.
func (i image) source() string {
	var all []string
	for _, f := range i.programFiles() {
		all = append(all, f.text)
	}
	return strings.ToLower(strings.Join(all, "\n"))
}

// portsOfImages are the ports of well-known programs.
var portsOfImages = map[string]int32{
	"nginx": 80, "nginx-unprivileged": 8080, "httpd": 80, "caddy": 80, "traefik": 80, "wordpress": 80, "phpmyadmin": 80, "haproxy": 80,
	"tomcat": 8080, "mysql": 3306, "mariadb": 3306, "percona": 3306, "postgres": 5432, "postgis": 5432, "mongo": 27017, "redis": 6379,
	"redis-stack": 6379, "valkey": 6379, "keydb": 6379, "memcached": 11211, "rabbitmq": 5672, "elasticsearch": 9200, "opensearch": 9200,
	"minio": 9000, "jail": 5000, "nsjail": 1337, "challenge-jail": 1337, "chrome": 3000, "browserless": 3000, "couchdb": 5984, "neo4j": 7474, "ldap": 389, "openldap": 389,
	"vault": 8200, "consul": 8500, "etcd": 2379, "kafka": 9092, "zookeeper": 2181, "nats": 4222, "clickhouse-server": 8123,
	"mailhog": 1025, "mailpit": 1025, "gitea": 3000, "grafana": 3000, "aspnet": 8080, "ttyd": 7681, "prometheus": 9090, "standalone-chrome": 4444, "whoami": 80,
}

// imagePort is the port on which an image listens, 0 if nothing is known.
func imagePort(reference string) int32 {
	name, _, _ := strings.Cut(reference, "@")
	base := path.Base(name)
	base, tag, _ := strings.Cut(base, ":")
	if base == "php" && strings.Contains(tag, "apache") {
		return 80
	}
	return portsOfImages[base]
}

// databases speak no HTTP, and players hardly reach them.
var databases = []int32{3306, 5432, 27017, 6379, 11211, 5672, 9200, 2379, 9092, 2181, 389}

// lastNumber is the port at the end of an address.
var lastNumber = regexp.MustCompile(`\d{2,5}$`)

// listensOn returns the ports of the first pattern that finds one in a text. It ignores ports of databases, because the
// program connects to them.
func listensOn(text string, patterns ...*regexp.Regexp) []port {
	for _, p := range patterns {
		for _, found := range p.FindAllStringSubmatch(text, -1) {
			if ports := exposedPorts(strings.Join(found[1:], "")); len(ports) > 0 && !slices.Contains(databases, ports[0].number) {
				return ports
			}
		}
	}
	return nil
}

// startFile is a file of the context that the image starts.
type startFile struct{ name, text string }

// named are the scripts and sources that a command line names.
func (i image) named(words []string) (all []startFile) {
	if i.context == "" {
		return nil
	}
	for _, word := range words {
		word = strings.Trim(word, `"'`)
		name, target := path.Base(word), path.Clean(absolute(i.workdir, word))
		text := cmp.Or(i.texts[target], i.texts["/"+name])
		sources := []string{name}
		for _, c := range i.copies {
			below, inside := strings.CutPrefix(target, strings.TrimSuffix(c.to, "/")+"/")
			if c.folder && inside {
				sources = append(sources, path.Join(c.from, below))
			} else if !c.folder && path.Base(c.to) == name && c.from != "" {
				sources = append(sources, c.from)
			}
		}
		for _, source := range sources {
			text = cmp.Or(text, i.read(source))
		}
		if text != "" {
			all = append(all, startFile{name, text})
		}
	}
	return all
}

// isShell reports whether a file is a script for a shell.
func isShell(f startFile) bool {
	first, _, _ := strings.Cut(f.text, "\n")
	return path.Ext(f.name) == ".sh" || strings.HasPrefix(first, "#!") && shellProgram.MatchString(first)
}

var shellProgram = regexp.MustCompile(`\b(?:ba|da|a|z)?sh\b`)

// runAs replaces the command line of the image by that of a container.
func (i *image) runAs(c bergv1.Container) {
	if len(c.Command) > 0 {
		i.entrypoint, i.command = c.Command, nil
	}
	if len(c.Args) > 0 {
		i.command = c.Args
	}
}

// program is the command line of the image.
func (i image) program() []string {
	return append(slices.Concat(i.entrypoint, i.command), i.startScript(i.command)...)
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
	if json.Unmarshal([]byte(i.read("package.json")), &manifest) != nil {
		return nil
	}
	return strings.Fields(manifest.Scripts["start"])
}

// flagText is a text in the shape of a flag, as in flag{...}. Its words say nothing about a program.
var flagText = regexp.MustCompile(`\w+\{[^{}\n]*\}`)

// text shows the kind of program: names of images, instructions, and dependencies in the context.
func (i image) text() string {
	all := slices.Clone(i.bases)
	for _, instruction := range i.lines {
		all = append(all, flagText.ReplaceAllString(instruction, ""))
	}
	all = append(all, strings.Join(i.program(), " "))
	for _, name := range []string{"package.json", "requirements.txt", "pyproject.toml", "pom.xml", "build.gradle", "build.gradle.kts", "Gemfile", "composer.json"} {
		if i.context != "" {
			all = append(all, i.read(name))
		}
	}
	return strings.ToLower(strings.Join(all, "\n"))
}

// variable matches a variable of a shell, with a default or another value behind a dash or a plus.
var variable = regexp.MustCompile(`\$(?:(\w+)|\{(\w+)(?:(:?[-+])([^}]*))?\})`)

// expand replaces the variables of a script by their values. Unknown variables stay.
func expand(text string, values map[string]string) string {
	return variable.ReplaceAllStringFunc(text, func(found string) string {
		part := variable.FindStringSubmatch(found)
		value, known := values[part[1]+part[2]]
		empty := !known || value == "" && strings.HasPrefix(part[3], ":")
		switch {
		case strings.HasSuffix(part[3], "-") && empty:
			return part[4]
		case strings.HasSuffix(part[3], "+") && empty:
			return ""
		case strings.HasSuffix(part[3], "+"):
			return part[4]
		case !known:
			return found
		}
		return value
	})
}
