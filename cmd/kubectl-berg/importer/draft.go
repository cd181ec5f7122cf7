package importer

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/localfile"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/yamlnode"
	"github.com/bergctf/berg-operator/internal/berg/rules"
)

// service is one container on its way into a Challenge.
type service struct {
	// name is the author's name for the service.
	name      string
	node      *yamlv3.Node
	container bergv1.Container
	// named is the image that the author names, build how it is built.
	named string
	build *Build
	image image
	// published are ports for players, exposed those for the other containers.
	published []port
	exposed   []port
	mounts    []mount
	// aliases are other names by which containers reach it.
	aliases []string
	check   check
	jail    bool
	// question asks the author where the flag is.
	question *Note
}

// mount is a file or folder of the host in a container, or a text of the compose file.
type mount struct{ from, to, text string }

type port struct {
	number int32
	// host is the number by which the author's machine publishes it, 0 if that is not given.
	host int32
	udp  bool
	// loopback: only the author's machine itself reaches it.
	loopback bool
	// http, tcp, tls: the author says that it is. With tls, a proxy ends TLS, and the container gets a raw connection.
	http, tcp, tls bool
}

// draft is a Challenge on its way.
type draft struct {
	result    *Result
	options   Options
	file      string
	challenge *bergv1.Challenge
	services  []*service
	// root is the file of the author, nil for a Dockerfile.
	root *yamlv3.Node
	// about describes the challenge to players, nil if no file does.
	about *about
}

func (out *Result) draft(file, name string, o Options) *draft {
	d := &draft{result: out, options: o, file: file, challenge: &bergv1.Challenge{}}
	d.challenge.APIVersion, d.challenge.Kind = bergv1.GroupVersion.String(), "Challenge"
	d.challenge.Namespace = o.Namespace
	d.challenge.Name = cmp.Or(dnsName(cmp.Or(o.Name, name), 63), "challenge")
	d.describe(out.findAbout(filepath.Dir(file)))
	return d
}

// note is about a key of a service, or of the file if s is nil.
func (d *draft) note(s *service, key, text, message string) Note {
	n := Note{File: d.file, Key: key, Text: text, Message: message}
	if s == nil {
		n.Line = yamlnode.Line(d.root, key)
		return n
	}
	n.Service = s.name
	if s.node == nil { // a folder of Dockerfiles: each has a service
		n.File = cmp.Or(s.image.file, n.File)
		return n
	}
	n.Line = cmp.Or(itemLine(yamlnode.Child(s.node, key), text), yamlnode.Line(s.node, key), s.node.Line)
	return n
}

func (d *draft) lost(s *service, key, text, message string) {
	d.result.Lost = append(d.result.Lost, d.note(s, key, text, message))
}

func (d *draft) chosen(s *service, key, text, message string) {
	d.result.Chosen = append(d.result.Chosen, d.note(s, key, text, message))
}

// genericFolders say where a challenge runs, not which one it is.
var genericFolders = []string{
	"app", "build", "chall", "challenge", "challs", "container", "deploy", "deployment", "dist", "docker", "env", "files", "handout", "infra",
	"instance", "public", "remote", "server", "service", "source", "src", "web",
}

// folderName names a Challenge after the folder of a file.
func folderName(file string) string {
	cleaned, err := filepath.Abs(filepath.Dir(file))
	if err != nil {
		return ""
	}
	for slices.Contains(genericFolders, strings.ToLower(filepath.Base(cleaned))) && len(filepath.Dir(cleaned)) > 1 {
		cleaned = filepath.Dir(cleaned)
	}
	return filepath.Base(cleaned)
}

var notDNS = regexp.MustCompile(`[^a-z0-9]+`)

// dnsName makes a name of Kubernetes from the author's name.
func dnsName(text string, maxLength int) string {
	name := strings.Trim(notDNS.ReplaceAllString(strings.ToLower(text), "-"), "-")
	return strings.Trim(name[:min(len(name), maxLength)], "-")
}

// hostname makes a DNS name from the name of a service. Dashes stay as they are.
func (d *draft) hostname(text string) string {
	name := dnsName(text, 48)
	if name == "" || name[0] < 'a' || name == "localhost" {
		name = strings.TrimSuffix("c-"+name, "-")
	}
	taken := func(name string) bool {
		return slices.ContainsFunc(d.services, func(s *service) bool {
			other := s.container.Hostname
			return slices.ContainsFunc([]string{"", rules.NodePortSuffix, rules.HeadlessSuffix}, func(suffix string) bool {
				return other == name+suffix || other+suffix == name
			})
		})
	}
	unique := name
	for i := 2; taken(unique); i++ {
		unique = fmt.Sprintf("%s-%d", name, i)
	}
	return unique
}

