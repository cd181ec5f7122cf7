package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	one = "sha256:1111111111111111111111111111111111111111111111111111111111111111"
	two = "sha256:2222222222222222222222222222222222222222222222222222222222222222"
)

// pin runs on a file, and returns what it is then.
func pin(t *testing.T, digests, text string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	list, file := filepath.Join(dir, "digests.txt"), filepath.Join(dir, "tree", "sub", "file.yaml")
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string]string{list: digests, file: text} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	err := run(list, []string{filepath.Join(dir, "tree")})
	after, readErr := os.ReadFile(file)
	if readErr != nil {
		t.Fatal(readErr)
	}
	return string(after), err
}

func TestTagsBecomeDigests(t *testing.T) {
	for name, c := range map[string]struct{ digests, text, want string }{
		"an image": {"r.example/web:v1 " + one, "image: r.example/web:v1\n", "image: r.example/web@" + one + "\n"},
		"in quotes, and at the end": {
			"r.example/web:v1 " + one, `a: "r.example/web:v1"` + "\nb: r.example/web:v1", `a: "r.example/web@` + one + `"` + "\nb: r.example/web@" + one,
		},
		"not another tag, nor another name": {
			"r.example/web:v1 " + one, "a: r.example/web:v1.2\nb: r.example/web:v1-rc\nc: r.example/web-2:v1\nd: r.example/web:v1\n",
			"a: r.example/web:v1.2\nb: r.example/web:v1-rc\nc: r.example/web-2:v1\nd: r.example/web@" + one + "\n",
		},
		"values of a chart": {
			"r.example/web:v1 " + one + "\nr.example/api:v1 " + two,
			"image:\n  repository: r.example/web\n  # A comment.\n  tag: \"\"\n  digest: \"\"\napi:\n  image:\n    repository: r.example/api\n    tag: \"\"\n    digest: \"\"\n",
			"image:\n  repository: r.example/web\n  # A comment.\n  tag: \"\"\n  digest: \"" + one + "\"\napi:\n  image:\n    repository: r.example/api\n    tag: \"\"\n    digest: \"" + two + "\"\n",
		},
		"a bundle": {
			"r.example/web:v1 " + one,
			disconnected + "\"false\"\nspec:\n  relatedImages:\n  - image: r.example/web:v1\n", disconnected + "\"true\"\nspec:\n  relatedImages:\n  - image: r.example/web@" + one + "\n",
		},
		"a bundle with an image that has no digest": {
			"r.example/web:v1 " + one,
			disconnected + "\"false\"\nspec:\n  relatedImages:\n  - image: r.example/web:v1\n  - image: r.example/other:v1\n",
			disconnected + "\"false\"\nspec:\n  relatedImages:\n  - image: r.example/web@" + one + "\n  - image: r.example/other:v1\n",
		},
	} {
		got, err := pin(t, c.digests, c.text)
		if err != nil || got != c.want {
			t.Errorf("%s: %v\n%s\nwant\n%s", name, err, got, c.want)
		}
	}
}

func TestWhatCannotBePinned(t *testing.T) {
	for digests, want := range map[string]string{
		"r.example/web:v1":              "want an image",
		"r.example/web " + one:          "want an image",
		"r.example/web:v1 sha256:11":    "want an image",
		"r.example/elsewhere:v1 " + one: "no file names r.example/elsewhere:v1",
	} {
		if _, err := pin(t, digests, "image: r.example/web:v1\n"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", digests, err, want)
		}
	}
}
