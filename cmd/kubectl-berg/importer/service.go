package importer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/compose-spec/compose-go/v2/types"
	yamlv3 "go.yaml.in/yaml/v3"
	"k8s.io/utils/ptr"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/localfile"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/yamlnode"
	"github.com/bergctf/berg-operator/internal/berg/rules"
)

// silent are keys whose content is carried over, or that mean the same everywhere.
var silent = []string{
	"image", "build", "ports", "expose", "environment", "env_file", "command", "entrypoint", "healthcheck", "deploy", "mem_limit", "mem_reservation",
	"cpus", "cpu_quota", "cpu_period", "cap_add", "privileged", "container_name", "hostname", "networks", "links", "profiles", "pull_policy",
	"restart", "scale", "volumes", "tmpfs", "shm_size", "platform", "secrets", "configs", "attach", "extends", "dockerfile", "depends_on",
}

// compose adds the services of a project, and returns the groups that no network connects.
func (d *draft) compose(project *types.Project, nodes *yamlv3.Node, l *composeLoader) []group {
	names := slices.Sorted(maps.Keys(project.Services))
	// Containers are in the order of the author.
	position := map[string]int{}
	if nodes != nil {
		for i := 0; i+1 < len(nodes.Content); i += 2 {
			position[nodes.Content[i].Value] = i
		}
	}
	slices.SortStableFunc(names, func(a, b string) int { return position[a] - position[b] })
	starts := func(c types.ServiceConfig) bool {
		return len(c.Profiles) == 0 || slices.ContainsFunc(c.Profiles, func(p string) bool { return slices.Contains(d.options.Profiles, p) })
	}
	started := slices.ContainsFunc(names, func(name string) bool { return starts(project.Services[name]) })
	for _, name := range names {
		c := project.Services[name]
		s := &service{name: name, node: yamlnode.Child(nodes, name)}
		switch {
		case started && !starts(c):
			d.lost(s, "profiles", strings.Join(c.Profiles, ", "), "docker compose up does not start it: import it with --profile "+c.Profiles[0])
			continue
		case c.GetScale() == 0:
			d.lost(s, "deploy", "replicas: 0", "docker compose up does not start it")
			continue
		case runsOnce(project, name):
			d.lost(s, "depends_on", types.ServiceConditionCompletedSuccessfully, "it ends before others start, and containers of a Challenge do not end: let the image or the entrypoint of the others do its work")
			continue
		}
		d.service(s, project, c, l)
		d.services = append(d.services, s)
	}
	groups := d.groups(project, networkNames)
	if separate := len(groups) > 1; !separate {
		d.networks(project)
		groups = d.groups(project, func(c types.ServiceConfig) []string { return d.references(project, c) })
	} else if !d.options.Split {
		d.lost(nil, "networks", groupNames(groups), "these are several challenges, since no network connects them, and each has ports for players: make a Challenge of each with --split")
		return groups
	}
	if len(groups) > 1 && !d.options.Split {
		d.chosen(nil, "services", groupNames(groups), "are one Challenge, though none names another, and each has ports for players: if these are several challenges, make a Challenge of each with --split")
	}
	return groups
}

// group is a part of a project that is a challenge by itself.
type group struct {
	name     string
	services []*service
}

func groupNames(groups []group) string {
	var names []string
	for _, g := range groups {
		names = append(names, g.name)
	}
	return strings.Join(names, ", ")
}

// networkNames are the networks of a service, and the services with which it shares one.
func networkNames(c types.ServiceConfig) (names []string) {
	for name := range c.Networks {
		names = append(names, "network "+name)
	}
	if len(c.Networks) == 0 && c.NetworkMode == "" {
		names = append(names, "network default")
	}
	return names
}

