package rules

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/config"
)

// Allowed holds the rights that the administrator allows containers.
type Allowed struct {
	// Capabilities is CHALLENGE_ALLOWED_CAPABILITIES.
	Capabilities []string
	// NestedSandbox: CHALLENGE_NESTED_SECCOMP_PROFILE is set.
	NestedSandbox bool
}

// AllowedBy returns the rights that the configuration allows.
func AllowedBy(cfg config.Challenge) Allowed {
	return Allowed{Capabilities: cfg.AllowedCapabilities, NestedSandbox: cfg.NestedSeccompProfile != ""}
}

// Settings are the settings of the operator that limit Challenges.
type Settings struct {
	Allowed
	// StartDeadline is CHALLENGE_START_DEADLINE, 0 for none.
	StartDeadline time.Duration
	// SandboxAssumed: NestedSandbox is not known, and taken for granted.
	SandboxAssumed bool
}

// maxChallengeName is the limit of spec.challengeRef.name. Kubernetes takes longer names of objects.
const maxChallengeName = 64

// Errors returns why no instance of a Challenge can become Running, as far as its spec shows it.
func Errors(c *bergv1.Challenge, s Settings) field.ErrorList {
	errs := append(Validate(c.Spec.Containers, s.Allowed), ValidateWarm(c)...)
	if len(c.Name) > maxChallengeName {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), c.Name,
			fmt.Sprintf("a name may have at most %d characters: no ChallengeInstance can refer to a longer one (spec.challengeRef.name)", maxChallengeName)))
	}
	for i, container := range c.Spec.Containers {
		p := container.ReadinessProbe
		if p == nil || s.StartDeadline <= 0 {
			continue
		}
		if wait := time.Duration(p.InitialDelaySeconds) * time.Second; wait >= s.StartDeadline {
			errs = append(errs, field.Invalid(field.NewPath("spec", "containers").Index(i).Child("readinessProbe", "initialDelaySeconds"), p.InitialDelaySeconds,
				fmt.Sprintf("the container is ready too late: an instance must be ready within %s (CHALLENGE_START_DEADLINE)", s.StartDeadline)))
		}
	}
	return errs
}

// Warning is something in a Challenge that starts, and that its author probably did not mean.
type Warning struct {
	Field   string
	Message string
}

// String is the warning in one line.
func (w Warning) String() string { return w.Field + ": " + w.Message }

type warnings []Warning

// windowsEnd is about a text that was copied from a file with Windows line endings.
const windowsEnd = "has a Windows line ending (\\r), which the program gets, too: remove it"

func (w *warnings) add(fieldPath *field.Path, format string, args ...any) {
	*w = append(*w, Warning{Field: fieldPath.String(), Message: fmt.Sprintf(format, args...)})
}

// Warnings returns probable mistakes. They do not repeat values of variables.
func Warnings(c *bergv1.Challenge) []Warning {
	var out warnings
	spec := field.NewPath("spec")
	containers := spec.Child("containers")
	dynamic, public := false, false
	for i, container := range c.Spec.Containers {
		parent := containers.Index(i)
		dynamic = dynamic || container.DynamicFlag != nil
		for _, p := range container.Ports {
			public = public || p.Public()
		}
		out.container(parent, container)
		out.variables(parent.Child("environment"), container, c.Spec.Containers)
	}
	if len(c.Spec.Containers) > 0 && !public {
		out.add(containers, "has no port that players can reach: set type to publicPort, publicHttpRoute or publicTlsRoute on one")
	}
	if c.Spec.DynamicFlagMode != "" && len(c.Spec.Containers) > 0 && !dynamic {
		out.add(spec.Child("dynamicFlagMode"), "makes a flag for each instance, but no container has a dynamicFlag that receives it")
	}
	if flag := c.Spec.Flag; flag != strings.TrimSpace(flag) {
		out.add(spec.Child("flag"), "begins or ends with white space, which players do not type: remove it")
	}
	if c.Spec.FlagFormat != "" && !strings.Contains(c.Spec.FlagFormat, "...") {
		out.add(spec.Child("flagFormat"), "has no ... where the flag differs, as in flag{...}")
	}
	for _, problem := range connectionInfoProblems(c) {
		out.add(spec.Child("connectionInfo"), "%s", problem)
	}
	return out
}

