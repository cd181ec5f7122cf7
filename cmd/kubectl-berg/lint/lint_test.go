package lint

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/bergctf/berg-operator/internal/berg/rules"
)

const head = "apiVersion: berg.norelect.ch/v1\nkind: Challenge\nmetadata: {name: a}\nspec:\n  containers:\n  - hostname: web\n    image: example.com/web:1\n" +
	"    ports: [{port: 80, type: publicHttpRoute}]\n"

// Each row is added to a container, and the text that the finding at its line must have, with the author's spelling.
func TestCheck(t *testing.T) {
	for name, tc := range map[string]struct{ add, want string }{
		"good":                    {"", ""},
		"quoted":                  {`    environment: {A: "yes", B: "1.10", C: "0777", D: 1, E: true, F: text}`, ""},
		"yes":                     {`    environment: {A: yes}`, `yes without quotes is a boolean in YAML, and the program gets true: write "yes"`},
		"no":                      {`    environment: {A: No}`, `write "No"`},
		"on":                      {`    environment: {A: on}`, `write "on"`},
		"a version":               {`    environment: {A: 1.10}`, `1.10 without quotes is a number in YAML, and the program gets 1.1: write "1.10"`},
		"an octal number":         {`    environment: {A: 0777}`, `the program gets 511: write "0777"`},
		"twenty digits":           {`    environment: {A: 12345678901234567890123}`, `write "12345678901234567890123"`},
		"nineteen digits":         {`    environment: {A: 9223372036854775807}`, ""},
		"too large for 64 bits":   {`    environment: {A: 12345678901234567890}`, `the program gets 12345678901234567000: write "12345678901234567890"`},
		"a name that is no text":  {`    environment: {N: a}`, `N without quotes becomes the name false in YAML: write "N"`},
		"such a name, quoted":     {`    environment: {"on": a, 'Y': b}`, ""},
		"merged":                  {"    environment: {<<: &b {A: yes}}", `write "yes"`},
		"mode in decimal":         {`    dynamicFlag: {content: {path: /flag, mode: 444}}`, `is decimal and means 0674: write 0444 in YAML, or 292 in JSON`},
		"mode in octal":           {`    dynamicFlag: {content: {path: /flag, mode: 0444}}`, ""},
		"mode as text":            {`    dynamicFlag: {content: {path: /flag, mode: "0444"}}`, `0444 is a string in YAML. Remove the quotes`},
		"duration of a probe":     {`    readinessProbe: {periodSeconds: 5s, tcpSocket: {port: 80}}`, `whole number of seconds without a unit, not "5s"`},
		"octal number of a port":  {`    readinessProbe: {tcpSocket: {port: 80}, failureThreshold: 010}`, `010 means 8 in YAML: write 10`},
		"thousand cores":          {`    resourceLimits: {cpu: 1000}`, "is 1000 cores, which no node has: write 1000m"},
		"memory of compose":       {`    resourceLimits: {memory: 512m}`, "is 512 thousandths of a byte: write 512Mi for mebibytes"},
		"unknown field":           {`    env: {A: b}`, "is no field: did you mean"},
		"misspelt field":          {`    environmnt: {A: b}`, "did you mean environment?"},
		"swapped letters":         {`    comamnd: [a]`, "did you mean command?"},
		"field of a port":         {`    type: publicPort`, "it belongs to spec.containers[].ports[]. Indent it there"},
		"field of a probe":        {`    httpGet: {port: 80}`, "it belongs to spec.containers[].livenessProbe or spec.containers[].readinessProbe"},
		"field of the Challenge":  {`    flagFormat: flag{...}`, "it belongs to spec. Indent it there"},
		"field of a container":    {`  ports: [{port: 80}]`, "it belongs to spec.containers[]. Indent it there"},
		"field of nothing":        {`    imagePullSecrets: [a]`, "is no field: remove it. Fields here are additionalCapabilities"},
		"field of a pod":          {`    resources: {limits: {memory: 1Gi}}`, "write resourceLimits and resourceRequests"},
		"probe of UDP":            {`    readinessProbe: {udpSocket: {port: 53}, exec: {command: [dig]}}`, "no probe asks a UDP port"},
		"field of compose":        {`    cap_add: [KILL]`, "did you mean additionalCapabilities?"},
		"text for a list":         {`    command: "sh -c x"`, `must be a list: begin each item with a dash: sh -c x is a string in YAML`},
		"no text for a number":    {`    readinessProbe: {periodSeconds: "", tcpSocket: {port: 80}}`, `"" is a string in YAML`},
		"placeholder in capitals": {`    dynamicFlag: {content: {path: "/flag-{Entropy}.txt"}}`, "{Entropy} stays as it is: write {entropy}"},
		"variable in a path":      {`    dynamicFlag: {content: {path: "/flag-$RANDOM.txt"}}`, "$RANDOM stays as it is"},
		"program of the image":    {`    dynamicFlag: {executable: {path: /bin/sh}}`, "replaces a program of the image"},
		"many cores asked for":    {`    resourceRequests: {cpu: 500}`, "is 500 cores: write 500m"},
		"registry in capitals":    {"    image: MyTeam/web:1", "is pulled from a registry that is called MyTeam"},
		"wrong indentation":       {"   args: [a]", "compare the indentation"},
		"colon in a text":         {"    args: [a]\n    hostname: a: b", "put a text with a colon in quotes"},
		"list of variables":       {`    environment: [A=b]`, "must be an object of names and values, not a list"},
		"hostname is a number":    {`    runtimeClassName: 1.10`, `must be a string: 1.10 is a number in YAML. Write "1.10"`},
		"twice":                   {"    image: example.com/web:2", "image is written twice, first in line 9"},
		"other port of a probe":   {`    readinessProbe: {tcpSocket: {port: 8080}}`, "connects to port 8080, which is not among the container's TCP ports (80)"},
		"replaced variable":       {`    environment: {CHALLENGE_NAMESPACE: x}`, "is replaced by the namespace of the instance"},
		"refused capability":      {`    additionalCapabilities: [SYS_ADMIN]`, "CHALLENGE_ALLOWED_CAPABILITIES"},
		"path of a folder":        {`    dynamicFlag: {content: {path: /home}}`, "/home is a folder in images"},
		"path like a folder":      {`    dynamicFlag: {content: {path: /home/ctf}}`, "looks like a folder of the image"},
		"path below a file":       {`    dynamicFlag: {content: {path: /app/main.py/flag}}`, "looks like a file"},
		"probe as a text":         {`    readinessProbe: {exec: {command: ["curl -f localhost"]}}`, "is the name of one program"},
		"not YAML":                {"    environment: {A: \"", "cannot be read as YAML"},
		"bandwidth in words":      {`    egressBandwidth: 10Mbit`, "bits per second"},
	} {
		content := head + tc.add
		if name == "registry in capitals" {
			content = strings.Replace(head, "    image: example.com/web:1\n", "", 1) + "# the line of the image\n" + tc.add
		}
		found := Check(Source{Name: "a.yaml", Content: []byte("# first\n---\n" + content + "\n")}, rules.Settings{Allowed: rules.Allowed{Capabilities: []string{"KILL"}}})
		switch {
		case tc.want == "" && len(found.Findings) > 0:
			t.Errorf("%s: found %+v", name, found.Findings)
		case tc.want != "" && (len(found.Findings) == 0 || !strings.Contains(found.Findings[0].Message, tc.want)):
			t.Errorf("%s: found %+v, want %q", name, found.Findings, tc.want)
		case tc.want != "" && found.Findings[0].Line < 11 && found.Findings[0].Rule != "yaml" && name != "twice":
			t.Errorf("%s: line %d is not the author's", name, found.Findings[0].Line)
		}
	}
}