// references are the services that the definition or the sources of a service name as hosts, and the volumes that it
// shares. A browser may visit each.
func (d *draft) references(project *types.Project, c types.ServiceConfig) (names []string) {
	s := d.services[slices.IndexFunc(d.services, func(s *service) bool { return s.name == c.Name })]
	texts := []string{strings.Join(slices.Concat(c.Command, c.Entrypoint), " ")}
	for _, value := range s.container.Environment {
		text, _ := value.Text()
		texts = append(texts, text)
	}
	for _, name := range d.result.files.below(s.image.context, func(name string) bool { return hostsIn.MatchString(name) }) {
		texts = append(texts, s.image.read(name))
	}
	text := strings.Join(texts, "\n")
	for _, v := range c.Volumes {
		if v.Type == types.VolumeTypeVolume && v.Source != "" {
			names = append(names, "volume "+v.Source)
		}
	}
	for _, other := range d.services {
		for _, host := range append([]string{other.name}, other.aliases...) {
			named := regexp.MustCompile(`(?:^|[\s/@"'=,(\[])` + regexp.QuoteMeta(host) + `(?:$|[\s/:"',;)\]?])`)
			if other != s && (isBrowser.MatchString(s.text()) || named.MatchString(text)) {
				names = append(names, "service "+other.name)
			}
		}
	}
	return names
}

// hostsIn matches files that may name a host.
var hostsIn = regexp.MustCompile(`\.(?:conf|cfg|ini|json|toml|ya?ml|env|xml|properties|template|[cm]?[jt]s|py|php|rb|go|rs|java|sh|pl|html)$`)

// groups returns the groups of services that nothing connects, if each has a port for players. Otherwise all services are
// one group. shared returns what connects a service to others, in addition to dependencies.
func (d *draft) groups(project *types.Project, shared func(types.ServiceConfig) []string) []group {
	numbers := map[string]int{} // the group of each network and service
	count := 0
	join := func(names ...string) {
		count++
		replaced := map[int]bool{}
		for _, name := range names {
			if known, ok := numbers[name]; ok {
				replaced[known] = true
			}
			numbers[name] = count
		}
		for name, number := range numbers {
			if replaced[number] {
				numbers[name] = count
			}
		}
	}
	for _, s := range d.services {
		c := project.Services[s.name]
		names := append([]string{"service " + s.name}, shared(c)...)
		for _, name := range append(c.GetDependencies(), c.Links...) {
			name, _, _ = strings.Cut(name, ":")
			names = append(names, "service "+name)
		}
		if name, found := strings.CutPrefix(c.NetworkMode, "service:"); found {
			names = append(names, "service "+name)
		}
		join(names...)
	}
	var out []group
	for _, s := range d.services {
		number := numbers["service "+s.name]
		n := slices.IndexFunc(out, func(g group) bool { return numbers["service "+g.services[0].name] == number })
		if n < 0 {
			n, out = len(out), append(out, group{name: s.name})
		}
		out[n].services = append(out[n].services, s)
	}
	for n, g := range out {
		if !slices.ContainsFunc(g.services, func(s *service) bool { return len(s.published) > 0 }) {
			return []group{{d.challenge.Name, d.services}}
		}
		if networks := slices.Collect(maps.Keys(project.Services[g.services[0].name].Networks)); len(networks) == 1 && len(g.services) > 1 && !slices.ContainsFunc(out[:n], func(g group) bool { return g.name == networks[0] }) {
			out[n].name = networks[0]
		}
	}
	return out
}

// runsOnce reports whether a service prepares others: they start when it has ended.
func runsOnce(project *types.Project, name string) bool {
	for _, c := range project.Services {
		if c.DependsOn[name].Condition == types.ServiceConditionCompletedSuccessfully {
			return true
		}
	}
	return false
}

