package source

import (
	"bytes"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
)

const from = "FROM example.org/base:1\n"

// Of each instruction that kaniko would skip, the line and what to write instead are reported.
func TestDockerfileThatTheBuilderDoesNotDo(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"a program in a here-document":    {from + "RUN <<EOF\n#!/usr/bin/python3\nprint(1)\nEOF\n", "line 2: RUN <<EOF: the builder runs here-documents by the shell"},
		"a large here-document":           {from + "RUN <<EOF\n" + strings.Repeat("# x\n", maxScript/4+1) + "EOF\n", "is larger than"},
		"one that has no end":             {from + "RUN <<EOF\ntrue\n", "unterminated heredoc"},
		"COPY of a here-document":         {from + "COPY <<EOF /text\na\nEOF\n", "here-documents"},
		"ADD of a here-document":          {from + "ADD <<EOF /text\na\nEOF\n", "here-documents"},
		"a bound file":                    {from + "RUN --mount=type=bind,target=/x cat /x\n", "ignores --mount=type=bind"},
		"a mount without a type":          {from + "RUN --mount=target=/x cat /x\n", "ignores --mount=type=bind"},
		"a secret":                        {from + "RUN --mount=type=secret,id=x cat /run/secrets/x\n", "ignores --mount=type=secret"},
		"a key":                           {from + "RUN --mount=type=ssh true\n", "ignores --mount=type=ssh"},
		"memory":                          {from + "RUN --mount=type=tmpfs,target=/x true\n", "ignores --mount=type=tmpfs"},
		"a cache that begins with files":  {from + "RUN --mount=type=cache,from=base,target=/x true\n", "ignores --mount=type=cache"},
		"the second of two mounts":        {from + "RUN --mount=type=cache,target=/c --mount=type=bind,target=/x true\n", "ignores --mount=type=bind"},
		"a trigger with a mount":          {from + "ONBUILD RUN --mount=type=bind,target=/x cat /x\n", "ignores --mount=type=bind"},
		"a trigger with a here-document":  {from + "ONBUILD RUN <<EOF\ntrue\nEOF\n", "no here-documents in ONBUILD"},
		"no network":                      {from + "RUN --network=none true\n", "ignores --network=none"},
		"privileges":                      {from + "RUN --security=insecure true\n", "ignores --security=insecure"},
		"exceptions of COPY":              {from + "COPY --exclude=*.md . /x\n", "ignores --exclude"},
		"parents":                         {from + "COPY --parents a/b /x\n", "ignores --parents"},
		"a checksum":                      {from + "ADD --checksum=sha256:" + strings.Repeat("a", 64) + " https://example.org/x /x\n", "ignores --checksum"},
		"a repository":                    {from + "ADD https://example.org/team/web.git#main /x\n", "does not clone repositories"},
		"a repository by ssh":             {from + "ADD git@example.org:team/web.git /x\n", "does not clone repositories"},
		"another platform":                {"FROM --platform=linux/s390x example.org/base:1\n", "line 1: FROM --platform=linux/s390x example.org/base:1: the builder ignores --platform"},
		"another syntax":                  {"# syntax=example.org/frontend:1\n" + from, "only the syntax of docker/dockerfile"},
		"an instruction in a later stage": {from + "FROM scratch AS next\nRUN <<EOF\ntrue\nEOF\nCOPY <<EOF /x\nx\nEOF\n", "line 6: COPY"},
		"an unknown flag":                 {from + "COPY --wrong=1 a /a\n", "unknown flag: --wrong"},
		"an unknown instruction":          {from + "INSTALL a\n", "unknown instruction: INSTALL"},
		"nothing":                         {"", "no instructions"},
		"a comment alone":                 {"# to do\n", "no instructions"},
		"no FROM":                         {"RUN true\n", "no build stage"},
	} {
		if _, err := translate([]byte(tc.text), "amd64"); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %s", name, err, tc.want)
		}
	}
}

