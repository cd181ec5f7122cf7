package manifests

import (
	"os"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/rules"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
)

// Each row is the YAML of spec.containers, and the field that the first error
// must name; an empty field means that it is accepted.
func TestValidate(t *testing.T) {
	for name, tc := range map[string]struct{ containers, field string }{
		"plain":                    {`[{hostname: a, image: i}]`, ""},
		"hostname upper case":      {`[{hostname: A, image: i}]`, "spec.containers[0].hostname"},
		"hostname begins digit":    {`[{hostname: 2048, image: i}]`, "spec.containers[0].hostname"},
		"hostname longest":         {`[{hostname: ` + strings.Repeat("a", 53) + `, image: i}]`, ""},
		"hostname too long":        {`[{hostname: ` + strings.Repeat("a", 54) + `, image: i}]`, "spec.containers[0].hostname"},
		"hostname twice":           {`[{hostname: a, image: i}, {hostname: a, image: i}]`, "spec.containers[1].hostname"},
		"hostname meets derived":   {`[{hostname: a, image: i}, {hostname: a-node-port, image: i}]`, "spec.containers[1].hostname"},
		"image empty":              {`[{hostname: a, image: ""}]`, "spec.containers[0].image"},
		"image spaces":             {`[{hostname: a, image: " i"}]`, "spec.containers[0].image"},
		"environment scalar":       {`[{hostname: a, image: i, environment: {A: 1, B: true, C: x, D: 1.5, E: null}}]`, ""},
		"environment list":         {`[{hostname: a, image: i, environment: {A: [1]}}]`, "spec.containers[0].environment[A]"},
		"environment object":       {`[{hostname: a, image: i, environment: {A: {b: c}}}]`, "spec.containers[0].environment[A]"},
		"environment name":         {`[{hostname: a, image: i, environment: {"A B": x}}]`, "spec.containers[0].environment[A B]"},
		"port zero":                {`[{hostname: a, image: i, ports: [{port: 0}]}]`, "spec.containers[0].ports[0].port"},
		"port too high":            {`[{hostname: a, image: i, ports: [{port: 65536}]}]`, "spec.containers[0].ports[0].port"},
		"port twice":               {`[{hostname: a, image: i, ports: [{port: 1}, {port: 1, protocol: TCP}]}]`, "spec.containers[0].ports[1].port"},
		"port two protocols":       {`[{hostname: a, image: i, ports: [{port: 1}, {port: 1, protocol: udp}]}]`, ""},
		"protocol unknown":         {`[{hostname: a, image: i, ports: [{port: 1, protocol: sctp}]}]`, "spec.containers[0].ports[0].protocol"},
		"port type of old schema":  {`[{hostname: a, image: i, ports: [{port: 1, type: publicIngressRouteTcp}]}]`, "spec.containers[0].ports[0].type"},
		"route over udp":           {`[{hostname: a, image: i, ports: [{port: 1, protocol: udp, type: publicHttpRoute}]}]`, "spec.containers[0].ports[0].protocol"},
		"port name begins digit":   {`[{hostname: a, image: i, ports: [{port: 1, name: 80web}]}]`, "spec.containers[0].ports[0].name"},
		"port names one variable":  {`[{hostname: a, image: i, ports: [{port: 1, name: a-b}]}, {hostname: b, image: i, ports: [{port: 1, name: a_b}]}]`, "spec.containers[1].ports[0].name"},
		"cpu zero":                 {`[{hostname: a, image: i, resourceLimits: {cpu: 0}}]`, "spec.containers[0].resourceLimits.cpu"},
		"memory negative":          {`[{hostname: a, image: i, resourceRequests: {memory: "-1"}}]`, "spec.containers[0].resourceRequests.memory"},
		"request above limit":      {`[{hostname: a, image: i, resourceRequests: {cpu: 2}, resourceLimits: {cpu: 1}}]`, "spec.containers[0].resourceRequests.cpu"},
		"request equals limit":     {`[{hostname: a, image: i, resourceRequests: {cpu: 1}, resourceLimits: {cpu: 1}}]`, ""},
		"probe without handler":    {`[{hostname: a, image: i, readinessProbe: {periodSeconds: 1}}]`, "spec.containers[0].readinessProbe"},
		"probe with two handlers":  {`[{hostname: a, image: i, readinessProbe: {exec: {command: [a]}, tcpSocket: {port: 1}}}]`, "spec.containers[0].readinessProbe"},
		"probe exec empty":         {`[{hostname: a, image: i, livenessProbe: {exec: {}}}]`, "spec.containers[0].livenessProbe.exec.command"},
		"probe port named":         {`[{hostname: a, image: i, livenessProbe: {httpGet: {port: web}}}]`, "spec.containers[0].livenessProbe.httpGet.port"},
		"probe port zero":          {`[{hostname: a, image: i, livenessProbe: {tcpSocket: {port: 0}}}]`, "spec.containers[0].livenessProbe.tcpSocket.port"},
		"probe scheme":             {`[{hostname: a, image: i, livenessProbe: {httpGet: {port: 1, scheme: ftp}}}]`, "spec.containers[0].livenessProbe.httpGet.scheme"},
		"probe of another host":    {`[{hostname: a, image: i, livenessProbe: {httpGet: {port: 1, host: 169.254.169.254}}}]`, "spec.containers[0].livenessProbe.httpGet.host"},
		"probe of another socket":  {`[{hostname: a, image: i, readinessProbe: {tcpSocket: {port: 1, host: etcd}}}]`, "spec.containers[0].readinessProbe.tcpSocket.host"},
		"environment NUL":          {`[{hostname: a, image: i, environment: {A: "a\u0000"}}]`, "spec.containers[0].environment[A]"},
		"capability of a default":  {`[{hostname: a, image: i, additionalCapabilities: [NET_ADMIN, CAP_SYS_PTRACE, KILL]}]`, ""},
		"capability beyond":        {`[{hostname: a, image: i, additionalCapabilities: [KILL, SYS_ADMIN]}]`, "spec.containers[0].additionalCapabilities[1]"},
		"capability all":           {`[{hostname: a, image: i, additionalCapabilities: [ALL]}]`, "spec.containers[0].additionalCapabilities[0]"},
		"probe header":             {`[{hostname: a, image: i, livenessProbe: {httpGet: {port: 1, httpHeaders: [{name: "a b", value: x}]}}}]`, "spec.containers[0].livenessProbe.httpGet.httpHeaders[0].name"},
		"probe header value":       {`[{hostname: a, image: i, livenessProbe: {httpGet: {port: 1, httpHeaders: [{name: A, value: "x\ny"}]}}}]`, "spec.containers[0].livenessProbe.httpGet.httpHeaders[0].value"},
		"probe header tab":         {`[{hostname: a, image: i, livenessProbe: {httpGet: {port: 1, httpHeaders: [{name: A, value: "x\ty"}]}}}]`, ""},
		"probe path control":       {`[{hostname: a, image: i, readinessProbe: {httpGet: {port: 1, path: "/\u007f"}}}]`, "spec.containers[0].readinessProbe.httpGet.path"},
		"probe command NUL":        {`[{hostname: a, image: i, livenessProbe: {exec: {command: [a, "b\u0000"]}}}]`, "spec.containers[0].livenessProbe.exec.command[1]"},
		"probe negative":           {`[{hostname: a, image: i, livenessProbe: {tcpSocket: {port: 1}, periodSeconds: -1}}]`, "spec.containers[0].livenessProbe.periodSeconds"},
		"liveness two successes":   {`[{hostname: a, image: i, livenessProbe: {tcpSocket: {port: 1}, successThreshold: 2}}]`, "spec.containers[0].livenessProbe.successThreshold"},
		"readiness grace":          {`[{hostname: a, image: i, readinessProbe: {tcpSocket: {port: 1}, terminationGracePeriodSeconds: 1}}]`, "spec.containers[0].readinessProbe.terminationGracePeriodSeconds"},
		"flag nothing set":         {`[{hostname: a, image: i, dynamicFlag: {}}]`, "spec.containers[0].dynamicFlag"},
		"flag two set":             {`[{hostname: a, image: i, dynamicFlag: {env: {name: A}, content: {path: /a}}}]`, "spec.containers[0].dynamicFlag"},
		"flag variable name":       {`[{hostname: a, image: i, dynamicFlag: {env: {name: "A="}}}]`, "spec.containers[0].dynamicFlag.env.name"},
		"flag path relative":       {`[{hostname: a, image: i, dynamicFlag: {content: {path: flag}}}]`, "spec.containers[0].dynamicFlag.content.path"},
		"flag path dots":           {`[{hostname: a, image: i, dynamicFlag: {content: {path: /a/../flag}}}]`, "spec.containers[0].dynamicFlag.content.path"},
		"flag path directory":      {`[{hostname: a, image: i, dynamicFlag: {executable: {path: /a/}}}]`, "spec.containers[0].dynamicFlag.executable.path"},
		"flag path root":           {`[{hostname: a, image: i, dynamicFlag: {executable: {path: /}}}]`, "spec.containers[0].dynamicFlag.executable.path"},
		"flag file name dots":      {`[{hostname: a, image: i, dynamicFlag: {content: {path: /..flag}}}]`, "spec.containers[0].dynamicFlag.content.path"},
		"flag path segment":        {`[{hostname: a, image: i, dynamicFlag: {content: {path: /b/` + strings.Repeat("a", 255) + `}}}]`, ""},
		"flag path segment long":   {`[{hostname: a, image: i, dynamicFlag: {content: {path: /` + strings.Repeat("a", 256) + `/b}}}]`, "spec.containers[0].dynamicFlag.content.path"},
		"flag path file name long": {`[{hostname: a, image: i, dynamicFlag: {executable: {path: /` + strings.Repeat("a", 256) + `}}}]`, "spec.containers[0].dynamicFlag.executable.path"},
		"flag path bytes":          {`[{hostname: a, image: i, dynamicFlag: {content: {path: /` + strings.Repeat("ä", 128) + `}}}]`, "spec.containers[0].dynamicFlag.content.path"},
		"flag path entropy":        {`[{hostname: a, image: i, dynamicFlag: {content: {path: "/` + strings.Repeat("a", 243) + `{entropy}"}}}]`, ""},
		"flag path entropy long":   {`[{hostname: a, image: i, dynamicFlag: {content: {path: "/` + strings.Repeat("a", 244) + `{entropy}"}}}]`, "spec.containers[0].dynamicFlag.content.path"},
		"flag path long in all":    {`[{hostname: a, image: i, dynamicFlag: {content: {path: /` + strings.Repeat("ä/", 255) + `b}}}]`, ""},
		"flag path too long":       {`[{hostname: a, image: i, dynamicFlag: {content: {path: /` + strings.Repeat("a/", 256) + `b}}}]`, "spec.containers[0].dynamicFlag.content.path"},
		"flag path NUL":            {`[{hostname: a, image: i, dynamicFlag: {content: {path: "/a\u0000"}}}]`, "spec.containers[0].dynamicFlag.content.path"},
		"flag path in proc":        {`[{hostname: a, image: i, dynamicFlag: {content: {path: /proc/flag}}}]`, "spec.containers[0].dynamicFlag.content.path"},
		"flag path like proc":      {`[{hostname: a, image: i, dynamicFlag: {content: {path: /process/flag}}}]`, ""},
		"flag mode too high":       {`[{hostname: a, image: i, dynamicFlag: {content: {path: /a, mode: 512}}}]`, "spec.containers[0].dynamicFlag.content.mode"},
		"flag path of the kubelet": {`[{hostname: a, image: i, dynamicFlag: {content: {path: /etc/hosts}}}]`, "spec.containers[0].dynamicFlag.content.path"},
		"flag path termination":    {`[{hostname: a, image: i, dynamicFlag: {executable: {path: /dev/termination-log}}}]`, "spec.containers[0].dynamicFlag.executable.path"},
		"flag path in sys":         {`[{hostname: a, image: i, dynamicFlag: {content: {path: /sys/kernel/flag}}}]`, "spec.containers[0].dynamicFlag.content.path"},
		"flag path of a folder":    {`[{hostname: a, image: i, dynamicFlag: {content: {path: /var/www/html}}}]`, "spec.containers[0].dynamicFlag.content.path"},
		"flag path below a file":   {`[{hostname: a, image: i, dynamicFlag: {content: {path: /etc/passwd/flag}}}]`, "spec.containers[0].dynamicFlag.content.path"},
		"flag path below hosts":    {`[{hostname: a, image: i, dynamicFlag: {content: {path: /etc/hosts/a/flag}}}]`, "spec.containers[0].dynamicFlag.content.path"},
		"flag path in a folder":    {`[{hostname: a, image: i, dynamicFlag: {content: {path: /var/www/html/flag.txt}}}]`, ""},
		"flag path in shm":         {`[{hostname: a, image: i, dynamicFlag: {content: {path: /dev/shm/flag}}}]`, ""},
		"flag mode decimal":        {`[{hostname: a, image: i, dynamicFlag: {content: {path: /a, mode: 444}}}]`, "spec.containers[0].dynamicFlag.content.mode"},
		"flag mode decimal, high":  {`[{hostname: a, image: i, dynamicFlag: {content: {path: /a, mode: 755}}}]`, "spec.containers[0].dynamicFlag.content.mode"},
		"flag mode octal":          {`[{hostname: a, image: i, dynamicFlag: {content: {path: /a, mode: 0440}}}]`, ""},
		"flag group":               {`[{hostname: a, image: i, dynamicFlag: {content: {path: /a, group: 1000}}}]`, ""},
		"flag group, all read":     {`[{hostname: a, image: i, dynamicFlag: {content: {path: /a, group: 1000, mode: 0444}}}]`, ""},
		"flag group, no read":      {`[{hostname: a, image: i, dynamicFlag: {content: {path: /a, group: 1000, mode: 0400}}}]`, "spec.containers[0].dynamicFlag.content.mode"},
		"flag group root":          {`[{hostname: a, image: i, dynamicFlag: {content: {path: /a, group: 0}}}]`, "spec.containers[0].dynamicFlag.content.group"},
		"flag group too high":      {`[{hostname: a, image: i, dynamicFlag: {content: {path: /a, group: 65536}}}]`, "spec.containers[0].dynamicFlag.content.group"},
		"program of a group":       {`[{hostname: a, image: i, dynamicFlag: {executable: {path: /a, group: 1000}}}]`, "spec.containers[0].dynamicFlag.executable.group"},
		"flag mode 0644":           {`[{hostname: a, image: i, dynamicFlag: {content: {path: /a, mode: 420}}}]`, ""},
		"memory in thousandths":    {`[{hostname: a, image: i, resourceLimits: {memory: 512m}}]`, "spec.containers[0].resourceLimits.memory"},
		"memory without a unit":    {`[{hostname: a, image: i, resourceLimits: {memory: 512}}]`, "spec.containers[0].resourceLimits.memory"},
		"memory in bytes":          {`[{hostname: a, image: i, resourceLimits: {memory: 536870912}}]`, ""},
		"shared memory":            {`[{hostname: a, image: i, sharedMemory: 1Gi}]`, ""},
		"shared memory, limit":     {`[{hostname: a, image: i, sharedMemory: 1Gi, resourceLimits: {memory: 1Gi}}]`, ""},
		"shared memory, spelling":  {`[{hostname: a, image: i, sharedMemory: 256mi}]`, ""},
		"shared memory zero":       {`[{hostname: a, image: i, sharedMemory: 0}]`, "spec.containers[0].sharedMemory"},
		"shared memory no amount":  {`[{hostname: a, image: i, sharedMemory: 1GB}]`, "spec.containers[0].sharedMemory"},
		"shared memory in m":       {`[{hostname: a, image: i, sharedMemory: 512m}]`, "spec.containers[0].sharedMemory"},
		"shared memory, no unit":   {`[{hostname: a, image: i, sharedMemory: 64}]`, "spec.containers[0].sharedMemory"},
		"shared memory too large":  {`[{hostname: a, image: i, sharedMemory: 2Gi, resourceLimits: {memory: 1Gi}}]`, "spec.containers[0].sharedMemory"},
		"cpu in cores":             {`[{hostname: a, image: i, resourceLimits: {cpu: 1000}}]`, "spec.containers[0].resourceLimits.cpu"},
		"capability unknown":       {`[{hostname: a, image: i, additionalCapabilities: [NET_ADMN]}]`, "spec.containers[0].additionalCapabilities[0]"},
		"capability lower case":    {`[{hostname: a, image: i, additionalCapabilities: [net_admin]}]`, "spec.containers[0].additionalCapabilities[0]"},
		"command":                  {`[{hostname: a, image: i, command: [sh, -c, "a b"], args: [a b]}]`, ""},
		"command as text":          {`[{hostname: a, image: i, command: ["python3 app.py"]}]`, "spec.containers[0].command[0]"},
		"command without program":  {`[{hostname: a, image: i, command: [""]}]`, "spec.containers[0].command[0]"},
		"command NUL":              {`[{hostname: a, image: i, command: [a, "b\u0000"]}]`, "spec.containers[0].command[1]"},
		"args NUL":                 {`[{hostname: a, image: i, args: ["b\u0000"]}]`, "spec.containers[0].args[0]"},
		"command too long":         {`[{hostname: a, image: i, command: [` + strings.Repeat("a,", 257) + `]}]`, "spec.containers[0].command"},
		"argument too long":        {`[{hostname: a, image: i, args: [` + strings.Repeat("a", 65537) + `]}]`, "spec.containers[0].args[0]"},
		"probe command as text":    {`[{hostname: a, image: i, readinessProbe: {exec: {command: ["curl -f http://localhost"]}}}]`, "spec.containers[0].readinessProbe.exec.command[0]"},
		"image upper case":         {`[{hostname: a, image: "ghcr.io/Example/web:1"}]`, "spec.containers[0].image"},
		"image with a scheme":      {`[{hostname: a, image: "https://ghcr.io/example/web:1"}]`, "spec.containers[0].image"},
		"image with all":           {`[{hostname: a, image: "registry.example.com:5000/a/b_c/d-e:V1.0@sha256:` + strings.Repeat("0", 64) + `"}]`, ""},
		"hostname of every pod":    {`[{hostname: localhost, image: i}]`, "spec.containers[0].hostname"},
		"sandbox not prepared":     {`[{hostname: a, image: i, sandbox: nested}]`, "spec.containers[0].sandbox"},
		"runtime class":            {`[{hostname: a, image: i, runtimeClassName: "G V"}]`, "spec.containers[0].runtimeClassName"},
		"bandwidth too small":      {`[{hostname: a, image: i, egressBandwidth: "1"}]`, "spec.containers[0].egressBandwidth"},
		"bandwidth not a quantity": {`[{hostname: a, image: i, ingressBandwidth: fast}]`, "spec.containers[0].ingressBandwidth"},
	} {
		t.Run(name, func(t *testing.T) {
			var containers []bergv1.Container
			if err := yaml.UnmarshalStrict([]byte(tc.containers), &containers); err != nil {
				t.Fatal(err)
			}
			errs := rules.Validate(containers, rules.AllowedBy(testConfig(t, nil).Challenge))
			switch {
			case tc.field == "" && len(errs) > 0:
				t.Errorf("refused: %v", errs.ToAggregate())
			case tc.field != "" && len(errs) == 0:
				t.Errorf("accepted, want an error of %s", tc.field)
			case tc.field != "" && errs[0].Field != tc.field:
				t.Errorf("the error names %s, want %s: %v", errs[0].Field, tc.field, errs[0])
			}
		})
	}
}

