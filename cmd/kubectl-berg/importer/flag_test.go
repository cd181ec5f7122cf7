package importer_test

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/importer"
)

// importFiles imports a folder with these files.
func importFiles(t *testing.T, files map[string]string, o importer.Options) (importer.Result, error) {
	t.Helper()
	folder := t.TempDir()
	for name, content := range files {
		if err := os.MkdirAll(filepath.Join(folder, filepath.Dir(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o.Registry, o.Tag, o.Allowed = importer.DefaultRegistry, "1", allowed
	return importer.Import(folder, o)
}

func flagPath(f *bergv1.DynamicFlag) string {
	switch {
	case f == nil:
		return "none"
	case f.Env != nil:
		return "$" + f.Env.Name
	default:
		return f.Content.Path
	}
}

// A flag is put only where the files say for certain that it is. Otherwise the author is asked, in the words of a line.
func TestAFlagIsPutOnlyWhereItIsForCertain(t *testing.T) {
	for dockerfile, want := range map[string]string{
		"COPY flag.txt /": "/flag.txt",
		"COPY flag.txt /srv/\nRUN chmod 444 /srv/flag.txt":               "/srv/flag.txt",
		"COPY flag.txt /home/ctf/chal":                                   "?COPY flag.txt /home/ctf/chal",
		"COPY flag.txt /home/ctf/chal\nCOPY run.sh /home/ctf/chal/run":   "/home/ctf/chal/flag.txt",
		"COPY flag.txt /home/ctf/chal\nCMD /home/ctf/chal/run":           "/home/ctf/chal/flag.txt",
		"COPY flag.txt /home/ctf/chal\nRUN chmod 755 /home/ctf/chal/run": "/home/ctf/chal/flag.txt",
		"COPY flag.txt /home/ctf/chal\nWORKDIR /home/ctf/chal":           "/home/ctf/chal/flag.txt",
		"COPY flag.txt /home/ctf/chal\nCOPY src /home/ctf/chal":          "/home/ctf/chal/flag.txt",
		"COPY secret /flag":                                                      "/flag",
		"COPY --parents data/flag.txt /":                                         "?COPY --parents data/flag.txt /",
		"COPY . /app\nRUN mv /app/* /srv/":                                       "?mv /app/* /srv/",
		"WORKDIR /app\nCOPY . .\nRUN rm -rf ./*":                                 "?rm -rf ./*",
		"COPY . /app\nRUN rm -rf /var/lib/apt/lists/*":                           "/app/flag.txt",
		"COPY flag.txt /\nRUN chmod 400 /flag.txt&&mv /flag.txt /root/":          "?mv /flag.txt /root/",
		"COPY flag.txt setup.sh /\nRUN sh setup.sh":                              "?setup.sh: mv /flag.txt /secret",
		"COPY flag.txt setup.sh /\nENTRYPOINT [\"/setup.sh\"]":                   "?setup.sh: mv /flag.txt /secret",
		"FROM debian AS two\nCOPY --from=one / /srv":                             "?echo x > /flag",
		"COPY flag.s flag_server.py flag.png /app/":                              "?",
		"ENV FLAG=/flag.txt":                                                     "?",
		"ENV FLAG=flag{x}":                                                       "$FLAG",
		"COPY hidden/flag.txt /":                                                 "?.dockerignore: hidden/flag.txt",
		"RUN gcc --some-flag -DFLAG=1 -o /readflag /readflag.c\nCOPY flag.txt /": "/flag.txt",
	} {
		base := "FROM debian\n"
		if strings.HasPrefix(dockerfile, "FROM") {
			base = "FROM debian AS one\nRUN echo x > /flag\n"
		}
		result, err := importFiles(t, map[string]string{
			"Dockerfile": base + dockerfile + "\n", "flag.txt": "flag{x}\n", "data/flag.txt": "flag{y}", "hidden/flag.txt": "flag{z}", "src/run.c": "",
			"setup.sh": "#!/bin/sh\n# cp /flag.txt /a\nmv /flag.txt /secret\n", ".dockerignore": "**/hidden\n*.md\n",
		}, importer.Options{})
		if err != nil || len(result.Challenges) != 1 {
			t.Fatalf("%q: %v", dockerfile, err)
		}
		got := flagPath(result.Challenges[0].Spec.Containers[0].DynamicFlag)
		if len(result.Questions) == 1 && got == "none" {
			got = "?" + result.Questions[0].Text
		}
		if got != want {
			t.Errorf("%q: %s, want %s", dockerfile, got, want)
		}
	}
}

// The author answers with --flag-file, for the container that is asked about, or for one that the answer names.
func TestTheAuthorSaysWhereTheFlagIs(t *testing.T) {
	one := map[string]string{"Dockerfile": "FROM debian\nRUN mv /a/flag /b\n"}
	two := map[string]string{
		"compose.yaml":   "services:\n  web: {build: web, ports: ['80:80'], environment: {FLAG: 'flag{x}'}}\n  Db_1: {build: db}\n",
		"web/Dockerfile": "FROM nginx\n", "db/Dockerfile": "FROM mysql\nRUN echo x > /flag\n",
	}
	calm := maps.Clone(two)
	calm["db/Dockerfile"] = "FROM mysql\n"
	for name, tc := range map[string]struct {
		files   map[string]string
		answer  string
		want    []string
		message string
	}{
		"one container":              {one, "/flag-{entropy}.txt", []string{"/flag-{entropy}.txt"}, ""},
		"the one that is asked for":  {two, "/flag", []string{"$FLAG", "/flag"}, ""},
		"by its hostname":            {calm, "db-1=/root/flag", []string{"$FLAG", "/root/flag"}, ""},
		"by its service":             {calm, "Db_1=/root/flag", []string{"$FLAG", "/root/flag"}, ""},
		"in place of the variable":   {calm, "web=/flag", []string{"/flag", "none"}, ""},
		"which one":                  {calm, "/flag", nil, "--flag-file: must name a container, as in --flag-file web=/flag.txt"},
		"a container that is not so": {two, "cache=/flag", nil, "--flag-file: must name a container"},
		"a relative path":            {one, "flag", nil, "--flag-file: "},
		"a path of the kernel":       {one, "/proc/flag", nil, "--flag-file: "},
	} {
		result, err := importFiles(t, tc.files, importer.Options{FlagFile: tc.answer})
		if tc.message != "" {
			if err == nil || !strings.HasPrefix(err.Error(), tc.message) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil || len(result.Questions) > 0 {
			t.Fatalf("%s: %v, %v", name, err, result.Questions)
		}
		for i, c := range result.Challenges[0].Spec.Containers {
			if got := flagPath(c.DynamicFlag); got != tc.want[i] {
				t.Errorf("%s: %s, want %s", name, got, tc.want[i])
			}
		}
	}
}

// The format of a flag has what stands before its braces.
func TestTheFormatOfAFlag(t *testing.T) {
	for flag, want := range map[string]string{"flag{x}": "flag{...}", ".;,;.{x}": ".;,;.{...}", "UIUC-CTF{x}": "UIUC-CTF{...}", "a b{x}": "", "{x}": "", "x": "", `{"a": {"b": 1}}`: ""} {
		result, err := importFiles(t, map[string]string{"Dockerfile": "FROM debian\nCOPY flag.txt /\n", "flag.txt": flag}, importer.Options{})
		if err != nil || result.Challenges[0].Spec.FlagFormat != want {
			t.Errorf("%s: %+v, %v", flag, result.Challenges, err)
		}
	}
}

// A command of ssh becomes the text for players, with the address of the instance.
func TestHowPlayersConnectWithSSH(t *testing.T) {
	for info, want := range map[string]string{
		"ssh -p 2222 ctf@a.example.com": "ssh -p {port} ctf@{host}", "ssh ctf@a.example.com (password ctf)": "ssh -p {port} ctf@{host} (password ctf)",
		"ssh ctf@a.example.com -p 22": "ssh ctf@{host} -p {port}", "nc a.example.com 1337": "", "https://a.example.com/path": "",
	} {
		result, err := importFiles(t, map[string]string{"Dockerfile": "FROM debian\nEXPOSE 22\n", "challenge.yml": "name: a\ncategory: misc\nconnection_info: " + info + "\n"}, importer.Options{})
		if err != nil || result.Challenges[0].Spec.ConnectionInfo != want || len(result.Lost) > 0 {
			t.Errorf("%s: %+v, %v", info, result, err)
		}
	}
}

// Words in a flag, a path or a variable make no jail of a container.
func TestAWordInAFlagMakesNoJail(t *testing.T) {
	for dockerfile, jail := range map[string]bool{
		"FROM python\nENV FLAG=kctf{nsjail_escape}\nEXPOSE 5000": false, "FROM python\nRUN echo 'kctf{redpwn/jail}' > /flag\nEXPOSE 5000": false,
		"FROM python\nCOPY kctf /app\nEXPOSE 5000": false, "FROM gcr.io/kctf-docker/challenge": true, "FROM debian\nCMD kctf_setup && nsjail -Ml --port 5000": true,
	} {
		result, err := importFiles(t, map[string]string{"Dockerfile": dockerfile + "\n"}, importer.Options{})
		if err != nil || len(result.Challenges) != 1 {
			t.Fatalf("%q: %v", dockerfile, err)
		}
		c := result.Challenges[0].Spec.Containers[0]
		if got := c.Sandbox == bergv1.SandboxNested; got != jail || !jail && c.Ports[0].Type != bergv1.PublicHTTPRoute {
			t.Errorf("%q: jail %t, %+v", dockerfile, got, c.Ports)
		}
	}
}

// A line that only a newer frontend knows is not called refused.
func TestALineOfAnotherFrontend(t *testing.T) {
	result, err := importFiles(t, map[string]string{"Dockerfile": "# syntax=docker/dockerfile:1-labs\nFROM debian\nRUN --newest=1 make\nEXPOSE 5000\n"}, importer.Options{})
	if err != nil || len(result.Lost) != 1 || !strings.Contains(result.Lost[0].String(), "Dockerfile:3: ") || !strings.Contains(result.Lost[0].Message, "only docker/dockerfile:1-labs may know it") {
		t.Errorf("%+v, %v", result.Lost, err)
	}
}

// A line that docker build refuses is named, and the others are read.
func TestALineThatDockerRefusesIsNamed(t *testing.T) {
	result, err := importFiles(t, map[string]string{"Dockerfile": "FROM debian\nRUNN make\nCOPY flag.txt /\nEXPOSE 5000\n"}, importer.Options{})
	if err != nil || len(result.Challenges) != 1 || len(result.Lost) != 1 || result.Lost[0].Line != 2 || !strings.Contains(result.Lost[0].Message, "docker build refuses this line: unknown instruction: RUNN") {
		t.Fatalf("%+v, %v", result, err)
	}
	if c := result.Challenges[0].Spec.Containers[0]; flagPath(c.DynamicFlag) != "/flag.txt" || len(c.Ports) != 1 {
		t.Errorf("%+v", c)
	}
}