// What YAML makes of a value is told where it is written, in the spelling of the author.
func TestNumbersAndWords(t *testing.T) {
	environment := func(value string) string { return "    environment: {A: " + value + "}" }
	for add, want := range map[string]string{
		environment("0o17"):                 `the program gets 15: write "0o17"`,
		environment("08"):                   `the program gets 8: write "08"`,
		environment("1e3"):                  `the program gets 1000: write "1e3"`,
		environment("0x1F"):                 `the program gets 31: write "0x1F"`,
		environment("0xFFFFFFFFFFFFFFFF"):   `write "0xFFFFFFFFFFFFFFFF"`,
		environment("1_000"):                `write "1_000"`,
		environment(".5"):                   `the program gets 0.5: write ".5"`,
		environment("3.10"):                 `the program gets 3.1: write "3.10"`,
		environment("+1"):                   `write "+1"`,
		environment("-0"):                   `write "-0"`,
		environment("off"):                  `the program gets false: write "off"`,
		environment("Y"):                    `the program gets true: write "Y"`,
		environment("~"):                    `~ without quotes is no value in YAML, and the program gets an empty one: write "" for it, or "~" for the text`,
		environment("Null"):                 `write "" for it, or "Null" for the text`,
		environment(".inf"):                 `.inf without quotes is a number that the API server does not know: write ".inf"`,
		environment("-.NaN"):                "",
		environment(".nan"):                 `write ".nan"`,
		environment(""):                     "",
		environment("2024-01-01"):           "",
		environment("22:22"):                "",
		environment("1:30"):                 "",
		environment("!!str 1.10"):           "",
		environment("0xFFFFFFFFFFFFFFFFF"):  "",
		"    environment: {~: a}":           `~ without quotes is no name in YAML: write "~"`,
		"    environment: {1.10: a}":        `1.10 without quotes becomes the name 1.1 in YAML: write "1.10"`,
		"    environment: {true: a, on: b}": "true is written twice",
		"    environment: {NO: a}":          `NO without quotes becomes the name false in YAML: write "NO"`,

		"    resourceLimits: {cpu: 010}":                                  `010 means 8 in YAML: write 10`,
		"    resourceLimits: {cpu: 0x10}":                                 `0x10 means 16 in YAML: write 16`,
		"    resourceLimits: {cpu: .5}":                                   `.5 without quotes is neither in YAML: write ".5"`,
		"    resourceLimits: {cpu: 0.5}":                                  `write "0.5"`,
		"    resourceLimits: {cpu: \"0.5\"}":                              "",
		"    resourceLimits: {cpu: 12e4}":                                 "is 120000 cores",
		"    resourceLimits: {cpu: 50%}":                                  "must be a number of cores, such as 0.5",
		"    resourceLimits: {cpu: 1 core}":                               "such as 500m",
		"    resourceLimits: {cpu: true}":                                 "must be a number, or one with a unit: true is a boolean in YAML",
		"    resourceLimits: {memory: 0777}":                              `0777 means 511 in YAML: write 777`,
		"    resourceLimits: {memory: 500m}":                              "is 500 thousandths of a byte: write 500Mi",
		"    resourceLimits: {memory: 0.5}":                               `write "0.5"`,
		"    resourceLimits: {memory: 512MB}":                             "write 512Mi",
		"    resourceLimits: {memory: 512mb}":                             "write 512Mi",
		"    resourceLimits: {memory: 1g}":                                "write 1Gi",
		"    resourceLimits: {memory: 1.5 Gi}":                            "write 1.5Gi",
		"    resourceLimits: {memory: 512Mib}":                            "write 512Mi",
		"    resourceLimits: {memory: 0.5Gi}":                             "",
		"    resourceLimits: {memory: 1gi}":                               "",
		"    resourceLimits: {memory: 1_000_000_000}":                     `1_000_000_000 means 1000000000 in YAML: write 1000000000`,
		"    sharedMemory: 1g":                                            "write 1Gi",
		"    readinessProbe: {tcpSocket: {port: 0o120}}":                  `0o120 means 80 in YAML: write 80`,
		"    readinessProbe: {tcpSocket: {port: http}}":                   "must be a number",
		"    readinessProbe: {tcpSocket: {port: 80}, periodSeconds: 1.5}": "must be a whole number within 32 bits, not 1.5",
		"    readinessProbe: {tcpSocket: {port: 80}, periodSeconds: 1e1}": `1e1 means 10 in YAML: write 10`,
		`    readinessProbe: {tcpSocket: {port: 80}, periodSeconds: "5"}`: "Remove the quotes",
		"    readinessProbe: {tcpSocket: {port: 80}, periodSeconds: 2d}":  `without a unit, not "2d"`,
		"    dynamicFlag: {content: {path: /flag, mode: 0o444}}":          "",
		"    dynamicFlag: {content: {path: /flag, mode: 0448}}":           "0448 is no octal number",
		"    dynamicFlag: {content: {path: /flag, group: 01000}}":         `01000 means 512 in YAML: write 1000`,
		"    dynamicFlag: {content: {path: /flag, group: ctf}}":           "must be a whole number",
		"    sandbox: Nested":                                             `supported values: "nested"`,
		"    sandbox: yes":                                                `yes is a boolean in YAML. Write "yes"`,
		`    sandbox: ""`:                                                 "must not be empty: remove it for the default",
		"    imagePullPolicy: always":                                     `supported values: "Always"`,
		"    command: [1, b]":                                             `1 is a number in YAML. Write "1"`,
		"    args: [0777]":                                                `Write "0777"`,
		"  maxInstances: 010":                                             `010 means 8 in YAML: write 10`,
		"  maxInstances: 0":                                               "remove it for the default",
		"  maxInstances: 1e2":                                             `1e2 means 100 in YAML: write 100`,
		"  hideUntil: 2030-01-31 18:00:00":                                "must be a time with a zone",
		"  flag: 0x1337":                                                  `Write "0x1337"`,
		"  flag: yes":                                                     `Write "yes"`,
		"  displayName: 007":                                              `Write "007"`,
		"  allowOutboundTraffic: yes":                                     "",
		"  allowOutboundTraffic: 1":                                       "must be true or false",
		"    <<: *nowhere":                                                "unknown anchor",
		"    <<: {environment: {A: yes}}":                                 `write "yes"`,
		"    environment: &e {A: 1}\n    environment: *e":                 "environment is written twice",
		"    environment:\n\tA: b":                                        "indent with spaces",
	} {
		found := Check(Source{Name: "a.yaml", Content: []byte(head + add + "\n"), Named: true}, rules.Settings{Allowed: rules.Allowed{NestedSandbox: true}})
		switch {
		case want == "" && len(found.Findings) > 0:
			t.Errorf("%s: found %+v", add, found.Findings)
		case want != "" && !slices.ContainsFunc(found.Findings, func(f Finding) bool {
			return f.Severity == Error && f.Line >= 9 && strings.Contains(f.Message, want)
		}):
			t.Errorf("%s: found %+v, want %q from line 9", add, found.Findings, want)
		}
	}
}

