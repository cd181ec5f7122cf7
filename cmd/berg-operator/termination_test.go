package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestMain lets the test's own program be the operator.
func TestMain(m *testing.M) {
	if os.Getenv("BE_THE_OPERATOR") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// All errors are in the termination log, and nothing is started: there is no API server,
// which would be another error.
func TestInvalidConfigurationIsReported(t *testing.T) {
	file := filepath.Join(t.TempDir(), "termination-log")
	if err := os.WriteFile(file, []byte("of an earlier run"), 0o600); err != nil {
		t.Fatal(err)
	}
	program := exec.CommandContext(t.Context(), os.Args[0])
	program.WaitDelay = time.Second
	program.Env = append(os.Environ(), "BE_THE_OPERATOR=1", "TERMINATION_LOG="+file, "KUBECONFIG=/nowhere",
		"CHALLENGE_DOMAIN=-wrong", "CHALLENGE_HTTP_PORT=http", "CHALLENGE_MAX_LIFETIME=soon")
	var errout bytes.Buffer
	program.Stderr = &errout
	err := program.Run()
	if exit := (&exec.ExitError{}); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Fatalf("ended with %v, want exit code 1; it said:\n%s", err, errout.String())
	}
	logged, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(logged, errout.Bytes()) {
		t.Errorf("the termination log says\n%s\nstandard error\n%s", logged, errout.String())
	}
	for _, name := range []string{"CHALLENGE_DOMAIN=", "CHALLENGE_HTTP_PORT=", "CHALLENGE_MAX_LIFETIME="} {
		if !strings.Contains(string(logged), name) {
			t.Errorf("%s is not named in:\n%s", name, logged)
		}
	}
}

func TestTerminationLogIsNotCreated(t *testing.T) {
	file := filepath.Join(t.TempDir(), "termination-log")
	writeTerminationLog(file, errors.New("reason"))
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file exists, or: %v", err)
	}
}

func TestShorten(t *testing.T) {
	lines := strings.Repeat("a line of text\n", 1000)
	if got := shorten(lines, 100); len(got) > 100 || !strings.HasPrefix(got, "a line") || !strings.HasSuffix(got, "text\n... (the log has the rest)\n") {
		t.Errorf("got %q", got)
	}
	if got := shorten("short\n", 100); got != "short\n" {
		t.Errorf("got %q", got)
	}
	if got := shorten(strings.Repeat("x", 200), 100); len(got) > 100 {
		t.Errorf("got %q", got)
	}
}