func (d *draft) service(s *service, project *types.Project, c types.ServiceConfig, l *composeLoader) {
	s.named, s.container.Command, s.container.Args = c.Image, c.Entrypoint, c.Command
	switch {
	case c.Entrypoint == nil || len(c.Entrypoint) > 0:
	case len(c.Command) > 0: // without an entrypoint, the command has the program
		s.container.Command, s.container.Args = c.Command, nil
	default:
		d.lost(s, "entrypoint", "[]", "what the image has cannot be removed: write another one")
	}
	if c.Command != nil && len(c.Command) == 0 {
		d.lost(s, "command", "[]", "what the image has cannot be removed: write another one")
	}
	if len(s.container.Command) > 0 && len(c.Command) == 0 {
		s.container.Args = nil
	}
	d.validWords(s, "entrypoint", &s.container.Command, bergv1.Container{Command: s.container.Command})
	d.validWords(s, "command", &s.container.Args, bergv1.Container{Args: s.container.Args})
	d.build(s, c, l)
	d.environment(s, c, l)
	d.ports(s, c)
	d.resources(s, c)
	d.mounts(s, project, c, l)
	if h := c.HealthCheck; h != nil && h.Disable {
		s.check = check{test: []string{"NONE"}}
	} else if h != nil {
		s.check = check{test: h.Test, interval: duration(h.Interval), timeout: duration(h.Timeout)}
		if h.Retries != nil {
			s.check.retries = int(min(*h.Retries, 1<<20))
		}
	}
	s.jail = c.Privileged || slices.ContainsFunc(c.CapAdd, isSysAdmin)
	for _, name := range c.CapAdd {
		if !isSysAdmin(name) || c.Privileged {
			d.capability(s, &s.container, name)
		}
	}
	s.aliases = append(s.aliases, c.ContainerName, c.Hostname)
	for _, n := range c.Networks {
		if n != nil {
			s.aliases = append(s.aliases, n.Aliases...)
		}
	}
	for _, name := range project.ServiceNames() {
		other := project.Services[name]
		for _, link := range other.Links {
			if target, alias, ok := strings.Cut(link, ":"); ok && target == c.Name {
				s.aliases = append(s.aliases, alias)
			}
		}
	}
	s.aliases = slices.DeleteFunc(s.aliases, func(alias string) bool { return alias == "" || alias == s.name })
	slices.Sort(s.aliases)
	s.aliases = slices.Compact(s.aliases)
	d.rest(s, c, len(project.Services) == 1)
}

// validWords removes a command line with which no container starts. trial has it alone.
func (d *draft) validWords(s *service, key string, words *[]string, trial bergv1.Container) {
	trial.Hostname, trial.Image = "a", "a"
	if errs := rules.Validate([]bergv1.Container{trial}, rules.Allowed{}); len(errs) > 0 {
		d.lost(s, key, sourceText(yamlnode.Child(s.node, key)), errs[0].Detail)
		*words = nil
	}
}

// meansNested reports whether a security option says no more than that a jail may make namespaces and mount /proc, as
// sandbox: nested does.
func meansNested(option string) bool {
	switch strings.Replace(strings.ToLower(option), "=", ":", 1) {
	case "seccomp:unconfined", "apparmor:unconfined", "systempaths:unconfined", "label:disable", "no-new-privileges:false":
		return true
	}
	return false
}

// serviceKeys are the keys of a service in a compose file.
var serviceKeys = yamlKeys(reflect.TypeFor[types.ServiceConfig]())

func yamlKeys(t reflect.Type) (all []string) {
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		all = append(all, name)
	}
	return append(all, "extends", "<<")
}

// misspelt names the keys of a service that compose files do not have.
func (d *draft) misspelt(s *service) {
	node := yamlnode.Target(s.node)
	if node == nil || node.Kind != yamlv3.MappingNode {
		return
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if key := node.Content[i].Value; !slices.Contains(serviceKeys, key) && !strings.HasPrefix(key, "x-") {
			d.lost(s, key, sourceText(node.Content[i+1]), "is no key of a compose file, and docker compose refuses it: correct its spelling")
		}
	}
}