// A Challenge whose head is wrong would be skipped without a word, and its labels are checked by the API server alone.
func TestHeadsOfChallenges(t *testing.T) {
	for from, tc := range map[string]struct{ to, want string }{
		"kind: Challenge":              {"kind: challenge", "must be Challenge"},
		"kind: Challenge\n":            {"", "must be Challenge"},
		"berg.norelect.ch/v1":          {"berg.norelct.ch/v1", "must be berg.norelect.ch/v1"},
		"berg.norelect.ch":             {"berg.norelect.ch/v1alpha1", "must be berg.norelect.ch/v1"},
		"apiVersion: berg":             {"# ", "must be berg.norelect.ch/v1"},
		"metadata: {name: a}":          {`metadata: {name: a, labels: {event: Summer CTF}}`, "a valid label must be"},
		"metadata: {name: a}\n":        {"metadata: {name: a, labels: {year: 2030}}\n", `Write "2030"`},
		"metadata: {name: a}\nspec":    {"metadata: {name: a, annotations: {a b: c}}\nspec", "name part must consist of"},
		"metadata: {name: a}\nspec:":   {"metadata: {name: A_1}\nspec:", "end with an alphanumeric character"},
		"metadata: {name: a}\nspec:\n": {"metadata: {name: a, naem: b}\nspec:\n", "did you mean name?"},
	} {
		found := Check(Source{Name: "a.yaml", Content: []byte(strings.Replace(head, from, tc.to, 1))}, rules.Settings{})
		if found.Found != 1 || !slices.ContainsFunc(found.Findings, func(f Finding) bool { return f.Severity == Error && strings.Contains(f.Message, tc.want) }) {
			t.Errorf("%s: found %d, %+v, want %q", tc.to, found.Found, found.Findings, tc.want)
		}
	}
	for _, other := range []string{"apps.hexactf.io/v1alpha1", "klodd.tjcsec.club/v1", "kctf.dev/v1", "berg.example.com/v1"} {
		if found := Check(Source{Name: "a.yaml", Content: []byte(strings.Replace(head, "berg.norelect.ch/v1", other, 1))}, rules.Settings{}); found.Found != 0 || len(found.Findings) > 0 {
			t.Errorf("%s: found %+v", other, found)
		}
	}
}

