package importer

import (
	"cmp"
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

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

// healthcheck reads the instruction of a Dockerfile.
func healthcheck(text string) (c check) {
	for strings.HasPrefix(text, "--") {
		word, rest := text, ""
		if index := strings.IndexFunc(text, unicode.IsSpace); index > 0 {
			word, rest = text[:index], strings.TrimSpace(text[index:])
		}
		option, value, _ := strings.Cut(word, "=")
		switch option {
		case "--interval":
			c.interval, _ = time.ParseDuration(value)
		case "--timeout":
			c.timeout, _ = time.ParseDuration(value)
		case "--retries":
			c.retries, _ = strconv.Atoi(value)
		}
		text = rest
	}
	name, rest := firstWord(text)
	switch {
	case name != "CMD" || rest == "":
		c.test = []string{"NONE"}
	case json.Unmarshal([]byte(rest), &c.test) == nil:
		c.test = append([]string{"CMD"}, c.test...)
	default:
		c.test = []string{"CMD-SHELL", rest}
	}
	return c
}

// or returns a health check of a compose file, with what the image says where it is silent.
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
		p.TimeoutSeconds = 10 // one second, the default of Kubernetes, is short for a command; 30 is that of engines
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

func connection(words []string, listens func(int32) bool) *corev1.ProbeHandler {
	var rest []string
	scan := false
	for i := 0; i < len(words); i++ {
		switch word := words[i]; {
		case word == "-w":
			i++
		case strings.HasPrefix(word, "-") && strings.Trim(word[1:], "zvnw0123456789") == "":
			scan = scan || strings.Contains(word, "z")
		case strings.HasPrefix(word, "-"):
			return nil
		default:
			rest = append(rest, word)
		}
	}
	if !scan || len(rest) != 2 || !own(rest[0]) {
		return nil
	}
	port, err := strconv.ParseInt(rest[1], 10, 32)
	if err != nil || !listens(int32(port)) {
		return nil
	}
	return &corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(int32(port))}}
}

func own(host string) bool {
	return slices.Contains([]string{"localhost", "127.0.0.1", "0.0.0.0", "::1"}, host)
}

var (
	// plainOptions of curl and wget change neither the request nor the exit code.
	plainOptions = map[string][]string{
		"curl": {"-s", "--silent", "-S", "--show-error", "-f", "--fail", "-k", "--insecure", "-L", "--location"},
		"wget": {"-q", "--quiet", "-nv", "--no-verbose", "--spider", "--no-check-certificate", "-O-"},
	}
	// valueOptions take the next word.
	valueOptions = map[string][]string{
		"curl": {"-o", "--output", "-m", "--max-time", "--connect-timeout"},
		"wget": {"-O", "--output-document", "-t", "--tries", "-T", "--timeout"},
	}
)

// webCall is what curl or wget is asked for.
type webCall struct {
	target  string
	headers []corev1.HTTPHeader
	// fails: the program fails when the server answers with an error. insecure: any certificate is accepted.
	fails, insecure bool
}

// isShortOptions reports whether a word is several of curl's options that plainOptions has, perhaps with -o at its end.
func isShortOptions(word string) bool {
	return len(word) > 2 && word[0] == '-' && word[1] != '-' && strings.Trim(strings.TrimSuffix(word[1:], "o"), "fsSkL") == ""
}

// parseWebCall reads the arguments of curl or wget. It returns false where one of them says more than a probe can.
func parseWebCall(name string, args []string) (webCall, bool) {
	call := webCall{fails: name == "wget"}
	for i := 0; i < len(args); i++ {
		word := args[i]
		option, _, joined := strings.Cut(word, "=")
		switch {
		case name == "curl" && (word == "-H" || word == "--header") && i+1 < len(args):
			i++
			key, value, ok := strings.Cut(args[i], ":")
			if !ok {
				return call, false
			}
			call.headers = append(call.headers, corev1.HTTPHeader{Name: strings.TrimSpace(key), Value: strings.TrimSpace(value)})
		case slices.Contains(valueOptions[name], word):
			i++
		case joined && slices.Contains(valueOptions[name], option) && strings.HasPrefix(option, "--"):
		case slices.Contains(plainOptions[name], word):
			call.fails = call.fails || word == "-f" || word == "--fail"
			call.insecure = call.insecure || word == "-k" || word == "--insecure" || word == "--no-check-certificate"
		case name == "curl" && isShortOptions(word):
			call.fails, call.insecure = call.fails || strings.Contains(word, "f"), call.insecure || strings.Contains(word, "k")
			if strings.HasSuffix(word, "o") {
				i++
			}
		case name == "wget" && word == "-qO-":
		case name == "wget" && word == "-qO":
			i++
		case strings.HasPrefix(word, "-") || call.target != "":
			return call, false
		default:
			call.target = word
		}
	}
	return call, true
}

// httpRequest is the probe that does the same as a program that makes a request, nil if there is none.
func httpRequest(name string, args []string, listens func(int32) bool) *corev1.ProbeHandler {
	call, understood := parseWebCall(name, args)
	target := call.target
	if !understood || !call.fails || target == "" { // without -f, curl accepts every answer
		return nil
	}
	if !strings.Contains(target, "://") {
		target = "http://" + target
	}
	u, err := url.Parse(target)
	if err != nil || u.User != nil || !own(u.Hostname()) || u.Scheme != "http" && u.Scheme != "https" || u.Scheme == "https" && !call.insecure {
		return nil
	}
	number := map[string]int64{"http": 80, "https": 443}[u.Scheme]
	if text := u.Port(); text != "" {
		if number, err = strconv.ParseInt(text, 10, 32); err != nil {
			return nil
		}
	}
	if !listens(int32(number)) {
		return nil
	}
	get := &corev1.HTTPGetAction{Path: u.RequestURI(), Port: intstr.FromInt32(int32(number)), HTTPHeaders: call.headers}
	if u.Scheme == "https" {
		get.Scheme = corev1.URISchemeHTTPS
	}
	return &corev1.ProbeHandler{HTTPGet: get}
}