// rest names the keys that a Challenge does not have. No other container calls one that is alone.
func (d *draft) rest(s *service, c types.ServiceConfig, alone bool) {
	d.misspelt(s)
	keys := map[string]any{}
	data, err := json.Marshal(c)
	if err == nil {
		err = json.Unmarshal(data, &keys)
	}
	if err != nil {
		d.lost(s, "services", "", oneLine(err.Error()))
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if keys[key] == nil || slices.Contains(silent, key) {
			continue
		}
		text := sourceText(yamlnode.Child(s.node, key))
		if key == "security_opt" && d.options.Allowed.NestedSandbox && s.isJail() {
			options := slices.DeleteFunc(slices.Clone(c.SecurityOpt), meansNested)
			if len(options) == 0 {
				continue
			}
			text = strings.Join(options, ", ")
		}
		if text == "" {
			raw, _ := json.Marshal(keys[key])
			text = string(raw)
		}
		message := cmp.Or(reasons[key], "a Challenge has no such field")
		if other, found := strings.CutPrefix(c.NetworkMode, "service:"); found && key == "network_mode" {
			message = "each container has a network of its own: use " + other + " in place of localhost"
		}
		d.lost(s, key, text, message)
	}
	if n := c.GetScale(); n > 1 {
		d.lost(s, "deploy", fmt.Sprintf("replicas: %d", n), "a container runs once in each instance")
	}
	if len(c.DependsOn) > 0 {
		d.lost(s, "depends_on", sourceText(yamlnode.Child(s.node, "depends_on")), reasons["depends_on"])
	}
	if c.Restart == "no" || c.Restart == "on-failure" {
		d.lost(s, "restart", c.Restart, reasons["restart"])
	}
	if c.Platform != "" && c.Platform != "linux/amd64" {
		d.lost(s, "platform", c.Platform, reasons["platform"])
	}
	if c.PullPolicy == "build" || c.PullPolicy == "never" {
		d.lost(s, "pull_policy", c.PullPolicy, "nodes pull images: push the image to a registry")
	}
	d.deploy(s, c.Deploy)
	for _, name := range slices.Sorted(maps.Keys(c.Networks)) {
		if n := c.Networks[name]; n != nil && cmp.Or(n.Ipv4Address, n.Ipv6Address) != "" {
			d.lost(s, "networks", cmp.Or(n.Ipv4Address, n.Ipv6Address), "the cluster gives addresses: use the hostname where another container names this one")
		}
	}
	if len(s.aliases) > 0 && !alone {
		d.lost(s, "hostname", strings.Join(s.aliases, ", "), "other containers reach it by one name only: change it where files of images use another one")
	}
}

// deploy names what a scheduler of containers does for a service.
func (d *draft) deploy(s *service, dep *types.DeployConfig) {
	if dep == nil {
		return
	}
	if dep.Resources.Limits != nil && dep.Resources.Limits.Pids > 0 {
		d.lost(s, "deploy", fmt.Sprintf("pids: %d", dep.Resources.Limits.Pids), reasons["pids_limit"])
	}
	if r := dep.Resources.Reservations; r != nil && len(r.Devices)+len(r.GenericResources) > 0 {
		d.lost(s, "deploy", "devices", reasons["devices"])
	}
	if p := dep.RestartPolicy; p != nil && p.Condition != "" && p.Condition != "any" {
		d.lost(s, "deploy", "restart_policy: "+p.Condition, reasons["restart"])
	}
	if dep.Mode == "global" || len(dep.Placement.Constraints) > 0 {
		d.lost(s, "deploy", "placement", "the administrator chooses the nodes of challenges")
	}
}

// networks says when containers reach each other that did not before.
func (d *draft) networks(project *types.Project) {
	used := map[string]bool{}
	for _, c := range project.Services {
		for name := range c.Networks {
			used[name] = true
		}
	}
	if len(used) > 1 && len(d.services) > 1 {
		d.lost(nil, "networks", strings.Join(slices.Sorted(maps.Keys(used)), ", "), "all containers of an instance reach each other")
	}
}

func duration(d *types.Duration) time.Duration {
	if d == nil {
		return 0
	}
	return time.Duration(*d)
}

