package importer_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bergctf/berg-operator/cmd/kubectl-berg/importer"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/lint"
	"github.com/bergctf/berg-operator/internal/berg/rules"
)

var update = flag.Bool("update", false, "write the golden files")

var allowed = rules.Allowed{
	Capabilities:  []string{"AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "KILL", "NET_ADMIN", "NET_BIND_SERVICE", "NET_RAW", "SYS_CHROOT", "SYS_PTRACE"},
	NestedSandbox: true,
}

// Each folder of testdata is what an author has. The golden file is the Challenge, and what import says of it in comments.
func TestImport(t *testing.T) {
	folders, err := filepath.Glob("testdata/*")
	if err != nil || len(folders) < 45 {
		t.Fatalf("%d folders: %v", len(folders), err)
	}
	for _, folder := range folders {
		t.Run(filepath.Base(folder), func(t *testing.T) {
			result, err := importer.Import(folder, importer.Options{Registry: importer.DefaultRegistry, Tag: "1", Allowed: allowed})
			if err != nil {
				t.Fatal(err)
			}
			text, err := importer.Write(result.Challenges)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range lint.Check(lint.Source{Name: folder, Content: text, Named: true}, rules.Settings{Allowed: allowed}).Findings {
				if f.Severity == lint.Error || strings.Contains(f.Message, "no port that players can reach") {
					t.Errorf("lint: %s: %s", f.Field, f.Message)
				}
			}
			var got bytes.Buffer
			got.Write(text)
			for _, n := range result.Questions {
				got.WriteString("# question: " + n.String() + "\n")
			}
			for _, n := range result.Lost {
				got.WriteString("# lost: " + n.String() + "\n")
			}
			for _, n := range result.Chosen {
				got.WriteString("# chosen: " + n.String() + "\n")
			}
			for _, b := range result.Builds {
				got.WriteString("# build: " + b.Image + " from " + b.Context + " " + b.Dockerfile + "\n")
			}
			golden := filepath.Join(folder, "golden.yaml")
			if *update {
				if err := os.WriteFile(golden, got.Bytes(), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(want, got.Bytes()) {
				t.Errorf("got\n%s\nwant\n%s", got.Bytes(), want)
			}
		})
	}
}

// What docker compose refuses is refused in its words, or in ours with the place.
func TestWhatCannotBeImported(t *testing.T) {
	for name, tc := range map[string]struct{ file, content, want string }{
		"no YAML":              {"compose.yaml", "services:\n  bot:\n    environment: [FLAG=flag{x}]\n", "compose.yaml: must be YAML: line "},
		"a tab":                {"compose.yaml", "services:\n\tweb:\n", "line 2: found character that cannot start any token, usually a tab: indent with spaces"},
		"no services":          {"compose.yaml", "services: {}\n", "compose.yaml: must be a compose file: it has no services"},
		"volumes only":         {"docker-compose.yml", "volumes: {a: {}}\nservices:\n", "it has no services"},
		"a service of nothing": {"compose.yaml", "services:\n  web:\n", "services.web"},
		"a list of services":   {"compose.yaml", "services:\n  - web\n", "services"},
		"an empty file":        {"compose.yaml", "# services:\n", "compose.yaml: is empty"},
		"a text":               {"compose.yaml", "just a text\n", "it is no YAML mapping"},
		"nothing":              {"README.md", "# A challenge\n", "no compose file, Dockerfile or challenge of klodd, kCTF or rCTF found"},
		"a Challenge":          {"compose.yaml", "apiVersion: berg.norelect.ch/v1\nkind: Challenge\n", "is a Challenge already: check it with kubectl berg lint -f"},
		"a Deployment":         {"compose.yaml", "apiVersion: apps/v1\nkind: Deployment\n", "it is an object of Kubernetes of kind Deployment"},
		"kCTF, no YAML":        {"challenge.yaml", "apiVersion: kctf.dev/v1\nkind: [\n", "must be a challenge of kCTF in YAML: yaml: line 2"},
		"kCTF, broken":         {"challenge.yaml", "apiVersion: kctf.dev/v1\nkind: Challenge\nspec: {network: text}\n", "must be a challenge of kCTF in YAML"},
		"rCTF, broken":         {"challenge.yaml", "containers: {web: {ports: text}}\n", "must be a challenge of rCTF in YAML"},
		"a task of CTFd":       {"compose.yml", "name: a\ncategory: web\nflags: [abc]\n", "it has no services. To import the compose file or Dockerfile next to it, name the folder"},
		"klodd, broken":        {"challenge.yaml", "apiVersion: klodd.tjcsec.club/v1\nkind: Challenge\nspec: {pods: text}\n", "challenge.yaml: "},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			if err := os.WriteFile(filepath.Join(folder, tc.file), []byte(tc.content), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := importer.Import(folder, importer.Options{Registry: importer.DefaultRegistry, Tag: "1", Allowed: allowed})
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// A Dockerfile is known by what it says where its name does not tell.
func TestADockerfileOfAnyName(t *testing.T) {
	content := "# syntax=docker/dockerfile:1\nARG TAG=3.13\nFROM python:${TAG}\nENV FLAG=flag{a}\nEXPOSE 5000\n"
	options := importer.Options{Registry: importer.DefaultRegistry, Tag: "1", Allowed: allowed}
	check := func(name string, result importer.Result, err error) {
		t.Helper()
		if err != nil || len(result.Challenges) != 1 {
			t.Fatalf("%s: %+v, %v", name, result, err)
		}
		spec := result.Challenges[0].Spec
		if ports := spec.Containers[0].Ports; spec.Flag != "flag{a}" || len(ports) != 1 || ports[0].Port != 5000 {
			t.Errorf("%s: flag %q, ports %+v", name, spec.Flag, ports)
		}
	}
	result, err := importer.Content([]byte(content), options)
	check("standard input", result, err)
	for name, inFolder := range map[string]bool{"Dockerfile-dev": true, "dockerfile_web": true, "Containerfile.web": true, "web.Dockerfile": true, "image": false} {
		folder := t.TempDir()
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		result, err := importer.Import(filepath.Join(folder, name), options)
		check(name, result, err)
		if inFolder {
			result, err = importer.Import(folder, options)
			check("the folder of "+name, result, err)
		}
	}
}

// A value that no challenge can have is named, and the rest is imported.
func TestAPortThatIsNoneIsNamed(t *testing.T) {
	for name, content := range map[string]string{
		"kCTF":  "apiVersion: kctf.dev/v1\nkind: Challenge\nmetadata: {name: a}\nspec: {image: example.com/a:1, network: {ports: [{targetPort: -1}]}}\n",
		"klodd": "apiVersion: klodd.tjcsec.club/v1\nkind: Challenge\nmetadata: {name: a}\nspec: {pods: [{name: a, ports: [{port: 70000}], spec: {containers: [{name: a, image: example.com/a:1}]}}]}\n",
	} {
		result, err := importer.Content([]byte(content), importer.Options{Registry: importer.DefaultRegistry, Tag: "1", Allowed: allowed})
		if err != nil || len(result.Challenges) != 1 || len(result.Challenges[0].Spec.Containers[0].Ports) > 0 || len(result.Lost) == 0 || !strings.Contains(result.Lost[0].Message, "from 1 to 65535") {
			t.Errorf("%s: %+v, %v", name, result, err)
		}
	}
}

// Files from Windows begin with a mark of byte order, and have other line endings.
func TestImportOfFilesFromWindows(t *testing.T) {
	folder := t.TempDir()
	for name, content := range map[string]string{
		"Dockerfile":   "\ufeffFROM php:8.2-apache\r\nCOPY src/ /var/www/html/\r\nCOPY flag.txt /flag.txt\r\nRUN chmod 640 /flag.txt \\\r\n && chgrp 33 /flag.txt\r\n",
		"flag.txt":     "flag{crlf}\r\n",
		"compose.yaml": "\ufeffservices:\r\n  web:\r\n    build: .\r\n    ports:\r\n      - \"80:80\"\r\n",
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	result, err := importer.Import(folder, importer.Options{Registry: importer.DefaultRegistry, Tag: "1", Allowed: allowed})
	if err != nil || len(result.Challenges) != 1 {
		t.Fatalf("%+v, %v", result, err)
	}
	spec := result.Challenges[0].Spec
	if flag := spec.Containers[0].DynamicFlag; spec.Flag != "flag{crlf}" || flag == nil || flag.Content == nil || flag.Content.Path != "/flag.txt" || len(result.Questions) > 0 {
		t.Errorf("flag %q, %+v, %+v", spec.Flag, flag, result.Questions)
	}
}
