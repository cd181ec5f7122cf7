package rules

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/naming"
)

const (
	// maxHostname leaves space for the suffixes of names that are derived from it.
	maxHostname = validation.DNS1035LabelMaxLength - len(NodePortSuffix)
	// maxMode is rwx for everyone.
	maxMode = 0o777
	// maxPath is the maximum of the schema, in characters.
	maxPath = 512
	// maxSegment is the maximum of Linux for a part of a path (NAME_MAX), in bytes.
	maxSegment = 255
)

// Validate returns the errors of a Challenge, each naming its field. The schema refuses most
// mistakes already. Validate finds mistakes that a schema cannot express, and mistakes in
// Challenges that were stored under another schema. It never repeats the value of an environment
// variable, which may be secret. allowed holds the administrator's permissions.
func Validate(all []bergv1.Container, allowed Allowed) field.ErrorList {
	if errs := validateSize(all); len(errs) > 0 {
		return errs
	}
	var errs field.ErrorList
	containers := field.NewPath("spec", "containers")

	hostnames := sets.New[string]()
	paths := map[string]*field.Path{}
	names := map[string]string{}
	for i, c := range all {
		parent := containers.Index(i)
		errs = append(errs, validateContainer(parent, c, allowed)...)

		if hostnames.Has(c.Hostname) {
			errs = append(errs, field.Duplicate(parent.Child("hostname"), c.Hostname))
			continue
		}
		hostnames.Insert(c.Hostname)
		for _, name := range []string{c.Hostname, c.Hostname + NodePortSuffix, c.Hostname + HeadlessSuffix} {
			if other, taken := paths[name]; taken {
				errs = append(errs, field.Invalid(parent.Child("hostname"), c.Hostname,
					fmt.Sprintf("the Service %q is already used by %s: choose another hostname", name, other)))
			}
			paths[name] = parent
		}
		for j, p := range c.Ports {
			variable := EndpointVariable(p.Name)
			if variable == "" {
				continue
			}
			fieldPath := parent.Child("ports").Index(j).Child("name")
			if other, taken := names[variable]; taken {
				errs = append(errs, field.Invalid(fieldPath, p.Name,
					fmt.Sprintf("results in the variable %s, which %s uses already: choose another name", variable, other)))
			}
			names[variable] = fieldPath.String()
		}
	}
	return errs
}