// remoteContext matches build contexts that docker downloads.
var remoteContext = regexp.MustCompile(`^(?:https?://|git://|ssh://|git@|github\.com/)`)

// build reads the Dockerfile of a service, from its file or inline, and notes how the author builds the image.
func (d *draft) build(s *service, c types.ServiceConfig, l *composeLoader) {
	if c.Build == nil {
		return
	}
	context := c.Build.Context
	s.build = &Build{Context: shorten(l.folder, context), Target: c.Build.Target, Args: map[string]string{}}
	for _, name := range slices.Sorted(maps.Keys(c.Build.Args)) {
		value := c.Build.Args[name]
		if found, ok := l.lookup(name); value == nil && ok {
			value = &found
		}
		if value == nil {
			d.chosen(s, "build", name, "has its value from the shell, and is left out: set it with --env "+name+"=VALUE")
			continue
		}
		s.build.Args[name] = *value
	}
	d.buildOptions(s, c.Build)
	if c.Build.DockerfileInline != "" {
		s.image = l.result.files.parseDockerfile(c.Build.DockerfileInline, "dockerfile_inline", context, c.Build.Target, s.build.Args)
		s.build.Dockerfile = shorten(l.folder, filepath.Join(context, "Dockerfile."+s.name))
		d.chosen(s, "build", "dockerfile_inline", "save it as "+s.build.Dockerfile+" before the image is built")
		return
	}
	file := c.Build.Dockerfile
	if file == "" {
		file = "Dockerfile"
	}
	if !filepath.IsAbs(file) {
		file = filepath.Join(context, file)
	}
	if remoteContext.MatchString(context) {
		d.lost(s, "build", context, "is not on this machine: ports, flag and program of the image are not known")
		return
	}
	d.readDockerfile(s, "build", shorten(l.folder, file), context, c.Build.Target)
	if c.Build.Dockerfile != "" && c.Build.Dockerfile != "Dockerfile" {
		s.build.Dockerfile = shorten(l.folder, file)
	}
}

// buildOptions names what the printed command does not pass to docker build.
func (d *draft) buildOptions(s *service, b *types.BuildConfig) {
	flags := map[string]int{
		"--secret": len(b.Secrets), "--ssh": len(b.SSH), "--build-context": len(b.AdditionalContexts), "--add-host": len(b.ExtraHosts), "--shm-size": int(min(b.ShmSize, 1)),
		"--network": len(b.Network), "--allow": len(b.Entitlements), "--ulimit": len(b.Ulimits),
	}
	for _, flag := range slices.Sorted(maps.Keys(flags)) {
		if flags[flag] > 0 {
			d.lost(s, "build", "", "the printed command lacks what compose gives to docker build here: add "+flag+", or build with docker compose build")
		}
	}
	if len(b.Platforms) > 0 && !slices.Contains(b.Platforms, "linux/amd64") {
		d.lost(s, "build", strings.Join(b.Platforms, ", "), reasons["platform"])
	}
}

// shorten names a path as the author would, from the current folder.
func shorten(folder, path string) string {
	base, err := filepath.Abs(folder)
	if err != nil || !filepath.IsAbs(path) {
		return path
	}
	rel, err := filepath.Rel(base, path)
	if err != nil {
		return path
	}
	return filepath.Join(folder, rel)
}