// finish chooses defaults where the files are silent, and adds the Challenge to the result.
func (d *draft) finish() error {
	for _, s := range d.services {
		s.image.runAs(s.container)
		s.container.Hostname = d.hostname(s.name)
		if s.container.Hostname != s.name {
			d.chosen(s, "hostname", s.container.Hostname, "is the name by which other containers reach it: change it where they use "+s.name)
		}
	}
	d.renameHosts()
	for _, s := range d.services {
		d.chooseImage(s)
		for _, l := range s.image.refused {
			n := d.note(s, "build", "", "docker build refuses this line: "+l.text)
			n.File, n.Line = s.image.file, l.number
			d.result.Lost = append(d.result.Lost, n)
		}
	}
	if err := d.addFlags(); err != nil {
		return err
	}
	d.choosePorts()
	for _, s := range d.services {
		listens := func(number int32) bool {
			return slices.ContainsFunc(s.container.Ports, func(p bergv1.Port) bool { return p.Port == number && p.Transport() == "TCP" })
		}
		if p := d.validProbe(s, "healthcheck", s.check.or(s.image.check).probe(listens)); p != nil {
			s.container.ReadinessProbe = p
		}
		d.suit(s)
		d.nameScripts(s)
		d.sharedFlags(s)
		if len(s.container.Environment) == 0 {
			s.container.Environment = nil
		}
		d.challenge.Spec.Containers = append(d.challenge.Spec.Containers, s.container)
	}
	if n := len(d.services); n > rules.MaxContainers {
		d.lost(nil, "services", "", fmt.Sprintf("a Challenge has at most %d containers, and there are %d: remove some", rules.MaxContainers, n))
	}
	d.result.Challenges = append(d.result.Challenges, *d.challenge)
	return nil
}

// validProbe returns a probe that the operator accepts, nil for another one.
func (d *draft) validProbe(s *service, key string, p *corev1.Probe) *corev1.Probe {
	if p == nil {
		return nil
	}
	trial := bergv1.Container{Hostname: "a", Image: "a", ReadinessProbe: p}
	if key == "livenessProbe" {
		trial.ReadinessProbe, trial.LivenessProbe = nil, p
	}
	if errs := rules.Validate([]bergv1.Container{trial}, d.options.Allowed); len(errs) > 0 {
		d.lost(s, key, sourceText(yamlnode.Child(s.node, key)), errs[0].Detail)
		return nil
	}
	return p
}

// renameHosts replaces names of other containers in variables, where they are hosts.
func (d *draft) renameHosts() {
	names := map[string]string{}
	for _, s := range d.services {
		for _, alias := range append([]string{s.name}, s.aliases...) {
			if _, taken := names[alias]; !taken && alias != s.container.Hostname {
				names[alias] = s.container.Hostname
			}
		}
	}
	for _, s := range d.services {
		delete(names, s.container.Hostname) // a hostname has priority over an alias
	}
	for _, s := range d.services {
		for _, name := range slices.Sorted(maps.Keys(s.container.Environment)) {
			text, err := s.container.Environment[name].Text()
			if err != nil {
				continue
			}
			changed := text
			for _, alias := range slices.Sorted(maps.Keys(names)) {
				changed = renameHost(name, changed, alias, names[alias])
			}
			if changed != text {
				s.container.Environment[name] = bergv1.StringValue(changed)
				d.chosen(s, "environment", name, "names another container by its hostname now")
			}
		}
	}
}

var hostVariable = regexp.MustCompile(`(?i)(host|server|addr|address|upstream|url|uri|endpoint)$`)

// renameHost replaces a host in a value: the whole value if the name of the variable says so, otherwise only before a
// port or in a URL.
func renameHost(variable, text, alias, hostname string) string {
	if text == alias && hostVariable.MatchString(variable) {
		return hostname
	}
	quoted := regexp.QuoteMeta(alias)
	text = regexp.MustCompile(`(//|@)`+quoted+`([:/?]|$)`).ReplaceAllString(text, "${1}"+hostname+"${2}")
	return regexp.MustCompile(`(^|[\s,;=])`+quoted+`(:\d)`).ReplaceAllString(text, "${1}"+hostname+"${2}")
}