func validateContainer(parent *field.Path, c bergv1.Container, allowed Allowed) field.ErrorList {
	var errs field.ErrorList
	if len(c.Hostname) > maxHostname {
		errs = append(errs, field.TooLong(parent.Child("hostname"), c.Hostname, maxHostname))
	}
	if c.Hostname == "" {
		errs = append(errs, field.Required(parent.Child("hostname"), "name the container, for example web"))
	} else {
		for _, msg := range validation.IsDNS1035Label(c.Hostname) {
			errs = append(errs, field.Invalid(parent.Child("hostname"), c.Hostname, msg))
		}
	}
	if c.Hostname == "localhost" {
		errs = append(errs, field.Invalid(parent.Child("hostname"), c.Hostname, "is every container's own name: choose another hostname"))
	}
	if c.Image == "" {
		errs = append(errs, field.Required(parent.Child("image"), "name the image, for example ghcr.io/example/guestbook:1"))
	} else if c.Image != strings.TrimSpace(c.Image) {
		errs = append(errs, field.Invalid(parent.Child("image"), c.Image, "must be an image reference without leading or trailing spaces"))
	} else if problem := imageProblem(c.Image); problem != "" {
		errs = append(errs, field.Invalid(parent.Child("image"), c.Image, problem))
	}
	if policy := corev1.PullPolicy(c.ImagePullPolicy); !slices.Contains([]corev1.PullPolicy{"", corev1.PullAlways, corev1.PullIfNotPresent}, policy) {
		errs = append(errs, field.NotSupported(parent.Child("imagePullPolicy"), policy, []corev1.PullPolicy{corev1.PullAlways, corev1.PullIfNotPresent}))
	}
	errs = append(errs, validateWords(parent.Child("command"), c.Command)...)
	errs = append(errs, validateCommandLine(parent.Child("command"), c.Command)...)
	errs = append(errs, validateWords(parent.Child("args"), c.Args)...)
	if len(c.Command) > 0 && strings.TrimSpace(c.Command[0]) == "" {
		errs = append(errs, field.Required(parent.Child("command").Index(0), "name the program to run"))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Environment)) {
		key := parent.Child("environment").Key(name)
		for _, msg := range validation.IsEnvVarName(name) {
			errs = append(errs, field.Invalid(key, name, msg))
		}
		switch text, err := c.Environment[name].Text(); {
		case err != nil:
			errs = append(errs, field.TypeInvalid(key, "(not shown)", err.Error()))
		case strings.ContainsRune(text, 0):
			errs = append(errs, field.Invalid(key, "(not shown)", "must not contain a NUL character"))
		}
	}
	errs = append(errs, validatePorts(parent.Child("ports"), c.Ports)...)
	errs = append(errs, validateResources(parent, c)...)
	errs = append(errs, validateProbe(parent.Child("readinessProbe"), c.ReadinessProbe, readiness)...)
	errs = append(errs, validateProbe(parent.Child("livenessProbe"), c.LivenessProbe, liveness)...)
	errs = append(errs, validateFlag(parent.Child("dynamicFlag"), c.DynamicFlag)...)
	errs = append(errs, validateCapabilities(parent.Child("additionalCapabilities"), c.AdditionalCapabilities, allowed.Capabilities)...)
	if c.Sandbox != "" && c.Sandbox != bergv1.SandboxNested {
		errs = append(errs, field.NotSupported(parent.Child("sandbox"), c.Sandbox, []bergv1.Sandbox{bergv1.SandboxNested}))
	}
	if c.Sandbox == bergv1.SandboxNested && c.DynamicFlag != nil && c.DynamicFlag.Executable != nil {
		errs = append(errs, field.Forbidden(parent.Child("dynamicFlag", "executable"), "root can read the program in a sandbox of its own: use content, or no sandbox"))
	}
	if c.Sandbox == bergv1.SandboxNested && !allowed.NestedSandbox {
		errs = append(errs, field.Forbidden(parent.Child("sandbox"), "the operator has no seccomp profile for it: let the administrator prepare the nodes, and set CHALLENGE_NESTED_SECCOMP_PROFILE"))
	}
	if c.RuntimeClassName != "" {
		for _, msg := range validation.IsDNS1123Subdomain(c.RuntimeClassName) {
			errs = append(errs, field.Invalid(parent.Child("runtimeClassName"), c.RuntimeClassName, naming.Sentence(msg)))
		}
	}
	for name, value := range map[string]string{"egressBandwidth": c.EgressBandwidth, "ingressBandwidth": c.IngressBandwidth} {
		if value == "" {
			continue
		}
		if err := config.Bandwidth(value); err != nil {
			errs = append(errs, field.Invalid(parent.Child(name), value, err.Error()))
		}
	}
	return errs
}

func validateCapabilities(parent *field.Path, added, allowed []string) field.ErrorList {
	var errs field.ErrorList
	for i, name := range added {
		if problem := capabilityProblem(name); problem != "" {
			errs = append(errs, field.Invalid(parent.Index(i), name, problem))
			continue
		}
		if slices.Contains(allowed, config.AllCapabilities) {
			continue
		}
		if !slices.Contains(allowed, Capability(name)) {
			message := fmt.Sprintf("%q is not among CHALLENGE_ALLOWED_CAPABILITIES of the operator", name)
			if Capability(name) == "SYS_ADMIN" {
				message += ": a sandbox such as nsjail needs sandbox: nested instead"
			}
			errs = append(errs, field.Forbidden(parent.Index(i), message))
		}
	}
	return errs
}