func (d *draft) environment(s *service, c types.ServiceConfig, l *composeLoader) {
	values := map[string]string{}
	for _, file := range c.EnvFiles {
		found, err := l.readEnvironment(file)
		if err != nil {
			switch {
			case errors.Is(err, localfile.ErrRefused):
				d.lost(s, "env_file", shorten(l.folder, file.Path), refusal(err))
			case bool(file.Required):
				d.lost(s, "env_file", shorten(l.folder, file.Path), "cannot be read: add its variables to environment")
			}
			continue
		}
		maps.Copy(values, found)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Environment)) {
		if value := c.Environment[name]; value != nil {
			values[name] = *value
			continue
		}
		if found, ok := l.lookup(name); ok {
			values[name] = found
		} else if _, ok := values[name]; !ok {
			values[name] = "" // the value is in the author's shell
			d.chosen(s, "environment", name, "has its value from the shell, and is empty: set it with --env "+name+"=VALUE")
		}
	}
	s.container.Environment = map[string]bergv1.EnvironmentValue{}
	for name, value := range values {
		s.container.Environment[name] = bergv1.StringValue(value)
	}
	trial := bergv1.Container{Hostname: "a", Image: "a", Environment: s.container.Environment}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		candidate := trial
		candidate.Environment = map[string]bergv1.EnvironmentValue{name: trial.Environment[name]}
		if len(rules.Validate([]bergv1.Container{candidate}, rules.Allowed{})) > 0 {
			delete(s.container.Environment, name)
			d.lost(s, "environment", name, "is no variable of a container")
		}
	}
}

// ports converts published and exposed ports. Ports on a loopback address come last, because players cannot reach them.
func (d *draft) ports(s *service, c types.ServiceConfig) {
	for _, p := range c.Ports {
		made := port{number: int32(p.Target), udp: p.Protocol == "udp", loopback: strings.HasPrefix(p.HostIP, "127.") || p.HostIP == "::1", http: p.AppProtocol == "http"}
		if host, err := strconv.ParseInt(strings.Split(p.Published, "-")[0], 10, 32); err == nil {
			made.host = int32(host)
		}
		if p.Target == 0 || p.Target > 65535 || p.Protocol == "sctp" {
			d.lost(s, "ports", fmt.Sprintf("%s:%d/%s", p.Published, p.Target, p.Protocol), "must be a port from 1 to 65535, tcp or udp")
			continue
		}
		s.published = append(s.published, made)
	}
	d.proxied(s, c)
	// A port that is published twice is public if one of both is.
	slices.SortStableFunc(s.published, func(a, b port) int {
		switch {
		case a.loopback == b.loopback:
			return 0
		case b.loopback:
			return -1
		}
		return 1
	})
	for _, text := range c.Expose {
		s.exposed = append(s.exposed, exposedPorts(text)...)
	}
}

// proxyPort matches a label of Traefik or Caddy with the port to which the proxy of the event leads players.
var proxyPort = regexp.MustCompile(`^traefik\.(http|tcp|udp)\.services\..*\.loadbalancer\.server\.port=(\d+)$|^caddy.*reverse_proxy.*=\{\{ ?upstreams (\d+) ?\}\}$|^VIRTUAL_PORT=(\d+)$`)

// proxied adds ports to which labels lead players through a proxy of the event, and how players reach them.
func (d *draft) proxied(s *service, c types.ServiceConfig) {
	labels := maps.Clone(c.Labels)
	if labels == nil {
		labels = types.Labels{}
	}
	if c.Deploy != nil {
		maps.Copy(labels, c.Deploy.Labels)
	}
	if value, ok := s.container.Environment["VIRTUAL_PORT"]; ok {
		labels["VIRTUAL_PORT"], _ = value.Text()
	}
	secure := false
	for name, value := range labels {
		secure = secure || strings.HasPrefix(name, "traefik.tcp.routers.") && strings.Contains(name, ".tls") && value != "false"
	}
	known := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		found := proxyPort.FindStringSubmatch(name + "=" + labels[name])
		if found == nil || strings.EqualFold(labels["traefik.enable"], "false") {
			continue
		}
		number := cmp.Or(found[2], found[3], found[4])
		if known[number] {
			continue
		}
		known[number] = true
		for _, made := range exposedPorts(number) {
			made.udp, made.tls, made.tcp = found[1] == "udp", found[1] == "tcp" && secure, found[1] == "tcp" && !secure
			made.http = !made.udp && !made.tls && !made.tcp
			s.published = slices.DeleteFunc(s.published, func(p port) bool { return p.number == made.number && p.udp == made.udp })
			s.published = append(s.published, made)
			d.chosen(s, "labels", fmt.Sprint(made.number), "players reach this port, by the label of a proxy")
		}
	}
}

