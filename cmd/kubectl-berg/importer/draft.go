package importer

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
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
	// container is what a file of GZCTF says of the container, nil if there is none.
	container *yamlv3.Node
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
	generic := func(name string) bool {
		return dnsName(name, 63) == "" || slices.Contains(genericFolders, strings.ToLower(name))
	}
	for generic(filepath.Base(cleaned)) && len(filepath.Dir(cleaned)) > 1 {
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

// otherFields lists the fields of an object that a Challenge does not have.
func (d *draft) otherFields(s *service, node *yamlv3.Node, known []string) {
	d.otherFieldsAs(s, d.file, node, known, func(key string) string { return cmp.Or(reasons[key], "a Challenge has no such field") })
}

// otherFieldsAs lists them for a file, in other words.
func (d *draft) otherFieldsAs(s *service, file string, node *yamlv3.Node, known []string, message func(key string) string) {
	if node = yamlnode.Target(node); node == nil || node.Kind != yamlv3.MappingNode {
		return
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if key := node.Content[i].Value; !slices.Contains(known, key) {
			n := d.note(s, key, sourceText(node.Content[i+1]), message(key))
			n.File, n.Line = file, node.Content[i].Line
			d.result.Lost = append(d.result.Lost, n)
		}
	}
}

// reasons explain keys that a Challenge does not have, and name the alternative.
var reasons = map[string]string{
	"volumes":           "a container has no volumes: COPY the files into the image. What it writes stays until its pod ends",
	"tmpfs":             "a container has no volumes: it may write to its own file system",
	"volumes_from":      "a container has no volumes: COPY the files into the image",
	"configs":           "a container has no volumes: COPY the file into the image",
	"secrets":           "a container has no volumes: COPY the file into the image, or use environment",
	"depends_on":        "all containers start together: let the program try again until it can connect",
	"privileged":        "no container is privileged",
	"read_only":         "the file system can be written: let the image run as a user who may not",
	"user":              "the user is that of the image: write USER in the Dockerfile",
	"working_dir":       "the folder is that of the image: write WORKDIR in the Dockerfile",
	"network_mode":      "each container has a network of its own: they reach each other by hostname",
	"pid":               "each container has processes of its own",
	"ipc":               "each container has shared memory of its own",
	"devices":           "no container gets a device of the node",
	"gpus":              "no container gets a device of the node",
	"security_opt":      "the administrator chooses the seccomp profile of all challenges, with CHALLENGE_SECCOMP_PROFILE",
	"cap_drop":          "a container has the default capabilities of the container runtime",
	"ulimits":           "limits are those of the container runtime",
	"pids_limit":        "a Challenge has no such field: the limit is podPidsLimit of the kubelets, where the administrator has set one",
	"sysctls":           "kernel parameters are those of the node",
	"restart":           "a container that ends is started again",
	"stdin_open":        "players connect to ports, not to the terminal",
	"tty":               "players connect to ports, not to the terminal",
	"labels":            "labels of containers have no effect: routes follow from ports",
	"init":              "the image's program is process 1: start it with tini, or let it reap its children",
	"extra_hosts":       "names are those of the cluster's DNS, and hostnames of containers",
	"dns":               "names are those of the cluster's DNS, and hostnames of containers",
	"stop_grace_period": "containers end immediately",
	"stop_signal":       "containers end immediately",
	"platform":          "images must be built for the architecture of the nodes, usually linux/amd64",
	"external_links":    "a container reaches the containers of its instance only",
	"logging":           "logs are those of the cluster",
	"develop":           "a Challenge is not watched for changes: build a new image",
	"cpu_shares":        "use resourceRequests.cpu",
	"mem_swappiness":    "the node decides how it uses swap",
	"memswap_limit":     "the node decides how it uses swap",
	"oom_kill_disable":  "a container above its memory limit is killed",
	"runtime":           "set runtimeClassName to a RuntimeClass of the cluster",
	"post_start":        "put it into the program of the image",
	"pre_stop":          "containers end immediately",
	"cpu_count":         "means something on Windows only: write cpus",
	"replicas":          "a container runs once in each instance",
	"initContainers":    "all containers start together: let the image or the entrypoint do its work",
	"securityContext":   "the operator sets it: a container may ask for additionalCapabilities and sandbox",
	"nodeSelector":      "the administrator chooses the nodes of challenges",
	"tolerations":       "the administrator chooses the nodes of challenges",
	"affinity":          "the administrator chooses the nodes of challenges",
}

// isSysAdmin reports whether a capability is SYS_ADMIN, which jails ask for, or ALL.
func isSysAdmin(name string) bool {
	return slices.Contains([]string{"SYS_ADMIN", "ALL"}, rules.Capability(strings.ToUpper(name)))
}

// capability adds a capability that the operator allows.
func (d *draft) capability(s *service, c *bergv1.Container, name string) {
	name = strings.TrimPrefix(strings.ToUpper(name), "CAP_")
	trial := bergv1.Container{Hostname: "a", Image: "a", AdditionalCapabilities: []string{name}}
	if errs := rules.Validate([]bergv1.Container{trial}, d.options.Allowed); len(errs) > 0 {
		d.lost(s, "cap_add", name, errs[0].Detail)
		return
	}
	if !slices.Contains(c.AdditionalCapabilities, name) {
		c.AdditionalCapabilities = append(c.AdditionalCapabilities, name)
	}
}