func validatePorts(parent *field.Path, ports []bergv1.Port) field.ErrorList {
	var errs field.ErrorList
	met := sets.New[string]()
	for i, p := range ports {
		port := parent.Index(i)
		for _, msg := range validation.IsValidPortNum(int(p.Port)) {
			errs = append(errs, field.Invalid(port.Child("port"), p.Port, msg))
		}
		switch strings.ToLower(string(p.Protocol)) {
		case "", "tcp", "udp":
		default:
			errs = append(errs, field.NotSupported(port.Child("protocol"), p.Protocol, []string{"tcp", "udp"}))
		}
		if !slices.Contains(bergv1.PortTypes(), p.EffectiveType()) {
			errs = append(errs, field.NotSupported(port.Child("type"), p.Type, bergv1.PortTypes()))
		}
		if p.Routed() && p.Transport() != corev1.ProtocolTCP {
			errs = append(errs, field.Invalid(port.Child("protocol"), p.Protocol, "a "+string(p.Type)+" needs protocol tcp"))
		}
		if variable := EndpointVariable(p.Name); variable != "" {
			if msgs := validation.IsEnvVarName(variable); len(msgs) > 0 {
				errs = append(errs, field.Invalid(port.Child("name"), p.Name, "must begin with a letter: it names the variable "+variable))
			}
		}
		key := fmt.Sprintf("%d/%s", p.Port, p.Transport())
		if met.Has(key) {
			errs = append(errs, field.Duplicate(port.Child("port"), key))
		}
		met.Insert(key)
	}
	return errs
}

func validateResources(parent *field.Path, c bergv1.Container) field.ErrorList {
	var errs field.ErrorList
	checkAmount := func(name string, fieldPath *field.Path, a *bergv1.Amount) {
		if a == nil {
			return
		}
		if q, err := a.Quantity(); err != nil {
			errs = append(errs, field.Invalid(fieldPath, *a, unreadableAmount(name, *a)))
		} else if q.Sign() <= 0 {
			errs = append(errs, field.Invalid(fieldPath, *a, "must be above zero"))
		} else if problem := amountProblem(name, *a, q); problem != "" {
			errs = append(errs, field.Invalid(fieldPath, *a, problem))
		}
	}
	pair := func(name string, request, limit *bergv1.Amount) {
		requestAt, limitAt := parent.Child("resourceRequests", name), parent.Child("resourceLimits", name)
		before := len(errs)
		checkAmount(name, requestAt, request)
		checkAmount(name, limitAt, limit)
		if len(errs) > before || request == nil || limit == nil {
			return
		}
		r, l := Quantity(*request), Quantity(*limit)
		if r.Cmp(l) > 0 {
			errs = append(errs, field.Invalid(requestAt, *request, "must not be above resourceLimits."+name))
		}
	}
	requests, limits := AuthorResources(c)
	pair("cpu", requests.CPU, limits.CPU)
	pair("memory", requests.Memory, limits.Memory)
	before, fieldPath := len(errs), parent.Child("sharedMemory")
	checkAmount("memory", fieldPath, c.SharedMemory)
	if len(errs) > before || c.SharedMemory == nil || limits.Memory == nil {
		return errs
	}
	if limit, err := limits.Memory.Quantity(); err == nil && limit.Cmp(Quantity(*c.SharedMemory)) < 0 {
		errs = append(errs, field.Invalid(fieldPath, *c.SharedMemory,
			fmt.Sprintf("counts to resourceLimits.memory, which is only %s: raise that limit above sharedMemory", *limits.Memory)))
	}
	return errs
}

type probeUse int

const (
	readiness probeUse = iota
	liveness
)

// validateProbe follows the API server's rules for the probes of a pod, so that
// a bad one is found before anything is created.
func validateProbe(parent *field.Path, p *corev1.Probe, use probeUse) field.ErrorList {
	if p == nil {
		return nil
	}
	var errs field.ErrorList
	handlers := 0
	if p.Exec != nil {
		handlers++
		errs = append(errs, validateExec(parent.Child("exec", "command"), p.Exec.Command)...)
	}
	if p.HTTPGet != nil {
		handlers++
		errs = append(errs, validateHTTPGet(parent.Child("httpGet"), *p.HTTPGet)...)
	}
	if p.TCPSocket != nil {
		handlers++
		errs = append(errs, validateProbeHost(parent.Child("tcpSocket", "host"), p.TCPSocket.Host)...)
		errs = append(errs, validateProbePort(parent.Child("tcpSocket", "port"), p.TCPSocket.Port)...)
	}
	if p.GRPC != nil {
		handlers++
		for _, msg := range validation.IsValidPortNum(int(p.GRPC.Port)) {
			errs = append(errs, field.Invalid(parent.Child("grpc", "port"), p.GRPC.Port, msg))
		}
	}
	if handlers != 1 {
		errs = append(errs, field.Required(parent, "set exactly one of exec, httpGet, tcpSocket and grpc"))
	}
	return append(errs, validateProbeTimes(parent, p, use)...)
}