// resources converts limits and reservations. deploy has priority over the older keys of compose. Kubernetes refuses a
// request above its limit, so such a request is lowered.
func (d *draft) resources(s *service, c types.ServiceConfig) {
	var limits, requests bergv1.Resources
	set := func(r *bergv1.Resources, cpu float64, memory int64) {
		if cpu > 0 {
			a := bergv1.Amount(fmt.Sprintf("%dm", max(1, int64(cpu*1000+0.5))))
			r.CPU = &a
		}
		if memory > 0 {
			a := byteAmount(memory)
			r.Memory = &a
		}
	}
	if c.CPUQuota > 0 && c.CPUPeriod > 0 {
		set(&limits, float64(c.CPUQuota)/float64(c.CPUPeriod), 0)
	} else if c.CPUQuota > 0 {
		set(&limits, float64(c.CPUQuota)/100000, 0)
	}
	set(&limits, float64(c.CPUS), int64(c.MemLimit))
	set(&requests, 0, int64(c.MemReservation))
	if dep := c.Deploy; dep != nil {
		if r := dep.Resources.Limits; r != nil {
			set(&limits, float64(r.NanoCPUs), int64(r.MemoryBytes))
		}
		if r := dep.Resources.Reservations; r != nil {
			set(&requests, float64(r.NanoCPUs), int64(r.MemoryBytes))
		}
	}
	if limits != (bergv1.Resources{}) {
		s.container.ResourceLimits = &limits
	}
	if requests != (bergv1.Resources{}) {
		s.container.ResourceRequests = &requests
	}
	if c.ShmSize > 0 {
		s.container.SharedMemory = ptr.To(byteAmount(int64(c.ShmSize)))
	}
	d.validAmounts(s)
	lower := func(key string, request **bergv1.Amount, limit *bergv1.Amount) {
		if *request == nil || limit == nil {
			return
		}
		if a, b := rules.Quantity(**request), rules.Quantity(*limit); a.Cmp(b) > 0 {
			d.chosen(s, "resourceRequests."+key, string(*limit), "is lowered to the limit")
			*request = limit
		}
	}
	lower("cpu", &requests.CPU, limits.CPU)
	lower("memory", &requests.Memory, limits.Memory)
	if s.container.SharedMemory == nil || limits.Memory == nil {
		return
	}
	if limit := rules.Quantity(*limits.Memory); limit.CmpInt64(int64(c.ShmSize)) < 0 {
		s.container.SharedMemory = limits.Memory
		d.chosen(s, "sharedMemory", string(*limits.Memory), "is lowered to the memory limit, to which it counts")
	}
}

// validAmounts removes amounts with which no container starts.
func (d *draft) validAmounts(s *service) {
	each := func(key string, a **bergv1.Amount) {
		if *a == nil {
			return
		}
		trial := bergv1.Container{Hostname: "a", Image: "a", ResourceLimits: &bergv1.Resources{Memory: *a}}
		if strings.HasSuffix(key, "cpu") {
			trial.ResourceLimits = &bergv1.Resources{CPU: *a}
		}
		if errs := rules.Validate([]bergv1.Container{trial}, rules.Allowed{}); len(errs) > 0 {
			d.lost(s, key, string(**a), errs[0].Detail)
			*a = nil
		}
	}
	both := func(key string, r **bergv1.Resources) {
		if *r == nil {
			return
		}
		each(key+".cpu", &(*r).CPU)
		each(key+".memory", &(*r).Memory)
		if **r == (bergv1.Resources{}) {
			*r = nil
		}
	}
	both("resourceLimits", &s.container.ResourceLimits)
	both("resourceRequests", &s.container.ResourceRequests)
	each("sharedMemory", &s.container.SharedMemory)
}