func TestAllowedCapabilities(t *testing.T) {
	s := Snapshot{Containers: []bergv1.Container{{Hostname: "a", Image: "i", AdditionalCapabilities: []string{"CAP_SYS_ADMIN", "KILL"}}}}
	for name, refused := range map[string]int{"ALL": 0, "NONE": 2, "KILL": 1, "SYS_ADMIN,KILL": 0} {
		allowed := testConfig(t, map[string]string{"CHALLENGE_ALLOWED_CAPABILITIES": name}).Challenge.AllowedCapabilities
		if errs := s.Validate(rules.Allowed{Capabilities: allowed}); len(errs) != refused {
			t.Errorf("%s: %d refused, want %d: %v", name, len(errs), refused, errs.ToAggregate())
		}
	}
}

// What the Pod Security level baseline admits, and three that challenges need.
func TestCapabilitiesAllowedByDefault(t *testing.T) {
	want := slices.Sorted(slices.Values(append([]string{"NET_ADMIN", "NET_RAW", "SYS_PTRACE"}, baselineCapabilities...)))
	if got := testConfig(t, nil).Challenge.AllowedCapabilities; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestValidateDoesNotRepeatEnvironmentValues(t *testing.T) {
	var containers []bergv1.Container
	if err := yaml.Unmarshal([]byte(`[{hostname: a, image: i, environment: {TOKEN: [hunter2]}}]`), &containers); err != nil {
		t.Fatal(err)
	}
	if text := Summary(rules.Validate(containers, rules.AllowedBy(testConfig(t, nil).Challenge)), ""); text == "" || strings.Contains(text, "hunter2") {
		t.Errorf("the error repeats the value: %s", text)
	}
}

func TestSummaryIsBounded(t *testing.T) {
	var containers []bergv1.Container
	for range 16 {
		containers = append(containers, bergv1.Container{Hostname: "UPPER"})
	}
	text := Summary(rules.Validate(containers, rules.AllowedBy(testConfig(t, nil).Challenge)), "")
	if !strings.Contains(text, "and ") || len(text) > 4096 {
		t.Errorf("%d bytes: %s", len(text), text)
	}
}

// A long value hides neither the field nor the remedy.
func TestSummaryQuotesTheEndsOfLongValues(t *testing.T) {
	long := strings.Repeat("x", 17000)
	for name, tc := range map[string]struct {
		containers []bergv1.Container
		says       []string
	}{
		"variable": {
			[]bergv1.Container{{Hostname: "a", Image: "i", Environment: map[string]bergv1.EnvironmentValue{long + "=": {}}}},
			[]string{"spec.containers[0].environment[xxx", "xxx=]: Invalid value: \"xxx", "must consist of"},
		},
		"hostname": {[]bergv1.Container{{Hostname: long, Image: "i"}}, []string{"spec.containers[0].hostname: Too long", "53"}},
		"image":    {[]bergv1.Container{{Hostname: "a", Image: long + " "}}, []string{"spec.containers[0].image: Invalid value: \"xxx", "without leading or trailing spaces"}},
		"protocol": {
			[]bergv1.Container{{Hostname: "a", Image: "i", Ports: []bergv1.Port{{Port: 1, Protocol: bergv1.Protocol(long)}}}},
			[]string{"spec.containers[0].ports[0].protocol: Unsupported value: \"", "supported values: \"tcp\", \"udp\""},
		},
	} {
		text := Summary(rules.Validate(tc.containers, rules.Allowed{}), "")
		for _, want := range tc.says {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %q is not in %s", name, want, text)
			}
		}
		if len(text) > conditions.MaxMessage {
			t.Errorf("%s: %d bytes", name, len(text))
		}
	}
}

