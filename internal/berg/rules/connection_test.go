package rules

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

func TestFillConnectionInfo(t *testing.T) {
	services := []bergv1.ServiceEndpoint{
		{Name: "ssh", Hostname: "ctf.example.com", Port: 30022, URL: "tcp://ctf.example.com:30022"},
		{Name: "web:80", Hostname: "a.example.com", Port: 443, URL: "https://a.example.com"},
	}
	for text, want := range map[string]string{
		"ssh -p {port} ctf@{host}, password ctf": "ssh -p 30022 ctf@ctf.example.com, password ctf",
		"{ssh.url} and {web:80.url}":             "tcp://ctf.example.com:30022 and https://a.example.com",
		`curl -d '{"a": {}}' {web:80.host}`:      `curl -d '{"a": {}}' a.example.com`,
		"ask in the chat":                        "ask in the chat",
		"{ftp.port}":                             "",
	} {
		if got := FillConnectionInfo(text, services); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	if got := FillConnectionInfo("nc {host} {port}", nil); got != "" {
		t.Errorf("without an address: %q", got)
	}
}

func TestWarningsOfConnectionInfo(t *testing.T) {
	const public = "flag: flag{secret}\ncontainers: [{hostname: web, image: a, ports: [{name: ssh, port: 22, type: publicPort}, {port: 80, type: publicHttpRoute}, {name: db, port: 5432}]}]\n"
	for text, want := range map[string]string{
		"ssh -p {port} {host} or {ssh.host}, {web:80.url}": "",
		`curl -d '{"a": 1}' {url}`:                         "",
		"{db.host}":                                        "{db.host}, but there is no port of that name that players can reach",
		"{hostname}":                                       "shows {hostname} as it is",
		"look for flag{secret}":                            "contains the flag",
	} {
		var c bergv1.Challenge
		if err := yaml.Unmarshal([]byte(public), &c.Spec); err != nil {
			t.Fatal(err)
		}
		c.Spec.ConnectionInfo = text
		var got []string
		for _, w := range Warnings(&c) {
			if w.Field == "spec.connectionInfo" {
				got = append(got, w.Message)
			}
		}
		if found := strings.Join(got, "; "); (found == "") != (want == "") || !strings.Contains(found, want) || strings.Contains(found, "secret") && want == "contains the flag" {
			t.Errorf("%s: %q", text, found)
		}
	}
	long := bergv1.Challenge{Spec: bergv1.ChallengeSpec{ConnectionInfo: strings.Repeat("ä", maxConnectionInfo+1)}}
	long.Name = "long"
	if errs := SchemaErrors(&long); len(errs) != 1 || errs[0].Field != "spec.connectionInfo" {
		t.Errorf("a text that the API server refuses: %v", errs)
	}
	internal := bergv1.Challenge{Spec: bergv1.ChallengeSpec{ConnectionInfo: "nc {host} {port}", Containers: []bergv1.Container{{Hostname: "web"}}}}
	if got := len(Warnings(&internal)); got != 3 { // no public port, and two placeholders
		t.Errorf("%v", Warnings(&internal))
	}
}
