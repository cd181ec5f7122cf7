package lint

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/bergctf/berg-operator/internal/berg/rules"
)

const head = "apiVersion: berg.norelect.ch/v1\nkind: Challenge\nmetadata: {name: a}\nspec:\n  containers:\n  - hostname: web\n    image: example.com/web:1\n" +
	"    ports: [{port: 80, type: publicHttpRoute}]\n"

// Each row is added to a container, and the text that the finding at its line must have, with the author's spelling.
func TestCheck(t *testing.T) {
	for name, tc := range map[string]struct{ add, want string }{
		"good":                   {"", ""},
		"quoted":                 {`    environment: {A: "yes", B: "1.10", C: "0777", D: 1, E: true, F: text}`, ""},
		"yes":                    {`    environment: {A: yes}`, `yes without quotes is a boolean in YAML, and the program gets true: write "yes"`},
		"no":                     {`    environment: {A: No}`, `write "No"`},
		"on":                     {`    environment: {A: on}`, `write "on"`},
		"a version":              {`    environment: {A: 1.10}`, `1.10 without quotes is a number in YAML, and the program gets 1.1: write "1.10"`},
		"an octal number":        {`    environment: {A: 0777}`, `the program gets 511: write "0777"`},
		"twenty digits":          {`    environment: {A: 12345678901234567890123}`, `write "12345678901234567890123"`},
		"nineteen digits":        {`    environment: {A: 9223372036854775807}`, ""},
		"too large for 64 bits":  {`    environment: {A: 12345678901234567890}`, `the program gets 12345678901234567000: write "12345678901234567890"`},
		"a name that is no text": {`    environment: {N: a}`, `N without quotes becomes the name false in YAML: write "N"`},
		"such a name, quoted":    {`    environment: {"on": a, 'Y': b}`, ""},
		"merged":                 {"    environment: {<<: &b {A: yes}}", `write "yes"`},
		"mode in decimal":        {`    dynamicFlag: {content: {path: /flag, mode: 444}}`, `is decimal and means 0674: write 0444 in YAML, or 292 in JSON`},
		"mode in octal":          {`    dynamicFlag: {content: {path: /flag, mode: 0444}}`, ""},
		"mode as text":           {`    dynamicFlag: {content: {path: /flag, mode: "0444"}}`, `0444 is a string in YAML. Remove the quotes`},
		"duration of a probe":    {`    readinessProbe: {periodSeconds: 5s, tcpSocket: {port: 80}}`, `whole number of seconds without a unit, not "5s"`},
		"octal number of a port": {`    readinessProbe: {tcpSocket: {port: 80}, failureThreshold: 010}`, `010 means 8 in YAML: write 10`},
		"thousand cores":         {`    resourceLimits: {cpu: 1000}`, "is 1000 cores, which no node has: write 1000m"},
		"memory of compose":      {`    resourceLimits: {memory: 512m}`, "is 512 thousandths of a byte: write 512Mi for mebibytes"},
		"unknown field":          {`    env: {A: b}`, "is no field: did you mean"},
		"list of variables":      {`    environment: [A=b]`, "must be an object of names and values, not a list"},
		"hostname is a number":   {`    runtimeClassName: 1.10`, `must be a string: 1.10 is a number in YAML. Write "1.10"`},
		"twice":                  {"    image: example.com/web:2", "image is written twice, first in line 9"},
		"other port of a probe":  {`    readinessProbe: {tcpSocket: {port: 8080}}`, "connects to port 8080, which is not among the container's TCP ports (80)"},
		"replaced variable":      {`    environment: {CHALLENGE_NAMESPACE: x}`, "is replaced by the namespace of the instance"},
		"refused capability":     {`    additionalCapabilities: [SYS_ADMIN]`, "CHALLENGE_ALLOWED_CAPABILITIES"},
		"path of a folder":       {`    dynamicFlag: {content: {path: /home}}`, "/home is a folder in images"},
		"path like a folder":     {`    dynamicFlag: {content: {path: /home/ctf}}`, "looks like a folder of the image"},
		"path below a file":      {`    dynamicFlag: {content: {path: /app/main.py/flag}}`, "looks like a file"},
		"probe as a text":        {`    readinessProbe: {exec: {command: ["curl -f localhost"]}}`, "is the name of one program"},
		"not YAML":               {"    environment: {A: \"", "cannot be read as YAML"},
		"bandwidth in words":     {`    egressBandwidth: 10Mbit`, "bits per second"},
	} {
		found := Check(Source{Name: "a.yaml", Content: []byte("# first\n---\n" + head + tc.add + "\n")}, rules.Settings{Allowed: rules.Allowed{Capabilities: []string{"KILL"}}})
		switch {
		case tc.want == "" && len(found.Findings) > 0:
			t.Errorf("%s: found %+v", name, found.Findings)
		case tc.want != "" && (len(found.Findings) == 0 || !strings.Contains(found.Findings[0].Message, tc.want)):
			t.Errorf("%s: found %+v, want %q", name, found.Findings, tc.want)
		case tc.want != "" && found.Findings[0].Line < 11 && name != "not YAML" && name != "twice":
			t.Errorf("%s: line %d is not the author's", name, found.Findings[0].Line)
		}
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
