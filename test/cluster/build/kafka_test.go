package build

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSumsOfJars(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"a.jar": "a", "b.jar": "b"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	line := func(name, text string) string { return fmt.Sprintf("%x  %s\n", sha256.Sum256([]byte(text)), name) }
	for name, test := range map[string]struct{ kept, want string }{
		"all":        {line("a.jar", "a") + line("b.jar", "b"), ""},
		"one more":   {line("a.jar", "a"), "b.jar is not expected"},
		"one fewer":  {line("a.jar", "a") + line("b.jar", "b") + line("c.jar", "c"), "c.jar is missing"},
		"another":    {line("a.jar", "a") + line("b.jar", "c"), "b.jar is not the file"},
		"no sum":     {line("a.jar", "a") + "0  b.jar\n", "b.jar is not the file"},
		"not a list": {"a.jar\n", "a line of the sums"},
	} {
		err := compareSums(dir, test.kept)
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: error %v, want %q", name, err, test.want)
		}
	}
}

// What a broker is made of is written down, file by file.
func TestSumsAreThoseOfTheVersion(t *testing.T) {
	pom, err := os.ReadFile("../components/kafka/pom.xml")
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile("../components/kafka/jars.sha256")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(pom), "<artifactId>kafka_2.13</artifactId>")
	_, rest, _ = strings.Cut(rest, "<version>")
	version, _, _ := strings.Cut(rest, "</version>")
	if jar := "  kafka_2.13-" + version + ".jar\n"; !strings.Contains(string(sums), jar) {
		t.Errorf("jars.sha256 has no line for %s: see README.md there", strings.TrimSpace(jar))
	}
}