func (w *warnings) container(parent *field.Path, c bergv1.Container) {
	if movingTag(c.Image) && corev1.PullPolicy(c.ImagePullPolicy) != corev1.PullAlways {
		w.add(parent.Child("image"), "has no fixed version: a node that has an image of this name keeps it. Give each build a tag of its own or a digest, or set imagePullPolicy: Always")
	}
	if f := c.DynamicFlag; f != nil {
		w.flagFile(parent.Child("dynamicFlag", "content"), f.Content)
		w.flagFile(parent.Child("dynamicFlag", "executable"), f.Executable)
	}
	if host, _, found := strings.Cut(c.Image, "/"); found && !strings.ContainsAny(host, ".:[") && strings.ToLower(host) != host {
		w.add(parent.Child("image"), "is pulled from a registry that is called %s, and not from Docker Hub: write it in lower case", host)
	}
	requests, limits := AuthorResources(c)
	w.cores(parent.Child("resourceRequests", "cpu"), requests.CPU)
	w.cores(parent.Child("resourceLimits", "cpu"), limits.CPU)
	w.connections(parent, c)
	w.scripts(parent, c)
	w.probe(parent.Child("readinessProbe"), c, c.ReadinessProbe)
	w.probe(parent.Child("livenessProbe"), c, c.LivenessProbe)
}

func (w *warnings) cores(parent *field.Path, cpu *bergv1.Amount) {
	if cpu == nil {
		return
	}
	if q := Quantity(*cpu); q.Cmp(manyCPUs) > 0 {
		w.add(parent, "is %s cores: write %sm for thousandths of a core", q.AsDec(), *cpu)
	}
}

// unexpanded matches text in a path that a shell, or another placeholder, would replace.
var unexpanded = regexp.MustCompile(`\$\{?\w*\}?|\{[^{}]+\}|\*`)

func (w *warnings) flagFile(parent *field.Path, f *bergv1.FlagFile) {
	if f == nil {
		return
	}
	if folder := fileBelow(f.Path); folder != "" {
		w.add(parent.Child("path"), "is below %s, which looks like a file: if the image has that file, no container starts", folder)
	}
	if found := unexpanded.FindString(strings.ReplaceAll(f.Path, EntropyPlaceholder, "")); found != "" {
		w.add(parent.Child("path"), "%s stays as it is: write %s for characters that players cannot guess", found, EntropyPlaceholder)
	}
	if slices.Contains(imageFiles, f.Path) && strings.Contains(f.Path, "/bin/") {
		w.add(parent.Child("path"), "replaces a program of the image: choose another path, for example /flag.txt")
	}
	if isLikelyFolder(f.Path) {
		w.add(parent.Child("path"), "looks like a folder of the image: if it is one, no container starts. Add a file name, for example %s", path.Join(f.Path, "flag.txt"))
	}
	if f.Mode != nil && *f.Mode&0o555 == 0 {
		w.add(parent.Child("mode"), "%#o lets no user read or execute the file", *f.Mode)
	}
	if f.Mode != nil && f.Group == nil && *f.Mode&0o444 == 0o440 {
		w.add(parent.Child("mode"), "%#o lets root alone read the file, whose user and group are root: set group to that of the program", *f.Mode)
	}
}

// connections finds programs that do not survive the connection that is made before the instance is Running, and ports
// to which none is made.
func (w *warnings) connections(parent *field.Path, c bergv1.Container) {
	connects := false
	for i, p := range c.Ports {
		connects = connects || p.ConnectsAtStart()
		if p.ConnectAtStart != nil && (!p.Public() || p.Transport() != corev1.ProtocolTCP) {
			w.add(parent.Child("ports").Index(i).Child("connectAtStart"), "has no effect: it is for public TCP ports")
		}
	}
	if !connects {
		return
	}
	command := parent.Child("command")
	if len(c.Command) == 0 {
		command = parent.Child("args")
	}
	if program, change := ServesOnce(slices.Concat(c.Command, c.Args)); program != "" {
		w.add(command, "%s ends after one connection, and the operator connects before the instance is Running: %s, or set connectAtStart: false on the port", program, change)
	}
}

// scripts warns of a command line that changes flags.
func (w *warnings) scripts(parent *field.Path, c bergv1.Container) {
	for name, words := range map[string][]string{"command": c.Command, "args": c.Args} {
		if strings.Contains(strings.Join(words, " "), "\r") {
			w.add(parent.Child(name), windowsEnd)
		}
		if found := BreaksFlag(strings.Join(words, " "), c.DynamicFlag); found != "" {
			w.add(parent.Child(name), "%s: %s", found, BreaksFlagAdvice)
		}
	}
}

// flagInScript matches sed and perl with a variable of a flag in their own script.
var flagInScript = regexp.MustCompile(`\b(?:sed|perl)\b[^|;&\n]*?\$\{?(\w+)`)

// BreaksFlagAdvice says why such a command breaks flags, and what to write.
const BreaksFlagAdvice = "a flag with &, / or \\ arrives changed, since the program reads these characters as its own: write the file with printf %s \"$FLAG\""

