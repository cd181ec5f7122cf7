package importer

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/localfile"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/yamlnode"
	"github.com/bergctf/berg-operator/internal/berg/rules"
)

func (out *Result) draft(file, name string, o Options) *draft {
	d := &draft{result: out, options: o, file: file, challenge: &bergv1.Challenge{}}
	d.challenge.APIVersion, d.challenge.Kind = bergv1.GroupVersion.String(), "Challenge"
	d.challenge.Namespace = o.Namespace
	d.challenge.Name = cmp.Or(dnsName(cmp.Or(o.Name, name), 63), "challenge")
	d.describe(out.findAbout(filepath.Dir(file)))
	return d
}

// finish chooses defaults where the files are silent, and adds the Challenge to the result.
func (d *draft) finish() error {
	d.uniqueName()
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
			message := "docker build refuses this line: "
			if s.image.syntax != "" {
				message = "is left out, since only " + s.image.syntax + " may know it: "
			}
			n := d.note(s, "build", "", message+l.text)
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

// uniqueName gives a Challenge the name of the folder above as well if an earlier one has its name.
func (d *draft) uniqueName() {
	taken := func(name string) bool {
		return slices.ContainsFunc(d.result.Challenges, func(c bergv1.Challenge) bool { return c.Name == name })
	}
	if !taken(d.challenge.Name) {
		return
	}
	folder, name := folderName(d.file), d.challenge.Name
	if file, err := filepath.Abs(d.file); err == nil {
		above := file[:max(0, strings.LastIndex(file, string(filepath.Separator)+folder+string(filepath.Separator)))]
		d.challenge.Name = cmp.Or(dnsName(filepath.Base(above)+"-"+name, 63), name)
	}
	for n := 2; taken(d.challenge.Name); n++ {
		d.challenge.Name = fmt.Sprintf("%s-%d", dnsName(name, 60), n)
	}
	d.chosen(nil, "name", d.challenge.Name, "another Challenge is called "+name)
}

// choosePorts says who reaches each port, and how.
func (d *draft) choosePorts() {
	open := func(s *service, p port) bool { return !p.loopback }
	public := slices.ContainsFunc(d.services, func(s *service) bool {
		return slices.ContainsFunc(s.published, func(p port) bool { return open(s, p) })
	})
	nodePorts, allPorts, count := 0, 0, 0
	for _, s := range d.services {
		count += len(s.published)
	}
	for _, s := range d.services {
		published, exposed := s.published, s.exposed
		single := count == 1 && len(published) == 1
		if len(published) == 0 && len(exposed) == 0 {
			exposed = s.image.ports()
			if number := imagePort(s.named); len(exposed) == 0 && number != 0 {
				exposed = []port{{number: number}}
			}
		}
		// Where nothing is for players, the first container that is not a database is.
		if !public && count == 0 &&
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
		d.nameTooMany(s, tooMany)
		d.namePorts(s, made)
		allPorts += len(made)
		s.container.Ports = made
	}
	if !public && count == 0 {
		d.lost(nil, "ports", "", "no port for players is known: add one with type publicHttpRoute or publicPort")
	}
}

// nameTooMany names ports beyond the limits of a Challenge.
func (d *draft) nameTooMany(s *service, ports []int32) {
	if len(ports) == 0 {
		return
	}
	text := fmt.Sprint(ports[0])
	if n := len(ports); n > 1 {
		text = fmt.Sprintf("%d ports, %d to %d", n, slices.Min(ports), slices.Max(ports))
	}
	d.lost(s, "ports", text, fmt.Sprintf("too many ports: a container has at most %d, a Challenge %d, and %d for players that are not HTTP", rules.MaxPorts, rules.MaxAllPorts, rules.MaxNodePorts))
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
	if slices.ContainsFunc(s.image.bases, func(name string) bool { return strings.Contains(name, "windows/") }) {
		d.lost(s, "build", s.image.bases[0], "is an image for Windows, and nodes of challenges run Linux: write a Dockerfile for Linux")
	}
	if s.jail && !s.startsJail() && !isBrowser.MatchString(text) {
		d.lost(s, "privileged", "", "becomes sandbox: nested, which allows namespaces alone: no device, kernel module, kernel parameter or firewall of the node")
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