// What the builder does, or what changes nothing if it is skipped.
func TestDockerfileThatTheBuilderDoes(t *testing.T) {
	for name, text := range map[string]string{
		"the usual":            "# syntax=docker/dockerfile:1.7\nARG V=1\n" + from + "ARG V\nENV A=b\nWORKDIR /app\nCOPY --chown=1:1 --chmod=0755 --link . .\nRUN make && echo '<<EOF'\nUSER 1\nHEALTHCHECK CMD true\nSHELL [\"/bin/bash\",\"-c\"]\nONBUILD RUN true\nONBUILD COPY a /a\nONBUILD RUN echo $((1<<2))\nSTOPSIGNAL INT\nVOLUME /data\nEXPOSE 80\nCMD [\"x\"]\n",
		"stages":               from + "FROM example.org/other:1 AS two\nCOPY --from=0 /a /a\n",
		"a cache of a manager": from + "RUN --mount=type=cache,target=/root/.npm npm ci\n",
		"variables":            "FROM --platform=$BUILDPLATFORM example.org/base:1\nARG TARGETARCH\nRUN echo ${TARGETARCH:-x}\n",
		"this platform":        "FROM --platform=linux/amd64 example.org/base:1\n",
		"a download":           from + "ADD https://example.org/x.tar.gz /x\n",
		"the usual network":    from + "RUN --network=default true\n",
		"a shift of the shell": from + "RUN echo $((1<<2))\n",
	} {
		if got, err := translate([]byte(text), "amd64"); err != nil || string(got) != text {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
}

// A shell runs each translated RUN as the here-document says. What is around it stays.
func TestHereDocuments(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"commands":             {"RUN <<EOF\necho \"it's\" $HOME\nfor i in 1 2; do\n  echo $i\ndone\nEOF\n", "it's /home\n1\n2\n"},
		"one that fails":       {"RUN <<EOF\nset -e\necho a\nfalse\necho b\nEOF\n", "a\n"},
		"lines without tabs":   {"RUN <<-EOF\n\techo a\n\tEOF\n", "a\n"},
		"a program that reads": {"RUN cat <<EOF\na $HOME \\\nb\nEOF\n", "a /home b\n"},
		"a literal text":       {"RUN cat <<'EOF' && echo after\n$HOME \\\nEOF\n", "$HOME \\\nafter\n"},
		"two documents":        {"RUN cat <<A && cat <<-B\na\nA\n\tb\n\tB\n", "a\nb\n"},
		"any characters":       {"RUN <<EOF\nprintf '%s' 'é\\n%b `x` \"$\" <<EOF #'\nEOF\n", "é\\n%b `x` \"$\" <<EOF #"},
	} {
		got, err := translate([]byte(from+tc.text+"USER 7\n"), "amd64")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		lines := strings.Split(string(got), "\n")
		if len(lines) != 4 || lines[0]+"\n" != from || lines[2] != "USER 7" || strings.Contains(lines[1], "<<") {
			t.Errorf("%s: %q", name, got)
			continue
		}
		cmd := exec.Command("/bin/sh", "-c", strings.TrimPrefix(lines[1], "RUN "))
		cmd.Env = []string{"HOME=/home", "PATH=" + os.Getenv("PATH")}
		out, err := cmd.Output()
		if string(out) != tc.want || (err != nil) != (name == "one that fails") {
			t.Errorf("%s: %q, %v, want %q", name, out, err, tc.want)
		}
	}
	got, err := translate([]byte(from+"RUN --mount=type=cache,target=/c --network=default <<EOF\ntrue\nEOF\n"), "amd64")
	if want := from + "RUN --mount=type=cache,target=/c --network=default eval \"$(printf '%b' 'true\\0012')\"\n"; err != nil || string(got) != want {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
}

// repository writes files, and returns their directory.
func repository(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestFilesHaveTheTimeOfTheCommit(t *testing.T) {
	root := repository(t, map[string]string{"Dockerfile": from, "a/b/text": "x", "run.sh": "x"})
	for _, do := range []error{
		os.Chmod(filepath.Join(root, "run.sh"), 0o775),
		os.Chmod(filepath.Join(root, "a"), 0o2775|os.ModeSetgid),
		os.Symlink("nowhere", filepath.Join(root, "link")),
		os.Symlink("/etc/passwd", filepath.Join(root, "a/outside")),
	} {
		if do != nil {
			t.Fatal(do)
		}
	}
	at := time.Unix(1000000000, 0)
	before, err := os.Stat("/etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	if err := normalize(root, os.Getuid(), at); err != nil {
		t.Fatal(err)
	}
	for path, mode := range map[string]os.FileMode{
		".": os.ModeDir | 0o755, "a": os.ModeDir | 0o755, "a/b": os.ModeDir | 0o755, "a/b/text": 0o644, "run.sh": 0o755, "Dockerfile": 0o644,
		"link": os.ModeSymlink | 0o777, "a/outside": os.ModeSymlink | 0o777,
	} {
		info, err := os.Lstat(filepath.Join(root, path))
		if err != nil || info.Mode() != mode || !info.ModTime().Equal(at) {
			t.Errorf("%s: %v, %v, %v", path, info.Mode(), info.ModTime(), err)
		}
	}
	if after, err := os.Stat("/etc/passwd"); err != nil || after.Mode() != before.Mode() || !after.ModTime().Equal(before.ModTime()) {
		t.Errorf("a file outside has changed: %v, %v", after, err)
	}
}

// newPrepare is a call with files for all results.
func newPrepare(t *testing.T, root string) Prepare {
	out := t.TempDir()
	return Prepare{
		Root: root, Dockerfile: "Dockerfile", Output: filepath.Join(out, "Dockerfile"), Time: "1000000000", Architecture: filepath.Join(out, "architecture"),
		Cached: filepath.Join(out, "cached"), Warning: filepath.Join(out, "warning"), Problem: filepath.Join(out, "problem"),
	}
}

func result(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Error(err)
	}
	return string(text)
}

// A cache that is away is not used, and the build goes on.
func TestCacheThatIsAway(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("files are given to root")
	}
	server := httptest.NewServer(registry.New())
	there := strings.TrimPrefix(server.URL, "http://") + "/cache"
	gone := httptest.NewServer(nil)
	away := strings.TrimPrefix(gone.URL, "http://") + "/cache"
	gone.Close()
	defer server.Close()
	for _, tc := range []struct{ cache, cached, warning string }{
		{"", "false", ""}, {there, "true", ""}, {away, "false", "Built without the cache of BUILD_CACHE_REGISTRY: " + away + ": the registry cannot be reached"},
	} {
		p := newPrepare(t, repository(t, map[string]string{"Dockerfile": from}))
		p.Cache = tc.cache
		var errs bytes.Buffer
		if code := Main(p.Args(), &errs); code != 0 {
			t.Fatalf("exit code %d: %s", code, &errs)
		}
		if got := result(t, p.Cached); got != tc.cached {
			t.Errorf("%q: cached is %q, want %q", tc.cache, got, tc.cached)
		}
		if got := result(t, p.Warning); !strings.HasPrefix(got, tc.warning) || (got == "") != (tc.warning == "") {
			t.Errorf("%q: warning %q, want %q", tc.cache, got, tc.warning)
		}
		if got := result(t, p.Output); got != from {
			t.Errorf("the Dockerfile is %q", got)
		}
		if got := result(t, p.Architecture); got != runtime.GOARCH {
			t.Errorf("architecture %q", got)
		}
	}
}

// A repository can have anything at the path of its Dockerfile.
func TestDockerfileOutsideOfTheRepository(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "login")
	if err := os.WriteFile(secret, []byte("secret-text\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, put := range map[string]func(string) error{
		"a link outside":    func(at string) error { return os.Symlink(secret, at) },
		"a link to nowhere": func(at string) error { return os.Symlink("nowhere", at) },
		"a directory":       func(at string) error { return os.Mkdir(at, 0o755) },
		"too much":          func(at string) error { return os.WriteFile(at, bytes.Repeat([]byte("# x\n"), maxDockerfile), 0o600) },
	} {
		root := repository(t, map[string]string{"text": "x"})
		if err := put(filepath.Join(root, "Dockerfile")); err != nil {
			t.Fatal(err)
		}
		p := newPrepare(t, root)
		var errs bytes.Buffer
		if code := Main(p.Args(), &errs); code == 0 {
			t.Errorf("%s: it is accepted", name)
		}
		if got := result(t, p.Problem); !strings.HasPrefix(got, "Dockerfile") || strings.Contains(got, "secret-text") {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// An author can give a commit any time.
func TestTimesOfCommits(t *testing.T) {
	for _, seconds := range []string{"0", "-1", strconv.Itoa(1 << 62), "99999999999999999999999"} {
		p := newPrepare(t, repository(t, map[string]string{"Dockerfile": from}))
		p.Time = seconds
		if err := p.prepare(os.Getuid()); err != nil {
			t.Errorf("%s: %v", seconds, err)
		}
	}
	p := newPrepare(t, repository(t, map[string]string{"Dockerfile": from}))
	if p.Time = ""; p.prepare(os.Getuid()) == nil {
		t.Error("no time is accepted")
	}
}

// The builder looks next to the Dockerfile for the files that are no part of its context.
func TestIgnoredFilesOfADockerfile(t *testing.T) {
	p := newPrepare(t, repository(t, map[string]string{"docker/web": from, "docker/web.dockerignore": "secret\n", ".dockerignore": "other\n"}))
	p.Dockerfile = "docker/web"
	if err := p.prepare(os.Getuid()); err != nil {
		t.Fatal(err)
	}
	if got := result(t, p.Output+ignored); got != "secret\n" {
		t.Errorf("got %q", got)
	}
}
