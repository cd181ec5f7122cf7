// Package authors writes Challenges as careless and as hostile authors do: most
// of each is sound, so that what is wrong is met deep inside a plan, and not at
// the first field.
package authors

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
)

// Author writes Challenges. The same seed gives the same ones.
type Author struct {
	choice *rand.Rand
	// oddity is how likely a value is odd.
	oddity float64
}

// New returns the author of a seed. oddity, from 0 to 1, is how likely each value
// is one that does not belong there.
func New(seed uint64, oddity float64) *Author {
	return &Author{choice: rand.New(rand.NewPCG(seed, 0)), oddity: oddity}
}

// object is written in the order of its keys, so that a seed gives the same bytes.
type object = map[string]any

// Spec returns the spec of a Challenge as JSON. It is of the right outline: what
// is a list or an object in the schema is one.
func (a *Author) Spec() []byte {
	spec := object{"containers": a.containers(), "allowOutboundTraffic": a.choice.IntN(2) == 0}
	a.perhaps(spec, "displayName", oddStrings)
	a.perhaps(spec, "flag", oddStrings)
	data, err := json.Marshal(spec)
	if err != nil {
		panic(fmt.Sprintf("authors: %v", err)) // of numbers, strings, lists and maps alone
	}
	return data
}

func (a *Author) containers() []any {
	n := a.choice.IntN(4) + 1
	if a.odd() {
		n = []int{0, 16, 17, 40}[a.choice.IntN(4)]
	}
	out := make([]any, n)
	for i := range out {
		out[i] = a.container(i)
	}
	return out
}

func (a *Author) container(i int) object {
	c := object{
		"hostname": a.pick([]any{fmt.Sprintf("c%d", i), fmt.Sprintf("host-%d", i)}, oddNames),
		"image":    a.pick([]any{"i", "registry.example.com:5000/a/b@sha256:" + strings.Repeat("0", 64), "ghcr.io/example/web:1"}, oddStrings),
	}
	if a.sometimes() {
		c["environment"] = a.environment()
	}
	if a.sometimes() {
		c["ports"] = a.ports(i)
	}
	for _, name := range []string{"resourceRequests", "resourceLimits"} {
		if a.sometimes() {
			c[name] = object{
				"cpu":    a.pick([]any{"100m", 1, 0.5, "2", nil}, oddAmounts),
				"memory": a.pick([]any{"64Mi", "100mi", 1 << 27, nil}, oddAmounts),
			}
		}
	}
	if a.sometimes() {
		c["sharedMemory"] = a.pick([]any{"64Mi", "100mi", 1 << 26, nil}, oddAmounts)
	}
	for _, name := range []string{"readinessProbe", "livenessProbe"} {
		if a.sometimes() {
			c[name] = a.probe()
		}
	}
	if a.sometimes() {
		c["dynamicFlag"] = a.dynamicFlag()
	}
	if a.sometimes() {
		var added []any
		for range a.choice.IntN(4) {
			added = append(added, a.pick([]any{"NET_ADMIN", "CAP_KILL", "SYS_PTRACE", "DAC_OVERRIDE"}, oddNames))
		}
		c["additionalCapabilities"] = added
	}
	if a.odd() {
		c["runtimeClassName"] = a.pick([]any{"", nil}, oddNames)
	}
	for _, name := range []string{"command", "args"} {
		if a.sometimes() {
			c[name] = a.pick([]any{[]any{"sh", "-c", "a && b"}, []any{"$(A)", "$$"}, []any{}, nil}, oddWords)
		}
	}
	for _, name := range []string{"egressBandwidth", "ingressBandwidth"} {
		if a.sometimes() {
			c[name] = a.pick([]any{"10M", "1k", "1P", "1.5Gi", "", nil}, oddBandwidths)
		}
	}
	return c
}

func (a *Author) environment() object {
	env := object{}
	for range a.choice.IntN(6) {
		name, _ := a.pick([]any{"A", "FLAG", "WEB_ENDPOINT", "CHALLENGE_NAMESPACE", "a.b-c", "_x"}, oddNames).(string)
		env[name] = a.pick([]any{"x", 1, true, nil, 1.5, "$(A)", "ä\n"}, oddStrings)
	}
	if a.odd() {
		env["LONG"] = strings.Repeat("x", 1<<a.choice.IntN(20))
	}
	return env
}

func (a *Author) ports(container int) []any {
	n := a.choice.IntN(4)
	if a.odd() {
		n = a.choice.IntN(40)
	}
	out := make([]any, n)
	for i := range out {
		port := object{"port": a.pick([]any{i + 1, 8000 + i}, []any{0, -1, 65535, 65536, 1 << 30, 80})}
		if a.sometimes() {
			port["name"] = a.pick([]any{fmt.Sprintf("p%d-%d", container, i), fmt.Sprintf("Web.%d.%d", container, i), nil}, oddNames)
		}
		if a.sometimes() {
			port["type"] = a.pick([]any{"internalPort", "publicPort", "publicHttpRoute", "publicTlsRoute", nil}, oddNames)
		}
		if a.sometimes() {
			port["protocol"] = a.pick([]any{"tcp", "TCP", nil}, []any{"udp", "UDP", "sctp", "tcp\n"})
		}
		if a.sometimes() {
			port["appProtocol"] = a.pick([]any{"http", "ssh", nil}, oddStrings)
		}
		out[i] = port
	}
	return out
}