// A flag may stand wherever a cut comes to lie.
func TestSummaryContainsNoPartOfTheFlag(t *testing.T) {
	const flag = "flag{0123456789abcdef}"
	for before := range 120 {
		name := strings.Repeat("x", before) + " " + flag + strings.Repeat("y", 300-before)
		c := bergv1.Container{Hostname: "a", Image: name + " ", Environment: map[string]bergv1.EnvironmentValue{name: {}}}
		text := Summary(rules.Validate([]bergv1.Container{c}, rules.Allowed{}), flag)
		for _, half := range []string{flag[:8], flag[len(flag)-8:]} {
			if strings.Contains(text, half) {
				t.Fatalf("after %d: %q is in %s", before, half, text)
			}
		}
	}
}

// A type of port is known to the schema, accepted, planned and given an address.
func TestEveryPortTypeIsPlanned(t *testing.T) {
	schema, err := os.ReadFile("../../../../config/berg/crd/bases/berg.norelect.ch_challenges.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range bergv1.PortTypes() {
		if !strings.Contains(string(schema), "'"+string(kind)+"'") {
			t.Errorf("%s: the schema refuses it", kind)
		}
		in := testInputs(testConfig(t, nil), Snapshot{Containers: []bergv1.Container{{Hostname: "web", Image: "i", Ports: []bergv1.Port{{Port: 80, Type: kind}}}}})
		if errs := in.Challenge.Validate(rules.Allowed{}); len(errs) > 0 {
			t.Errorf("%s: %s", kind, Summary(errs, ""))
		}
		f, err := PlanFoundation(in)
		if err != nil {
			t.Fatal(err)
		}
		all, err := PortEndpoints(in, allotNodePorts(f.Services))
		if err != nil {
			t.Fatal(err)
		}
		if got, want := all[0].Service != nil, in.Challenge.Containers[0].Ports[0].Public(); got != want || want != (kind != bergv1.InternalPort) {
			t.Errorf("%s: an address %v, public %v", kind, got, want)
		}
	}
}