func validateExec(parent *field.Path, command []string) field.ErrorList {
	var errs field.ErrorList
	if len(command) == 0 {
		errs = append(errs, field.Required(parent, "name the program to run"))
	}
	errs = append(errs, validateCommandLine(parent, command)...)
	return append(errs, validateWords(parent, command)...)
}

func validateHTTPGet(parent *field.Path, get corev1.HTTPGetAction) field.ErrorList {
	errs := validateProbeHost(parent.Child("host"), get.Host)
	errs = append(errs, validateProbePort(parent.Child("port"), get.Port)...)
	if s := get.Scheme; s != "" && s != corev1.URISchemeHTTP && s != corev1.URISchemeHTTPS {
		errs = append(errs, field.NotSupported(parent.Child("scheme"), s, []corev1.URIScheme{corev1.URISchemeHTTP, corev1.URISchemeHTTPS}))
	}
	// The kubelet could not send such a request, so the container would never be ready.
	if strings.ContainsFunc(get.Path, isControl) {
		errs = append(errs, field.Invalid(parent.Child("path"), get.Path, "must not contain control characters"))
	}
	for i, h := range get.HTTPHeaders {
		header := parent.Child("httpHeaders").Index(i)
		if strings.ContainsFunc(h.Value, func(r rune) bool { return isControl(r) && r != '\t' }) {
			errs = append(errs, field.Invalid(header.Child("value"), h.Value, "must not contain control characters"))
		}
		for _, msg := range validation.IsHTTPHeaderName(h.Name) {
			errs = append(errs, field.Invalid(header.Child("name"), h.Name, msg))
		}
	}
	return errs
}

func validateProbeHost(parent *field.Path, host string) field.ErrorList {
	if host == "" {
		return nil
	}
	return field.ErrorList{field.Forbidden(parent, "must not be set: the node would connect to that host, but a probe may reach its own container only")}
}

func validateProbePort(parent *field.Path, port intstr.IntOrString) (errs field.ErrorList) {
	if port.Type == intstr.String {
		return field.ErrorList{field.Invalid(parent, port.StrVal, "must be a number: the ports of a challenge container have no names in its pod")}
	}
	for _, msg := range validation.IsValidPortNum(port.IntValue()) {
		errs = append(errs, field.Invalid(parent, port.IntValue(), msg))
	}
	return errs
}

func validateProbeTimes(parent *field.Path, p *corev1.Probe, use probeUse) (errs field.ErrorList) {
	for name, value := range map[string]int32{
		"initialDelaySeconds": p.InitialDelaySeconds, "timeoutSeconds": p.TimeoutSeconds, "periodSeconds": p.PeriodSeconds,
		"successThreshold": p.SuccessThreshold, "failureThreshold": p.FailureThreshold,
	} {
		if value < 0 {
			errs = append(errs, field.Invalid(parent.Child(name), value, "must not be negative"))
		}
	}
	if use == liveness && p.SuccessThreshold > 1 {
		errs = append(errs, field.Invalid(parent.Child("successThreshold"), p.SuccessThreshold, "must be 1"))
	}
	grace := p.TerminationGracePeriodSeconds
	switch {
	case grace == nil:
	case use == readiness:
		errs = append(errs, field.Invalid(parent.Child("terminationGracePeriodSeconds"), *grace, "must not be set for a readiness probe"))
	case *grace <= 0:
		errs = append(errs, field.Invalid(parent.Child("terminationGracePeriodSeconds"), *grace, "must be above zero"))
	}
	return errs
}

// validateWords refuses words that no program can get. It does not repeat them, since they may hold secrets.
func validateWords(parent *field.Path, words []string) field.ErrorList {
	var errs field.ErrorList
	for i, word := range words {
		if strings.ContainsRune(word, 0) {
			errs = append(errs, field.Invalid(parent.Index(i), "(not shown)", "must not contain a NUL character"))
		}
	}
	return errs
}

