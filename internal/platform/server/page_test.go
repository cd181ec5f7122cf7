package server

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/bergctf/berg-operator/internal/kit/settings"
)

var update = flag.Bool("update", false, "write the table of settings into docs/platform-api.md")

// The page shows the table that the API reads: run with -update to write it.
func TestPageShowsTheSettings(t *testing.T) {
	const file, first, last = "../../../docs/platform-api.md", "<!-- api-settings:begin -->\n", "<!-- api-settings:end -->"
	var want strings.Builder
	want.WriteString("| variable | default | what it does |\n| --- | --- | --- |\n")
	for _, s := range new(Config).Section().Settings {
		value := "empty"
		if s.Default != "" {
			value = "`" + s.Default + "`"
		}
		fmt.Fprintf(&want, "| `%s` | %s | %s |\n", s.Name, value, s.Help)
	}
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(page), first)
	got, after, closed := strings.Cut(rest, last)
	switch {
	case !ok || !closed:
		t.Fatalf("%s has no place for the settings", file)
	case got == want.String():
	case *update:
		if err := os.WriteFile(file, []byte(before+first+want.String()+last+after), 0o600); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s differs from the settings: run go test ./internal/platform/server -update", file)
	}
}

// The page lists exactly the metrics that the API registers.
func TestPageListsTheMetrics(t *testing.T) {
	page, err := os.ReadFile("../../../docs/platform-api.md")
	if err != nil {
		t.Fatal(err)
	}
	m := newMetrics()
	m.served("rctf", "status", 200, time.Second)
	families, err := m.registry.Gather()
	if err != nil || len(families) == 0 {
		t.Fatalf("%d metrics, error %v", len(families), err)
	}
	for _, f := range families {
		if !strings.Contains(string(page), "| `"+f.GetName()+"` |") {
			t.Errorf("the page does not list %s", f.GetName())
		}
	}
	if listed := strings.Count(string(page), "| `berg_api_"); listed != len(families) {
		t.Errorf("the page lists %d metrics, not %d", listed, len(families))
	}
}

func load(env map[string]string) (Config, error) {
	var c Config
	_, err := settings.Load("", []settings.Section{c.Section()}, nil, func(name string) string { return env[name] }, io.Discard)
	return c, err
}

func TestSettings(t *testing.T) {
	if _, err := load(nil); err != nil {
		t.Errorf("the defaults: %v", err)
	}
	for name, value := range map[string]string{
		"BIND_ADDRESS": "8080", "METRICS_BIND_ADDRESS": "x", "PLATFORM_NAMESPACE": "A_B", "TOKEN_SECRET": "A B", "POD_NAMESPACE": "a.b",
		"CERT_DIR": "certs", "BOOT_WAIT": "0s", "READ_WAIT": "soon", "SOURCE_RATE": "0", "RATE": "0", "MAX_CONNECTIONS": "1",
		"ADDITIONAL_POLICY": "maybe", "SOURCE_URL": "https://ctf.example.com/teams", "LEASE_NAME": "A B", "OPERATOR_DEPLOYMENT": "A B",
	} {
		if _, err := load(map[string]string{name: value}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s=%s: %v", name, value, err)
		}
	}
	if _, err := load(map[string]string{"PLATFORM_NAMESPACE": ","}); err == nil {
		t.Error("no namespace is accepted")
	}
}

func TestLimits(t *testing.T) {
	now := time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)
	l := newLimits(1000, 2)
	for n, want := range []bool{true, true, true, true, false} {
		if got := l.write(now, "7"); got != want {
			t.Errorf("write %d of source 7: %t", n, got)
		}
	}
	if !l.write(now, "8") {
		t.Error("source 8 has to wait for source 7")
	}
	if !l.write(now.Add(time.Second), "7") {
		t.Error("source 7 may not write a second later")
	}
	for n := range 3 * maxSources {
		l.write(now, fmt.Sprint(n))
	}
	if len(l.sources) > maxSources {
		t.Errorf("%d sources are remembered", len(l.sources))
	}
}
