package rules

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

func TestWarm(t *testing.T) {
	const web = "containers: [{hostname: web, image: 'example.com/web:1'"
	for spec, want := range map[string]string{
		"warm: {min: 2, max: 4}\nmaxInstances: 2\n" + web + "}]": "",
		"warm: {min: 5, max: 4}\n" + web + "}]":                  "spec.warm.min: Invalid value: 5: must not be above spec.warm.max (4)",
		"warm: {min: 3}\nmaxInstances: 2\n" + web + "}]":         "must not be above spec.maxInstances (2)",
		"warm: {min: 1}": "spec.warm.min: Invalid value: 1: the Challenge has no containers",
		"warm: {min: 1}\n" + web + ", command: [sh, -c, 'run ${CHALLENGE_NAMESPACE#challenge-}']}]": "spec.containers[0].command[2]: Forbidden: takes the owner out of CHALLENGE_NAMESPACE",
		"warm: {min: 1}\n" + web + ", args: ['${CHALLENGE_NAMESPACE:10}']}]":                        "spec.containers[0].args[0]: Forbidden",
		"warm: {min: 1}\n" + web + ", environment: {OWNER: '${CHALLENGE_NAMESPACE##*-}'}}]":         "spec.containers[0].environment[OWNER]: Forbidden",
		"warm: {max: 1}\n" + web + ", args: ['${CHALLENGE_NAMESPACE:10}']}]":                        "",
		"warm: {min: 1}\n" + web + ", args: ['db.${CHALLENGE_NAMESPACE}.svc']}]":                    "",
		web + ", dynamicFlag: {content: {path: /run/flag/flag.txt}, late: file}}]":                  "",
		web + ", dynamicFlag: {executable: {path: '/run/flag-{entropy}/get'}, late: file}}]":        "",
		web + ", dynamicFlag: {content: {path: /flag.txt}, late: file}}]":                           "spec.containers[0].dynamicFlag.content.path: Invalid value: \"/flag.txt\": with late: file, the whole folder / is replaced",
		web + ", dynamicFlag: {content: {path: /etc/flag.txt}, late: file}}]":                       "the whole folder /etc is replaced",
		web + ", dynamicFlag: {content: {path: /app/flag.txt}, late: file}}]":                       "the whole folder /app is replaced",
		web + ", dynamicFlag: {executable: {path: /home/ctf/get}, late: file}}]":                    "dynamicFlag.executable.path: Invalid value",
		web + ", dynamicFlag: {env: {name: FLAG}, late: file}}]":                                    "spec.containers[0].dynamicFlag.late: Forbidden: a variable never changes",
		web + ", dynamicFlag: {content: {path: /run/flag/flag.txt}, late: variable}}]":              "spec.containers[0].dynamicFlag.late: Unsupported value",
	} {
		c := &bergv1.Challenge{}
		if err := yaml.UnmarshalStrict([]byte(spec), &c.Spec); err != nil {
			t.Fatal(err)
		}
		text := ""
		if err := Errors(c, Settings{}).ToAggregate(); err != nil {
			text = err.Error()
		}
		if want == "" && text != "" || !strings.Contains(text, want) {
			t.Errorf("%s\n%q, want %q", spec, text, want)
		}
	}
}