// BreaksFlag returns the command in a script that changes flags with special characters, "" if there is none.
func BreaksFlag(script string, flag *bergv1.DynamicFlag) string {
	for _, found := range flagInScript.FindAllStringSubmatch(script, -1) {
		name := strings.ToUpper(found[1])
		isFlag := flag != nil && flag.Env != nil && flag.Env.Name == found[1]
		if isFlag || strings.Contains(name, "FLAG") && !strings.HasSuffix(name, "FILE") && !strings.HasSuffix(name, "PATH") {
			return strings.Join(strings.Fields(found[0]), " ")
		}
	}
	return ""
}

// ServesOnce returns the program of a command line that serves one connection and ends, and the option with which it serves
// more; "" if there is none.
func ServesOnce(commandLine []string) (program, change string) {
	words := strings.Fields(strings.Join(commandLine, " "))
	for i, word := range words {
		rest := words[i+1:]
		switch path.Base(word) {
		case "while", "until", "for":
			return "", "" // it is started again
		case "socat":
			for _, address := range rest {
				kind, options, _ := strings.Cut(strings.ToLower(strings.Trim(address, `"'`)), ":")
				if (strings.HasPrefix(kind, "tcp") || strings.HasPrefix(kind, "openssl-")) && strings.Contains(kind, "-l") && !slices.Contains(strings.Split(options, ","), "fork") {
					return "socat", "add the option fork, as in " + strings.ToUpper(kind) + ":1337,reuseaddr,fork"
				}
			}
		case "nc", "ncat", "netcat":
			listens, stays := false, false
			for _, flag := range rest {
				short := strings.HasPrefix(flag, "-") && !strings.HasPrefix(flag, "--")
				listens = listens || flag == "--listen" || short && strings.Contains(flag, "l")
				stays = stays || flag == "--keep-open" || short && strings.Contains(flag, "k")
			}
			if listens && !stays {
				return path.Base(word), "use socat with the option fork"
			}
		}
	}
	return "", ""
}

// probe compares a probe with the ports of its container. A probe may use a port that is not listed, but rarely does.
func (w *warnings) probe(parent *field.Path, c bergv1.Container, p *corev1.Probe) {
	if p == nil {
		return
	}
	check := func(parent *field.Path, port intstr.IntOrString) {
		var tcp []string
		udp := false
		for _, known := range c.Ports {
			switch {
			case known.Transport() == corev1.ProtocolUDP:
				udp = udp || known.Port == port.IntVal
			case known.Port == port.IntVal:
				return
			default:
				tcp = append(tcp, fmt.Sprint(known.Port))
			}
		}
		switch {
		case udp:
			w.add(parent, "connects to TCP port %s, and the container lists this port for UDP only", port.String())
		case len(tcp) > 0:
			w.add(parent, "connects to port %s, which is not among the container's TCP ports (%s)", port.String(), strings.Join(tcp, ", "))
		}
	}
	if p.HTTPGet != nil {
		check(parent.Child("httpGet", "port"), p.HTTPGet.Port)
	}
	if p.TCPSocket != nil {
		check(parent.Child("tcpSocket", "port"), p.TCPSocket.Port)
	}
	if p.GRPC != nil {
		check(parent.Child("grpc", "port"), intstr.FromInt32(p.GRPC.Port))
	}
}

// variables finds variables of the author that the operator replaces.
func (w *warnings) variables(parent *field.Path, c bergv1.Container, all []bergv1.Container) {
	replaced := map[string]string{"CHALLENGE_NAMESPACE": "the namespace of the instance"}
	for _, other := range all {
		for _, p := range other.Ports {
			if variable := EndpointVariable(p.Name); variable != "" {
				replaced[variable] = fmt.Sprintf("the address of port %s of %s", p.Name, other.Hostname)
			}
		}
	}
	if f := c.DynamicFlag; f != nil && f.Env != nil {
		if replacement, taken := replaced[f.Env.Name]; taken {
			w.add(parent.Key(f.Env.Name), "holds the flag in place of %s: choose another dynamicFlag.env.name", replacement)
		}
		replaced[f.Env.Name] = "the flag of the instance"
	}
	for _, name := range slices.Sorted(maps.Keys(c.Environment)) {
		if text, err := c.Environment[name].Text(); err == nil && strings.HasSuffix(strings.TrimSuffix(text, "\n"), "\r") {
			w.add(parent.Key(name), windowsEnd)
		}
		if replacement, taken := replaced[name]; taken {
			w.add(parent.Key(name), "is replaced by %s: remove it, or choose another name", replacement)
		}
	}
}