func byteAmount(n int64) bergv1.Amount {
	switch {
	case n%(1<<30) == 0:
		return bergv1.Amount(fmt.Sprintf("%dGi", n>>30))
	case n%(1<<20) == 0:
		return bergv1.Amount(fmt.Sprintf("%dMi", n>>20))
	case n%(1<<10) == 0:
		return bergv1.Amount(fmt.Sprintf("%dKi", n>>10))
	default:
		return bergv1.Amount(strconv.FormatInt(n, 10))
	}
}

// hostFiles are files that every host has, and that compose files share with containers out of habit.
var hostFiles = []string{
	"/etc/localtime", "/etc/timezone", "/usr/share/zoneinfo", "/etc/hosts", "/etc/resolv.conf", "/etc/hostname", "/etc/passwd", "/etc/group", "/etc/ssl/certs",
	"/etc/ca-certificates", "/sys/fs/cgroup", "/lib/modules", "/etc/machine-id",
}

// mounts keeps files of flags for later, and refuses all other volumes by name.
func (d *draft) mounts(s *service, project *types.Project, c types.ServiceConfig, l *composeLoader) {
	refuse := func(key, text string) { d.lost(s, key, text, reasons[key]) }
	keep := func(key, text string, m mount) {
		if info, err := d.result.files.Stat(m.from); err == nil && info.IsDir() {
			for _, flag := range d.result.files.flagsBelow(m.from) {
				s.mounts = append(s.mounts, mount{from: filepath.Join(m.from, filepath.FromSlash(flag)), to: path.Join(m.to, flag)})
			}
		} else if errors.Is(err, localfile.ErrRefused) && strings.HasPrefix(text, "..") {
			d.result.files.refused[shorten(".", m.from)] = err
		} else if isFlagFile(m.to) || m.from != "" && isFlagFile(m.from) {
			s.mounts = append(s.mounts, m)
			return
		}
		names := []string{m.from}
		for _, name := range d.result.files.below(m.from, isSource) {
			names = append(names, filepath.Join(m.from, filepath.FromSlash(name)))
		}
		for _, name := range names {
			content := d.result.files.small(name)
			if found := sharedText.FindString(content); found != "" && !isFlagPattern(found) {
				d.result.Lost = append(d.result.Lost, d.scriptNote(s, startFile{shorten(l.folder, name), content}, found, "is a flag that all players share: let the program read that of the instance"))
			}
		}
		refuse(key, text)
	}
	object := func(f types.FileObjectConfig, to string) mount {
		text, _ := l.lookup(f.Environment)
		return mount{from: f.File, to: to, text: cmp.Or(f.Content, text)}
	}
	list := yamlnode.Child(s.node, "volumes")
	for i, v := range c.Volumes {
		text := v.Source + ":" + v.Target
		if list != nil && len(list.Content) == len(c.Volumes) {
			text = sourceText(list.Content[i])
		}
		switch {
		case v.Source == "/var/run/docker.sock":
			d.lost(s, "volumes", text, "no container controls the node: use another way to start programs")
		case slices.ContainsFunc(hostFiles, func(file string) bool { return v.Source == file || strings.HasPrefix(v.Source, file+"/") }):
			d.lost(s, "volumes", text, "is a file of the host, and is not needed: a container has its own, with the time zone of its image (set TZ for another one)")
		case v.Type == "bind":
			keep("volumes", text, mount{from: v.Source, to: v.Target})
		default:
			refuse("volumes", text)
		}
	}
	for _, text := range c.Tmpfs {
		refuse("tmpfs", text)
	}
	for _, f := range c.Secrets {
		target := f.Target
		if target == "" {
			target = f.Source
		}
		if !strings.HasPrefix(target, "/") {
			target = "/run/secrets/" + target
		}
		keep("secrets", f.Source, object(types.FileObjectConfig(project.Secrets[f.Source]), target))
	}
	for _, f := range c.Configs {
		target := f.Target
		if target == "" {
			target = "/" + f.Source
		}
		keep("configs", f.Source, object(types.FileObjectConfig(project.Configs[f.Source]), target))
	}
}
