package rules

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

func TestProgramsThatServeOneConnection(t *testing.T) {
	const public = "ports: [{port: 1337, type: publicPort}]"
	for container, want := range map[string]string{
		public + "\ncommand: [socat, 'TCP-LISTEN:1337,reuseaddr,fork', 'EXEC:./chall']":                            "",
		public + "\ncommand: [socat, 'TCP-LISTEN:1337,reuseaddr', 'EXEC:./chall']":                                 "spec.containers[0].command: socat ends after one connection",
		public + "\ncommand: [/usr/bin/socat, '-d', 'tcp4-l:1337', 'SYSTEM:./fork']":                               "spec.containers[0].command: socat",
		public + "\nargs: [sh, -c, 'socat OPENSSL-LISTEN:1337,cert=a EXEC:./chall']":                               "spec.containers[0].args: socat",
		public + "\ncommand: [socat, 'TCP-LISTEN:1337,reuseaddr,fork', 'TCP:db:5432']":                             "",
		public + "\ncommand: [socat]\nargs: ['TCP-LISTEN:1337']":                                                   "spec.containers[0].command: socat",
		public + "\ncommand: [nc, -lvnp, '1337', -e, ./chall]":                                                     "connectAtStart: false",
		public + "\ncommand: [ncat, -l, '1337', --keep-open, --exec, ./chall]":                                     "",
		public + "\ncommand: [ncat, -lk, '1337']":                                                                  "",
		public + "\ncommand: [nc, db, '5432']":                                                                     "",
		public + "\ncommand: [sh, -c, 'while true; do nc -l -p 1337 -e ./chall; done']":                            "",
		"ports: [{port: 1337, type: publicPort, connectAtStart: false}]\ncommand: [socat, 'TCP-LISTEN:1337', '-']": "",
		"ports: [{port: 1337}]\ncommand: [socat, 'TCP-LISTEN:1337', '-']":                                          "",
		public + "\ncommand: [sh, -c, 'sed -i \"s/X/$FLAG/\" /a; exec run']":                                       "spec.containers[0].command: sed -i \"s/X/$FLAG: a flag with &, /",
		public + "\nargs: [\"perl -pe 's/X/$ENV{A}/'; sed -i s/X/${TEAM_FLAG}/ b\"]":                               "spec.containers[0].args: sed -i s/X/${TEAM_FLAG",
		public + "\nargs: ['sed -i s/X/$KEY/ b']\ndynamicFlag: {env: {name: KEY}}":                                 "spec.containers[0].args: sed -i s/X/$KEY",
		public + "\nargs: ['sed -i s/X/$KEY/ $FLAG_FILE; echo $FLAG > /flag']":                                     "",
		public + "\ncommand: [sh, -c, \"a\\r\\nb\"]":                                                               "spec.containers[0].command: has a Windows line ending",
		public + "\nenvironment: {A: \"b\\r\", C: d}":                                                              "spec.containers[0].environment[A]: has a Windows line ending",
		public + "\nenvironment: {A: \"b\\r\\n\", D: d}":                                                           "spec.containers[0].environment[A]: has a Windows line ending",
		"ports: [{port: 1337, connectAtStart: false}]":                                                             "spec.containers[0].ports[0].connectAtStart: has no effect",
		"ports: [{port: 53, protocol: udp, type: publicPort, connectAtStart: true}]":                               "has no effect",
	} {
		c := &bergv1.Challenge{}
		c.Spec.Containers = []bergv1.Container{{Hostname: "pwn", Image: "example.com/pwn:1"}}
		if err := yaml.UnmarshalStrict([]byte(container), &c.Spec.Containers[0]); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, w := range Warnings(c) {
			if !strings.Contains(w.Message, "players can reach") {
				got = append(got, w.String())
			}
		}
		if text := strings.Join(got, "; "); want == "" && text != "" || !strings.Contains(text, want) {
			t.Errorf("%s\n%q, want %q", container, text, want)
		}
	}
}

func TestFlagsThatPlayersDoNotType(t *testing.T) {
	for flag, warns := range map[string]bool{"flag{a b}": false, "": false, "flag{a}\r\n": true, " flag{a}": true} {
		c := &bergv1.Challenge{Spec: bergv1.ChallengeSpec{Flag: flag}}
		if got := len(Warnings(c)) > 0; got != warns {
			t.Errorf("%q: %v", flag, Warnings(c))
		}
	}
}

func TestImagePullPolicy(t *testing.T) {
	for _, tc := range []struct {
		image, policy string
		warns         bool
		errors        int
	}{
		{"example.com/web:latest", "", true, 0},
		{"example.com/web:latest", "IfNotPresent", true, 0},
		{"example.com/web:latest", "Always", false, 0},
		{"example.com/web:1", "IfNotPresent", false, 0},
		{"example.com/web:1", "Never", false, 1},
	} {
		c := &bergv1.Challenge{}
		c.Spec.Containers = []bergv1.Container{{
			Hostname: "web", Image: tc.image, ImagePullPolicy: bergv1.ImagePullPolicy(tc.policy), Ports: []bergv1.Port{{Port: 80, Type: bergv1.PublicPort}},
		}}
		if got := len(Warnings(c)) > 0; got != tc.warns {
			t.Errorf("%+v: warnings %v", tc, Warnings(c))
		}
		if errs := Errors(c, Settings{}); len(errs) != tc.errors || tc.errors > 0 && !strings.Contains(errs[0].Error(), "spec.containers[0].imagePullPolicy") {
			t.Errorf("%+v: %v", tc, errs)
		}
	}
}

func TestANameThatNoInstanceCanReferTo(t *testing.T) {
	c := &bergv1.Challenge{}
	for length, want := range map[int]int{64: 0, 65: 1} {
		c.Name = strings.Repeat("a", length)
		if errs := Errors(c, Settings{}); len(errs) != want || want > 0 && !strings.Contains(errs[0].Error(), "metadata.name") {
			t.Errorf("%d characters: %v", length, errs)
		}
	}
}