// validateCommandLine refuses a command line in one word, which is the name of no program.
func validateCommandLine(parent *field.Path, words []string) field.ErrorList {
	if len(words) != 1 || len(strings.Fields(words[0])) < 2 {
		return nil
	}
	return field.ErrorList{field.Invalid(parent.Index(0), words[0],
		"is the name of one program: write each argument as an item of its own, or [sh, -c, ...] for a command line")}
}

// isControl reports whether a character is a control character of ASCII.
func isControl(r rune) bool { return r < ' ' || r == 0x7f }

func validateFlag(parent *field.Path, f *bergv1.DynamicFlag) field.ErrorList {
	if f == nil {
		return nil
	}
	var errs field.ErrorList
	set := 0
	if f.Env != nil {
		set++
		for _, msg := range validation.IsEnvVarName(f.Env.Name) {
			errs = append(errs, field.Invalid(parent.Child("env", "name"), f.Env.Name, msg))
		}
	}
	if f.Content != nil {
		set++
		errs = append(errs, validateFile(parent.Child("content"), *f.Content)...)
	}
	if f.Executable != nil {
		set++
		errs = append(errs, validateFile(parent.Child("executable"), *f.Executable)...)
	}
	errs = append(errs, validateGroup(parent, f)...)
	errs = append(errs, validateLate(parent, f)...)
	if set != 1 {
		errs = append(errs, field.Required(parent, "set exactly one of env, content and executable"))
	}
	return errs
}

// validateFile reports only the first problem of a path, since the others often follow from it.
func validateFile(parent *field.Path, f bergv1.FlagFile) field.ErrorList {
	var errs field.ErrorList
	invalid := func(msg string) { errs = append(errs, field.Invalid(parent.Child("path"), f.Path, msg)) }
	switch {
	case !path.IsAbs(f.Path):
		invalid("must be absolute")
	case strings.HasSuffix(f.Path, "/"):
		invalid("must be a file, not a directory")
	case path.Clean(f.Path) != f.Path:
		invalid("must not contain empty, '.' or '..' segments")
	case strings.HasPrefix(path.Base(f.Path), ".."):
		invalid("the file name must not begin with '..'")
	case strings.ContainsAny(f.Path, ":\x00"):
		invalid("must not contain ':' or a NUL character")
	case filePathProblem(f.Path) != "":
		invalid(filePathProblem(f.Path))
	case utf8.RuneCountInString(f.Path) > maxPath:
		errs = append(errs, field.TooLong(parent.Child("path"), f.Path, maxPath))
	case slices.ContainsFunc(strings.Split(WithEntropy(f.Path, MaxEntropy), "/"), func(segment string) bool { return len(segment) > maxSegment }):
		invalid(fmt.Sprintf("must not have more than %d bytes between two slashes, '%s' counting %d", maxSegment, EntropyPlaceholder, len(MaxEntropy)))
	}
	if f.Mode != nil {
		if problem := modeProblem(*f.Mode); problem != "" {
			errs = append(errs, field.Invalid(parent.Child("mode"), *f.Mode, problem))
		}
	}
	if f.Group != nil && (*f.Group < 1 || *f.Group > maxGroup) {
		errs = append(errs, field.Invalid(parent.Child("group"), *f.Group, fmt.Sprintf("must be between 1 and %d", maxGroup)))
	}
	return errs
}

// maxGroup is the largest group that every node knows, also with user namespaces.
const maxGroup = 65535

// groupReads are the permission bits that Kubernetes sets for a file with a group.
const groupReads = 0o440

// validateGroup refuses a mode that Kubernetes cannot set: it lets root and the group read every file that has
// a group.
func validateGroup(parent *field.Path, f *bergv1.DynamicFlag) field.ErrorList {
	if f.Executable != nil && f.Executable.Group != nil {
		return field.ErrorList{field.Forbidden(parent.Child("executable", "group"),
			"the group could read the program, and the flag in it: use content, or a mode such as 0111 without a group")}
	}
	if c := f.Content; c != nil && c.Group != nil && c.Mode != nil && *c.Mode&groupReads != groupReads {
		return field.ErrorList{field.Invalid(parent.Child("content", "mode"), *c.Mode,
			"must contain 0440 together with group: Kubernetes lets root and the group read the file")}
	}
	return nil
}
