package importer_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bergctf/berg-operator/cmd/kubectl-berg/importer"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/lint"
	"github.com/bergctf/berg-operator/internal/berg/rules"
)

// secret stands in files outside of the folder that is imported.
const secret = "only_for_the_author"

// layFiles writes files into a folder below another one, whose file common.env has a secret. A content that begins with
// "->" is a link, "|" is a pipe.
func layFiles(t *testing.T, files map[string]string) (folder string) {
	t.Helper()
	above := t.TempDir()
	folder = filepath.Join(above, "challenge")
	files["../common.env"] = "SECRET=" + secret + "\n"
	files["../base.yaml"] = "services: {base: {image: example.com/a:1, environment: {A: " + secret + "}, ports: ['80:80']}}\n"
	files["../build/Dockerfile"] = "FROM debian\nENV FLAG=flag{" + secret + "}\nEXPOSE 5000\n"
	files["../data/flag.txt"] = "flag{" + secret + "}\n"
	for name, content := range files {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		var err error
		switch target, link := strings.CutPrefix(content, "->"); {
		case link:
			err = os.Symlink(target, path)
		case content == "|":
			err = syscall.Mkfifo(path, 0o600)
		default:
			err = os.WriteFile(path, []byte(content), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// importSoon fails if an import does not end.
func importSoon(t *testing.T, path string, o importer.Options) (result importer.Result, err error) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		result, err = importer.Import(path, o)
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatalf("%s: the import does not end", path)
	}
	return result, err
}

// Nothing outside of the folder is read without --allow-outside, and what is not read is named.
func TestNothingOutsideOfTheFolderIsRead(t *testing.T) {
	const web = "services:\n  web:\n    image: example.com/web:1\n    ports: ['80:80']\n"
	for name, files := range map[string]map[string]string{
		"env_file":                 {"compose.yaml": web + "    env_file: ../common.env\n"},
		"env_file by a link":       {"compose.yaml": web + "    env_file: here.env\n", "here.env": "->../common.env"},
		"raw env_file":             {"compose.yaml": web + "    env_file: [{path: ../common.env, format: raw}]\n"},
		".env by a link":           {"compose.yaml": web + "    environment: {A: '${SECRET}'}\n", ".env": "->../common.env"},
		"extends":                  {"compose.yaml": "services: {web: {extends: {file: ../base.yaml, service: base}}, x: {image: example.com/x:1, ports: ['80:80']}}\n"},
		"extends by a merged key":  {"compose.yaml": "x-a: &a {extends: {file: ../base.yaml, service: base}}\nservices: {web: {<<: *a}, x: {image: example.com/x:1, ports: ['80:80']}}\n"},
		"extends by an alias":      {"compose.yaml": "x-a: &k extends\nservices: {web: {*k : {file: ../base.yaml, service: base}}, x: {image: example.com/x:1, ports: ['80:80']}}\n"},
		"extends in base64":        {"compose.yaml": "services: {web: {!!binary ZXh0ZW5kcw==: {file: ../base.yaml, service: base}}, x: {image: example.com/x:1, ports: ['80:80']}}\n"},
		"include":                  {"compose.yaml": "include: [../base.yaml]\n" + web},
		"include of a folder":      {"compose.yaml": "include: [{path: inner.yaml, project_directory: ../data}]\n" + web, "inner.yaml": "services: {}\n", "../data/.env": "A=" + secret, "x": "->../data"},
		"env_file of an include":   {"compose.yaml": "include: [{path: inner.yaml, env_file: ../common.env}]\n" + web, "inner.yaml": "services: {b: {image: example.com/b:1, environment: {A: '${SECRET}'}}}\n"},
		"include in an include":    {"compose.yaml": "include: [below/inner.yaml]\n" + web, "below/inner.yaml": "include: [../../base.yaml]\n"},
		"include by a variable":    {"compose.yaml": "include: ['${WHERE}/base.yaml']\n" + web, ".env": "WHERE=..\n"},
		"override by a link":       {"compose.yaml": web, "compose.override.yaml": "->../base.yaml"},
		"build":                    {"compose.yaml": "services: {web: {build: ../build}}\n"},
		"build by a link":          {"compose.yaml": "services: {web: {build: here}}\n", "here": "->../build"},
		"dockerfile":               {"compose.yaml": "services: {web: {build: {context: ., dockerfile: ../build/Dockerfile}}}\n"},
		"a mounted flag":           {"compose.yaml": web + "    volumes: ['../data/flag.txt:/flag.txt']\n"},
		"a mounted folder":         {"compose.yaml": web + "    volumes: ['../data:/data']\n"},
		"a secret":                 {"compose.yaml": web + "    secrets: [flag]\nsecrets: {flag: {file: ../data/flag.txt}}\n"},
		"a copied link":            {"Dockerfile": "FROM debian\nCOPY flag.txt /\nEXPOSE 5000\n", "flag.txt": "->../data/flag.txt"},
		"a copied folder":          {"Dockerfile": "FROM debian\nCOPY data /data\nEXPOSE 5000\n", "data": "->../data"},
		"a Dockerfile by a link":   {"Dockerfile": "->../build/Dockerfile"},
		"compose.yaml by a link":   {"compose.yaml": "->../base.yaml"},
		"flag of rCTF":             {"challenge.yaml": "name: a\nflag: {file: ../data/flag.txt}\ncontainers: {web: {image: 'example.com/a:1', ports: [80]}}\nexpose: {web: [{target: 80, http: a}]}\n"},
		"description by a link":    {"challenge.yml": "->../about.yml", "../about.yml": "name: " + secret + "\ncategory: web\n", "Dockerfile": "FROM debian\nEXPOSE 80\n"},
		"everything by a pipe":     {"compose.yaml": web + "    env_file: pipe\n", "pipe": "|", ".env": "|"},
		"everything by the device": {"compose.yaml": web + "    env_file: zero\n", "zero": "->/dev/zero", ".env": "->/dev/zero", "compose.override.yaml": "->/dev/zero"},
		"compose.yaml is a pipe":   {"compose.yaml": "|"},
		"compose.yaml is endless":  {"compose.yaml": "->/dev/zero"},
		"Dockerfile is a pipe":     {"Dockerfile": "|"},
	} {
		t.Run(name, func(t *testing.T) {
			folder := layFiles(t, files)
			result, err := importSoon(t, folder, importer.Options{Registry: importer.DefaultRegistry, Tag: "1", Allowed: allowed})
			said := fmt.Sprint(err)
			if err == nil {
				content, err := importer.Write(result.Challenges)
				if err != nil {
					t.Fatal(err)
				}
				said = string(content)
			}
			for _, n := range result.Lost {
				said += n.String() + "\n"
			}
			if strings.Contains(said, secret) {
				t.Errorf("read outside of the folder:\n%s", said)
			}
			if !strings.Contains(said, "is not read") && name != "include of a folder" {
				t.Errorf("not named: %v\n%s", err, said)
			}
		})
	}
}

// With --allow-outside, and in a folder above both, the same files are read.
func TestFilesOutsideAreAllowed(t *testing.T) {
	for name, compose := range map[string]string{
		"env_file": "services: {web: {image: 'example.com/web:1', ports: ['80:80'], env_file: ../common.env}}\n",
		"extends":  "services: {web: {extends: {file: ../base.yaml, service: base}}}\n",
		"include":  "include: [../base.yaml]\nservices: {web: {image: 'example.com/web:1'}}\n",
		"build":    "services: {web: {build: ../build}}\n",
	} {
		folder := layFiles(t, map[string]string{"compose.yaml": compose})
		for path, outside := range map[string]bool{folder: true, filepath.Dir(folder): false} {
			result, err := importSoon(t, path, importer.Options{Registry: importer.DefaultRegistry, Tag: "1", Allowed: allowed, AllowOutside: outside})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			text, err := importer.Write(result.Challenges)
			if err != nil || !strings.Contains(string(text), secret) {
				t.Errorf("%s, %t: %v\n%s", name, outside, err, text)
			}
		}
	}
}

// A link that the user names is followed, and a link within the folder.
func TestLinksAreFollowed(t *testing.T) {
	folder := layFiles(t, map[string]string{"Dockerfile": "FROM debian\nCOPY data /data\nEXPOSE 5000\n", "real/flag.txt": "flag{in}", "data": "->real"})
	link := filepath.Join(filepath.Dir(folder), "link")
	if err := os.Symlink(filepath.Base(folder), link); err != nil {
		t.Fatal(err)
	}
	result, err := importSoon(t, link, importer.Options{Registry: importer.DefaultRegistry, Tag: "1", Allowed: allowed})
	if err != nil || len(result.Challenges) != 1 || result.Challenges[0].Spec.Flag != "flag{in}" || flagPath(result.Challenges[0].Spec.Containers[0].DynamicFlag) != "/data/flag.txt" {
		t.Errorf("%+v, %v", result, err)
	}
}

// endless are documents that have no end, or explode, when their aliases are replaced.
var endless = map[string]string{
	"a merge key of itself": "a: &a\n  <<: *a\n  b: 1\n",
	"a list of itself":      "a: &a [*a]\n",
	"a value of itself":     "a: &a {b: {c: *a}}\n",
	"a tenfold alias": "x0: &x0 [a,a,a,a,a,a,a,a,a,a]\nx1: &x1 [*x0,*x0,*x0,*x0,*x0,*x0,*x0,*x0,*x0,*x0]\nx2: &x2 [*x1,*x1,*x1,*x1,*x1,*x1,*x1,*x1,*x1,*x1]\n" +
		"x3: &x3 [*x2,*x2,*x2,*x2,*x2,*x2,*x2,*x2,*x2,*x2]\nx4: &x4 [*x3,*x3,*x3,*x3,*x3,*x3,*x3,*x3,*x3,*x3]\nx5: &x5 [*x4,*x4,*x4,*x4,*x4,*x4,*x4,*x4,*x4,*x4]\n",
}

func TestYAMLWithoutAnEndIsRefused(t *testing.T) {
	for name, part := range endless {
		for file, content := range map[string]string{
			"compose.yaml":   part + "services: {web: {<<: *a, image: 'example.com/a:1'}}\n",
			"challenge.yaml": "apiVersion: kctf.dev/v1\nkind: Challenge\nspec: {image: a}\n" + part,
			"klodd.yaml":     "apiVersion: klodd.tjcsec.club/v1\nkind: Challenge\nspec: {pods: []}\n" + part,
			"challenge.yml":  "name: a\ncategory: web\ncontainers: {web: {image: 'example.com/a:1'}}\n" + part,
		} {
			if !strings.Contains(part, "&a") {
				content = strings.ReplaceAll(content, "<<: *a, ", "")
			}
			folder := layFiles(t, map[string]string{file: content})
			if _, err := importSoon(t, filepath.Join(folder, file), importer.Options{Allowed: allowed}); err == nil || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s in %s: %v", name, file, err)
			}
		}
		files := layFiles(t, map[string]string{"compose.yaml": "include: [more.yaml]\nservices: {web: {image: 'example.com/a:1'}}\n", "more.yaml": part})
		if _, err := importSoon(t, files, importer.Options{Allowed: allowed}); err == nil {
			t.Errorf("%s in an included file: no error", name)
		}
		challenge := lint.Source{Name: "a.yaml", Content: []byte("apiVersion: berg.norelect.ch/v1\nkind: Challenge\nmetadata: {name: a}\n" + part), Named: true}
		findings := lint.Check(challenge, rules.Settings{}).Findings
		if len(findings) != 1 || !strings.Contains(findings[0].Message, "contains itself") && !strings.Contains(findings[0].Message, "expand to more") {
			t.Errorf("lint: %s: %+v", name, findings)
		}
	}
}

// FuzzImport lets files of authors be anything: an import ends, and what it writes can be read.
func FuzzImport(f *testing.F) {
	f.Add("services: {web: {build: ., ports: ['80:80'], environment: {FLAG: 'flag{x}'}}}", "FROM python\nCOPY flag.txt /\nCMD flask run", "")
	f.Add("", "FROM redpwn/jail\nCOPY --from=a / /srv\nRUN <<A\nb\nA", "name: a\ncategory: web\nflags: [x]\nvalue: 5\nconnection_info: nc a 1")
	f.Add("include: [compose.yaml]\nservices: {a: &a {<<: *a, extends: a}}", "FROM a AS b\nFROM b", "apiVersion: kctf.dev/v1\nkind: Challenge\nspec: {podTemplate: {template: {spec: {containers: [{name: challenge}]}}}}")
	f.Add("", "", "name: x\ncontainers: {main: {image: a, ports: [1]}}\nexpose: {main: [{target: 1, tcp: host}]}")
	f.Fuzz(func(t *testing.T, compose, dockerfile, challenge string) {
		folder := t.TempDir()
		for name, content := range map[string]string{"compose.yaml": compose, "Dockerfile": dockerfile, "challenge.yaml": challenge, "flag.txt": "flag{f}"} {
			if content == "" {
				continue
			}
			if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		result, err := importer.Import(folder, importer.Options{Registry: importer.DefaultRegistry, Tag: "1", Split: len(compose)%2 == 1, Allowed: allowed})
		if err != nil {
			return
		}
		text, err := importer.Write(result.Challenges)
		if err != nil {
			t.Fatal(err)
		}
		if found := lint.Check(lint.Source{Name: "a", Content: text, Named: true}, rules.Settings{Allowed: allowed}); found.Found != len(result.Challenges) {
			t.Errorf("%d Challenges, %d in\n%s", len(result.Challenges), found.Found, text)
		}
	})
}