func (a *Author) probe() object {
	p := object{}
	number := func() any { return a.pick([]any{80, 1, 65535}, []any{0, -1, 70000, "http", "80", ""}) }
	handlers := []func(){
		func() {
			p["exec"] = object{"command": a.pick([]any{[]any{"true"}, []any{"sh", "-c", "exit 0"}}, []any{[]any{}, []any{""}, nil})}
		},
		func() {
			p["httpGet"] = object{"port": number(), "path": a.pick([]any{"/", "", "/a?b=c"}, oddStrings)}
			get := p["httpGet"].(object)
			a.perhaps(get, "host", []any{"169.254.169.254", "localhost", "", "a b"})
			a.perhaps(get, "scheme", []any{"HTTPS", "http", "FTP"})
			if a.odd() {
				get["httpHeaders"] = []any{object{"name": a.pick([]any{"Host", "X-A"}, oddNames), "value": a.pick([]any{"a"}, oddStrings)}}
			}
		},
		func() { p["tcpSocket"] = object{"port": number()} },
		func() {
			p["grpc"] = object{"port": a.pick([]any{80}, []any{0, 70000}), "service": a.pick([]any{nil, "a"}, oddStrings)}
		},
	}
	handlers[a.choice.IntN(len(handlers))]()
	if a.odd() {
		handlers[a.choice.IntN(len(handlers))]()
	}
	for _, name := range []string{
		"initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold", "terminationGracePeriodSeconds",
	} {
		a.perhaps(p, name, []any{-1, 0, 1, 2, 1 << 30})
	}
	return p
}

func (a *Author) dynamicFlag() object {
	file := func() object {
		f := object{"path": a.pick([]any{"/flag.txt", "/home/ctf/flag-{entropy}.txt", "/a b"}, oddPaths)}
		if a.sometimes() {
			f["mode"] = a.pick([]any{0o444, 0o111, 0, 0o777, nil}, []any{-1, 512, 1 << 30})
		}
		return f
	}
	forms := object{
		"env":        object{"name": a.pick([]any{"FLAG", "A"}, oddNames)},
		"content":    file(),
		"executable": file(),
	}
	names := []string{"content", "env", "executable"}
	flag := object{}
	for range 1 + a.count(0, 2) {
		name := names[a.choice.IntN(len(names))]
		flag[name] = forms[name]
	}
	if a.odd() {
		flag = object{}
	}
	return flag
}

func (a *Author) odd() bool       { return a.choice.Float64() < a.oddity }
func (a *Author) sometimes() bool { return a.choice.IntN(2) == 0 }

// count is usual, seldom anything up to most.
func (a *Author) count(usual, most int) int {
	if a.odd() {
		return a.choice.IntN(most + 1)
	}
	return usual
}

// pick returns a sound value, seldom an odd one.
func (a *Author) pick(sound, odd []any) any {
	if a.odd() {
		return odd[a.choice.IntN(len(odd))]
	}
	return sound[a.choice.IntN(len(sound))]
}

// perhaps sets a field to an odd value, seldom.
func (a *Author) perhaps(o object, name string, odd []any) {
	if a.odd() {
		o[name] = odd[a.choice.IntN(len(odd))]
	}
}

var (
	oddStrings = []any{
		"", " ", " x", "x ", "a\nb: c", "\x00", "\u2028", "ä", "🏔️", "$(FLAG)", "$$", "{{.}}", "../../etc/passwd", strings.Repeat("x", 300), strings.Repeat("y", 5000),
		"-", "null", "true", "'\"`;|&", "%s%n", "\ufffd",
	}
	oddNames = []any{
		"", "-", "a-", "-a", "A", "a.b", "a_b", "a/b", "a b", "a\n", "ä", "0", "0a", "a=b", "..", "c0-node-port", "c0-headless", "c1", "kubernetes", "ALL",
		"CAP_", "CAP_SYS_ADMIN", "SYS_ADMIN", "p0-0", "P0.0", "publicIngressRouteTcp", "FLAG", strings.Repeat("a", 53), strings.Repeat("a", 54), strings.Repeat("a", 63),
		strings.Repeat("a", 64), strings.Repeat("a", 254), "\x00", "a\u200b",
	}
	oddAmounts = []any{
		"", "0", 0, -1, "-1", "lots", "1e3", "1e400", "1E", "100mI", "1Ei", "9999999999999999999Ei", "0.0000001", "1n", ".5", "5.", "NaN", "0x10", " 1", "1 ",
		1e30, 1e-30, strings.Repeat("9", 60), "16E", "1k", "0.5k", "2P",
	}
	oddWords      = []any{[]any{""}, []any{"a b"}, []any{"a\x00"}, []any{strings.Repeat("a", 70000)}}
	oddBandwidths = []any{"0", "1", "999", "2P", "fast", "-10M", "10M\nx: y", "1e3", "1e400", " 10M"}
	oddPaths      = []any{
		"", "/", "//", "a", "/a/", "/a//b", "/./a", "/a/..", "/..a", "/a/..data", "/a:b", "/\x00", "/{entropy}", "/{entropy}/{entropy}", "/{", "/proc/self/exe", "/etc/hosts",
		"/dev/null", "/" + strings.Repeat("a", 255), "/" + strings.Repeat("a", 256), "/" + strings.Repeat("a/", 255) + "b", "/ä\n", "/a\tb", "/ ", "/var/run/secrets/kubernetes.io/serviceaccount/token",
	}
)