// The operator's default refuses sandboxes. Where its setting is not known, lint says what it assumes.
func TestLintSaysWhatItAssumesOfSandboxes(t *testing.T) {
	for want, settings := range map[string]rules.Settings{
		"":      {Allowed: rules.Allowed{NestedSandbox: true}},
		"error": {},
		"warning spec.containers[0].sandbox: the operator refuses it by default: it is assumed that": {Allowed: rules.Allowed{NestedSandbox: true}, SandboxAssumed: true},
	} {
		got := ""
		for _, f := range Check(Source{Name: "a.yaml", Content: []byte(head + "    sandbox: nested\n")}, settings).Findings {
			got += string(f.Severity) + " " + f.Field + ": " + f.Message
		}
		if want == "" && got != "" || !strings.HasPrefix(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// FuzzCheck lets a file be anything: a check ends.
func FuzzCheck(f *testing.F) {
	f.Add(head)
	f.Add(head + "    environment: &a {<<: *a}\n")
	f.Add("kind: List\nitems: &a [*a]\n---\n" + head)
	f.Fuzz(func(t *testing.T, content string) {
		found := Check(Source{Name: "a.yaml", Content: []byte(content), Named: true}, rules.Settings{SandboxAssumed: true})
		if len(found.Challenges) > found.Found {
			t.Errorf("%d Challenges, %d found", len(found.Challenges), found.Found)
		}
	})
}

// A file of many documents is checked to its end, although one of them cannot be read.
func TestABrokenDocumentHidesNoOther(t *testing.T) {
	content := "kind: Other\n---\na: b: c\n# berg.norelect.ch\n---\n" + head + "    sandbox: Nested\n--- # the last\n" + head
	found := Check(Source{Name: "a.yaml", Content: []byte(content)}, rules.Settings{Allowed: rules.Allowed{NestedSandbox: true}})
	if found.Found != 2 || len(found.Challenges) != 2 || len(found.Findings) != 2 || found.Findings[0].Line != 3 || found.Findings[1].Line != 14 {
		t.Errorf("found %d, %+v", found.Found, found.Findings)
	}
}

func TestItemsOfAListAreChecked(t *testing.T) {
	content := "apiVersion: v1\nkind: List\nitems:\n- kind: Other\n- " + strings.ReplaceAll(strings.TrimSuffix(head, "\n"), "\n", "\n  ") +
		"\n      environment: {A: yes}\n"
	found := Check(Source{Name: "a.yaml", Content: []byte(content)}, rules.Settings{})
	if found.Found != 1 || len(found.Challenges) != 1 || len(found.Findings) != 1 || found.Findings[0].Line != 13 {
		t.Errorf("found %d, %+v", found.Found, found.Findings)
	}
}

func TestCheckSkipsOtherKinds(t *testing.T) {
	other := "apiVersion: apps.hexactf.io/v1alpha1\nkind: Challenge\n---\nservices: {web: {image: a}}\n---\n{{ template }}\n"
	if found := Check(Source{Content: []byte(other)}, rules.Settings{}); found.Found != 0 || len(found.Findings) > 0 {
		t.Errorf("found %+v", found)
	}
}

func TestSARIF(t *testing.T) {
	data, err := json.Marshal(SARIF([]Finding{{File: "a/b.yaml", Line: 3, Column: 2, Severity: Error, Rule: "containers.image", Field: "spec.containers[0].image", Message: "m"}}, "1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"version":"2.1.0"`, `"ruleId":"containers.image"`, `"level":"error"`, `"uri":"a/b.yaml"`, `"startLine":3`} {
		if !strings.Contains(string(data), want) {
			t.Errorf("%s is not in %s", want, data)
		}
	}
}