// chooseImage keeps the image of the author, or names an image that is to be built.
func (d *draft) chooseImage(s *service) {
	named := s.named
	trial := bergv1.Container{Hostname: "a", Image: named}
	valid := named != "" && len(rules.Validate([]bergv1.Container{trial}, rules.Allowed{})) == 0
	if valid && s.build != nil && !strings.Contains(named, "/") {
		valid = false // Docker Hub would be asked for it
	}
	switch same := d.sameBuild(s); {
	case valid:
		s.container.Image = named
	case same != nil:
		s.container.Image, s.build = same.container.Image, nil // it is built already
	default:
		name := d.challenge.Name
		if len(d.services) > 1 && s.container.Hostname != name {
			name += "-" + s.container.Hostname
		}
		s.container.Image = strings.TrimSuffix(d.options.Registry, "/") + "/" + name + ":" + d.options.Tag
		text := named
		if text == "" && s.build != nil {
			text = "build"
		}
		note := "stands for " + cmp.Or(text, "an image that is not named")
		if d.options.Registry == DefaultRegistry {
			note += ": choose your registry with --registry"
		}
		d.chosen(s, "image", s.container.Image, note)
	}
	if s.build != nil {
		s.build.Image = s.container.Image
		d.result.Builds = append(d.result.Builds, *s.build)
	}
}

// sameBuild returns an earlier service whose image is built in the same way, nil if there is none.
func (d *draft) sameBuild(s *service) *service {
	for _, other := range d.services {
		if other == s || s.build == nil {
			break
		}
		if b := other.build; b != nil && s.named == other.named && b.Context == s.build.Context && b.Dockerfile == s.build.Dockerfile && b.Target == s.build.Target && maps.Equal(b.Args, s.build.Args) {
			return other
		}
	}
	return nil
}

