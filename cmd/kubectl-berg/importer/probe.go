package importer

import (
	"cmp"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mattn/go-shellwords"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/bergctf/berg-operator/internal/berg/rules"
)

// check is a health check of a container engine. Amounts of 0 are not given.
type check struct {
	test              []string
	interval, timeout time.Duration
	retries           int
}

// or returns the health check of a compose file, with the values of the image where the file has none.
func (c check) or(image check) check {
	if len(c.test) > 0 {
		return c
	}
	return check{image.test, cmp.Or(c.interval, image.interval), cmp.Or(c.timeout, image.timeout), cmp.Or(c.retries, image.retries)}
}

// probe returns what asks the same as a health check, nil for none. listens reports whether a port is one of the
// container: the node connects to the address of the pod, and other ports may only listen on the loopback.
func (c check) probe(listens func(port int32) bool) *corev1.Probe {
	if len(c.test) < 2 || c.test[0] == "NONE" {
		return nil
	}
	words, shell := c.test[1:], c.test[0] == "CMD-SHELL"
	command := words
	if shell {
		command = []string{"sh", "-c", words[0]}
		words = simpleWords(words[0])
	}
	handler := parseProbeCommand(words, listens)
	if handler == nil {
		handler = &corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: literal(command)}}
	}
	p := &corev1.Probe{ProbeHandler: *handler, PeriodSeconds: min(seconds(c.interval), maxPeriod), TimeoutSeconds: seconds(c.timeout), FailureThreshold: int32(min(c.retries, 1<<20))}
	if p.TimeoutSeconds == 0 {
		p.TimeoutSeconds = 10 // one second, the default of Kubernetes, is short for a command; container engines allow 30
	}
	return p
}

// maxPeriod is Kubernetes' default. A player waits for an instance until the next probe, and engines check every 30
// seconds.
const maxPeriod = 10

func seconds(d time.Duration) int32 {
	if d <= 0 {
		return 0
	}
	return int32(min(max(1, int64((d+time.Second-1)/time.Second)), 1<<20))
}

// literal returns words that a probe runs as written: the node expands $(NAME) and $$.
func literal(all []string) (out []string) {
	for _, word := range all {
		if strings.Contains(word, "$(") || strings.Contains(word, "$$") {
			word = rules.Literal(word)
		}
		out = append(out, word)
	}
	return out
}

// simpleWords splits a command line that needs no shell. It drops the usual "|| exit 1", since each failure counts as one.
func simpleWords(line string) []string {
	if before, after, found := strings.Cut(line, "||"); found {
		rest := strings.Fields(after)
		if len(rest) == 0 || !slices.Contains([]string{"exit", "false"}, rest[0]) || len(rest) > 2 {
			return nil
		}
		line = before
	}
	line = strings.NewReplacer(">/dev/null", "", "> /dev/null", "", "2>&1", "").Replace(line)
	if strings.ContainsAny(line, "|&;<>$`(){}*") && !strings.Contains(line, "http") || strings.ContainsAny(line, "|;<>$`(){}") {
		return nil
	}
	out, err := shellwords.Parse(line)
	if err != nil {
		return nil
	}
	return out
}

// parseProbeCommand is the probe of a command that asks the container itself, nil for every other one.
func parseProbeCommand(words []string, listens func(int32) bool) *corev1.ProbeHandler {
	if len(words) < 2 {
		return nil
	}
	name := words[0][strings.LastIndex(words[0], "/")+1:]
	switch name {
	case "curl", "wget":
		return httpRequest(name, words[1:], listens)
	case "nc", "ncat", "netcat":
		return connection(words[1:], listens)
	}
	return nil
}

// scan are the arguments of nc that connect to a port and send nothing.
var scan = regexp.MustCompile(`^(?:-[vn]+ |-w ?\d+ )*-[vn]*z[vn]* (?:-[vn]+ |-w ?\d+ )*(\S+) (\d+)$`)

// connection is the probe of nc, nil if it does more than connect to a port of the container.
func connection(args []string, listens func(int32) bool) *corev1.ProbeHandler {
	found := scan.FindStringSubmatch(strings.Join(args, " "))
	if found == nil || !own(found[1]) {
		return nil
	}
	port, err := strconv.ParseInt(found[2], 10, 32)
	if err != nil || !listens(int32(port)) {
		return nil
	}
	return &corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(int32(port))}}
}

func own(host string) bool {
	return slices.Contains([]string{"localhost", "127.0.0.1", "0.0.0.0", "::1"}, host)
}

// plainOptions of curl and wget change neither the request nor the exit code. With any other one, the program runs in
// the container.
var plainOptions = regexp.MustCompile(`^(?:-[fsSkLq]+|-nv|-q?O-|--(?:fail|silent|show-error|insecure|location|quiet|no-verbose|spider|no-check-certificate|(?:tries|timeout|max-time|connect-timeout)=\S+))$`)

// httpRequest is the probe that does the same as a program that makes a request, nil if there is none.
func httpRequest(name string, args []string, listens func(int32) bool) *corev1.ProbeHandler {
	options := strings.Join(slices.DeleteFunc(slices.Clone(args), func(word string) bool { return !plainOptions.MatchString(word) }), " ")
	rest := slices.DeleteFunc(slices.Clone(args), plainOptions.MatchString)
	fails := name == "wget" || failOption.MatchString(options) // without -f, curl accepts every answer
	if len(rest) != 1 || !fails || strings.HasPrefix(rest[0], "-") {
		return nil
	}
	target := rest[0]
	if !strings.Contains(target, "://") {
		target = "http://" + target
	}
	u, err := url.Parse(target)
	if err != nil || u.User != nil || !own(u.Hostname()) || u.Scheme != "http" && u.Scheme != "https" || u.Scheme == "https" && !insecureOption.MatchString(options) {
		return nil
	}
	number, err := strconv.ParseInt(cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme]), 10, 32)
	if err != nil || !listens(int32(number)) {
		return nil
	}
	get := &corev1.HTTPGetAction{Path: u.RequestURI(), Port: intstr.FromInt32(int32(number))}
	if u.Scheme == "https" {
		get.Scheme = corev1.URISchemeHTTPS
	}
	return &corev1.ProbeHandler{HTTPGet: get}
}

// failOption and insecureOption are options of curl and wget.
var (
	failOption     = regexp.MustCompile(`(?:^|\s)(?:-[sSkLq]*f|--fail)`)
	insecureOption = regexp.MustCompile(`(?:^|\s)(?:-[fsSLq]*k|--insecure|--no-check-certificate)`)
)