// portsOfImages are the ports of well-known programs.
var portsOfImages = map[string]int32{
	"nginx": 80, "nginx-unprivileged": 8080, "httpd": 80, "caddy": 80, "traefik": 80, "wordpress": 80, "phpmyadmin": 80, "haproxy": 80,
	"tomcat": 8080, "mysql": 3306, "mariadb": 3306, "percona": 3306, "postgres": 5432, "postgis": 5432, "mongo": 27017, "redis": 6379,
	"redis-stack": 6379, "valkey": 6379, "keydb": 6379, "memcached": 11211, "rabbitmq": 5672, "elasticsearch": 9200, "opensearch": 9200,
	"minio": 9000, "jail": 5000, "nsjail": 1337, "chrome": 3000, "browserless": 3000, "couchdb": 5984, "neo4j": 7474, "ldap": 389, "openldap": 389,
	"vault": 8200, "consul": 8500, "etcd": 2379, "kafka": 9092, "zookeeper": 2181, "nats": 4222, "clickhouse-server": 8123,
	"mailhog": 1025, "mailpit": 1025, "gitea": 3000, "grafana": 3000, "prometheus": 9090, "standalone-chrome": 4444, "whoami": 80,
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

var (
	httpNumbers = []int32{
		80, 81, 88, 3000, 3001, 4000, 4200, 4567, 5000, 5001, 5173, 8000, 8001, 8002, 8008, 8080, 8081, 8082, 8083, 8088, 8090, 8888, 9000, 9090,
	}
	tlsNumbers = []int32{443, 8443, 4443}
	// databases speak no HTTP, and players hardly reach them.
	databases = []int32{3306, 5432, 27017, 6379, 11211, 5672, 9200, 2379, 9092, 2181, 389}

	speaksTCP = regexp.MustCompile(`socat|xinetd|ynetd|\bncat\b|tcpserver|\bpwn\b|\bnc -l`)
	speaksWeb = regexp.MustCompile(`nginx|httpd|apache|caddy|traefik|\bphp\b|wordpress|gunicorn|uwsgi|uvicorn|flask|fastapi|django|express|tomcat|jetty|` +
		`spring|\bnext\b|npm|yarn|pnpm|\bbun\b|\bdeno\b|\bnode\b|node:|rails|\bpuma\b|streamlit|http\.server|php -s|waitress|hypercorn|aiohttp|sanic|whoami`)
	isBrowser = regexp.MustCompile(`puppeteer|playwright|selenium|chromium|\bchrome\b|chromedriver|geckodriver|firefox|browserless|xss-?bot|admin-?bot`)
)

func (s *service) text() string { return strings.ToLower(s.named) + "\n" + s.image.text() }

// web reports whether a port speaks HTTP, as far as its service shows it.
func (s *service) web(p port) bool {
	text := s.text()
	switch {
	case p.udp || slices.Contains(databases, p.number) || p.number == 22 || p.number == 2222:
		return false
	case p.http || p.host == 80 || p.host == 443:
		return true
	case p.tcp || p.tls || s.isJail() || speaksTCP.MatchString(text):
		return false
	}
	for _, line := range s.check.or(s.image.check).test {
		if strings.Contains(line, "http://") {
			return true
		}
	}
	return slices.Contains(httpNumbers, p.number) || speaksWeb.MatchString(text)
}

// choosePorts says who reaches each port, and how.
func (d *draft) choosePorts() {
	open := func(s *service, p port) bool { return !p.loopback }
	public := slices.ContainsFunc(d.services, func(s *service) bool {
		return slices.ContainsFunc(s.published, func(p port) bool { return open(s, p) })
	})
	nodePorts, allPorts, players := 0, 0, 0
	for _, s := range d.services {
		players += len(s.published)
	}
	for _, s := range d.services {
		published, exposed := s.published, s.exposed
		single := players == 1 && len(published) == 1
		if len(published) == 0 && len(exposed) == 0 {
			exposed = s.image.ports()
			if number := imagePort(s.named); len(exposed) == 0 && number != 0 {
				exposed = []port{{number: number}}
			}
		}
		// Where nothing is for players, the first container that is not a database is.
		if !public && len(published) == 0 && !slices.ContainsFunc(d.services, func(other *service) bool { return len(other.published) > 0 }) &&
			slices.ContainsFunc(exposed, func(p port) bool { return !slices.Contains(databases, p.number) }) {
			published, exposed, public, single = exposed, nil, true, len(exposed) == 1
			d.chosen(s, "ports", "", "players reach it, since no service publishes a port")
		} else if !public && len(published) > 0 {
			d.chosen(s, "ports", sourceText(yamlnode.Child(s.node, "ports")), "players reach it, although it is published to the author's machine only: nothing else is published")
		}
		var made []bergv1.Port
		var tooMany []int32
		add := func(p port, players bool) {
			if players && single {
				p = d.reach(p)
			}
			if p.number < 1 || p.number > 65535 {
				d.lost(s, "ports", fmt.Sprint(p.number), "must be a port from 1 to 65535")
				return
			}
			transport := bergv1.Protocol("")
			if p.udp {
				transport = "udp"
			}
			if slices.ContainsFunc(made, func(m bergv1.Port) bool { return m.Port == p.number && m.Protocol == transport }) {
				return
			}
			made = append(made, bergv1.Port{Port: p.number, Protocol: transport})
			made[len(made)-1].Type, made[len(made)-1].AppProtocol = s.portType(p, players)
			if made[len(made)-1].OnNodePort() {
				nodePorts++
			}
			if made[len(made)-1].OnNodePort() && nodePorts > rules.MaxNodePorts || len(made) > rules.MaxPorts || allPorts+len(made) > rules.MaxAllPorts {
				made = made[:len(made)-1]
				tooMany = append(tooMany, p.number)
			}
		}
		for _, p := range published {
			add(p, open(s, p) || !public)
		}
		for _, p := range exposed {
			add(p, false)
		}
		if n := len(tooMany); n > 0 {
			text := fmt.Sprint(tooMany[0])
			if n > 1 {
				text = fmt.Sprintf("%d ports, %d to %d", n, slices.Min(tooMany), slices.Max(tooMany))
			}
			d.lost(s, "ports", text, fmt.Sprintf("too many ports: a container has at most %d, a Challenge %d, and %d for players that are not HTTP", rules.MaxPorts, rules.MaxAllPorts, rules.MaxNodePorts))
		}
		d.namePorts(s, made)
		allPorts += len(made)
		s.container.Ports = made
	}
	if !public && !slices.ContainsFunc(d.services, func(s *service) bool { return len(s.published) > 0 }) {
		d.lost(nil, "ports", "", "no port for players is known: add one with type publicHttpRoute or publicPort")
	}
}

// portType returns the type of a port for players, and its application protocol.
func (s *service) portType(p port, players bool) (bergv1.PortType, string) {
	protocol := ""
	switch {
	case p.http: // the author says so, also at 8443
		protocol = "http"
	case p.tls && players:
		return bergv1.PublicTLSRoute, ""
	case p.tcp && players && p.number != 22 && p.number != 2222:
	case !p.udp && slices.Contains(tlsNumbers, p.number):
		protocol = "https"
	case !p.udp && (p.number == 22 || p.number == 2222):
		protocol = "ssh"
	case s.web(p):
		protocol = "http"
	}
	switch {
	case !players:
		return bergv1.InternalPort, protocol
	case protocol == "https":
		return bergv1.PublicTLSRoute, protocol
	case protocol == "http":
		return bergv1.PublicHTTPRoute, protocol
	default:
		return bergv1.PublicPort, protocol
	}
}

// namePorts gives ports names whose variables no other port and no variable of an author has.
func (d *draft) namePorts(s *service, made []bergv1.Port) {
	for i := range made {
		name := s.container.Hostname
		if len(made) > 1 {
			name = fmt.Sprintf("%s-%d", name, made[i].Port)
		}
		if made[i].Protocol == "udp" && len(made) > 1 {
			name += "-udp"
		}
		variable := rules.EndpointVariable(name)
		taken := slices.ContainsFunc(d.services, func(other *service) bool {
			_, used := other.container.Environment[variable]
			return used || slices.ContainsFunc(other.container.Ports, func(p bergv1.Port) bool { return rules.EndpointVariable(p.Name) == variable })
		})
		if !taken {
			made[i].Name = name
		}
	}
}

// suit adds the settings that jails, browsers and programs for one connection need.
func (d *draft) suit(s *service) {
	text := s.text()
	if program, change := rules.ServesOnce(s.image.program()); program != "" {
		for i := range s.container.Ports {
			if p := &s.container.Ports[i]; p.ConnectsAtStart() {
				p.ConnectAtStart = new(bool)
				d.chosen(s, "connectAtStart", "false", program+" ends after one connection, and players wait until it is started again: "+change+", and remove this field")
			}
		}
	}
	if s.isJail() {
		if !d.options.Allowed.NestedSandbox {
			d.lost(s, "privileged", "", "a jail needs namespaces of its own: let the administrator set CHALLENGE_NESTED_SECCOMP_PROFILE, and write sandbox: nested")
		} else {
			s.container.Sandbox = bergv1.SandboxNested
			d.chosen(s, "sandbox", "nested", "a jail makes namespaces of its own: the administrator must have set CHALLENGE_NESTED_SECCOMP_PROFILE")
		}
	}
	if !isBrowser.MatchString(text) {
		return
	}
	if !d.challenge.Spec.AllowOutboundTraffic {
		d.challenge.Spec.AllowOutboundTraffic = true
		d.chosen(s, "allowOutboundTraffic", "true", "a browser usually visits addresses of players: remove it if it visits this challenge only")
	}
	if limits := s.container.ResourceLimits; limits == nil || limits.Memory == nil {
		memory := bergv1.Amount("1Gi")
		if limits == nil {
			s.container.ResourceLimits = &bergv1.Resources{}
		}
		s.container.ResourceLimits.Memory = &memory
		d.chosen(s, "resourceLimits.memory", "1Gi", "a browser needs more than the default of the operator")
	}
}

// dockerfiles makes one container of each Dockerfile. content is the Dockerfile from standard input.
func (out *Result) dockerfiles(files []string, content []byte, o Options) error {
	name := folderName(files[0])
	if len(files) > 1 {
		name = folderName(filepath.Join(commonFolder(files), "Dockerfile"))
	}
	d := out.draft(files[0], name, o)
	for _, file := range files {
		context := filepath.Dir(file)
		s := &service{name: folderName(file), build: &Build{Context: context}}
		if len(files) == 1 {
			s.name = d.challenge.Name
		} else if base := filepath.Base(context); base != "." && base != "/" {
			s.name = base
		}
		if base := filepath.Base(file); base != "Dockerfile" {
			s.build.Dockerfile = file
			if _, suffix, ok := strings.Cut(base, "."); ok && len(files) > 1 && strings.HasPrefix(strings.ToLower(base), "dockerfile.") {
				s.name = suffix
			}
		}
		if file == standardInput {
			s.build.Dockerfile = ""
			s.image = out.files.parseDockerfile(string(content), file, context, "", nil)
		} else {
			d.readDockerfile(s, "Dockerfile", file, context, "")
		}
		d.services = append(d.services, s)
	}
	return d.finish()
}

// readDockerfile reads the Dockerfile of a service, and says why it cannot. key is the key that names it.
func (d *draft) readDockerfile(s *service, key, file, context, target string) {
	var err error
	switch s.image, err = d.result.files.readDockerfile(file, context, target, s.build.Args); {
	case errors.Is(err, errEmpty):
		d.lost(s, key, file, "is empty: docker build fails")
	case errors.Is(err, localfile.ErrRefused):
		d.lost(s, key, file, refusal(err))
	case err != nil:
		d.lost(s, key, file, "does not exist, so that docker build fails: add it, or name an image instead")
	}
}

func commonFolder(files []string) string {
	common := filepath.Dir(files[0])
	for _, file := range files[1:] {
		for common != "." && common != "/" && !strings.HasPrefix(file, common+string(filepath.Separator)) {
			common = filepath.Dir(common)
		}
	}
	return common
}
