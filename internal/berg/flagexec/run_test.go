package flagexec_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/quick"
	"time"

	"github.com/bergctf/berg-operator/internal/berg/flagexec"
)

func TestProgramPrintsFlagsOfEveryLength(t *testing.T) {
	step := 1
	if testing.Short() {
		step = 37
	}
	for length := 1; length <= flagexec.MaxFlagLength; length += step {
		flag := textFlag(length, 0)
		runAndCompare(t, build(t, flag, seedNumber(length)), flag)
	}
	largest := textFlag(flagexec.MaxFlagLength, 1)
	runAndCompare(t, build(t, largest, nil), largest)
}

func TestProgramPrintsAnyBytes(t *testing.T) {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	flags := []string{
		string(every),
		strings.Repeat(string(every), 4),
		"berg{grüezi-ça-va-già-ポケット-🏔️-\u0000-\U0010ffff}",
		"flag with spaces and\nnew lines\r\n",
		strings.Repeat("A", 1024),
		strings.Repeat("\x00", 1024),
		"%s%n$(id)`id`\\x41",
	}
	for _, b := range every {
		flags = append(flags, string([]byte{b}))
	}
	for i, flag := range flags {
		runAndCompare(t, build(t, flag, seedNumber(i)), flag)
	}
}

func TestProgramPrintsUnderEverySeed(t *testing.T) {
	const flag = "flag{every seed gives another key and other offsets}"
	seeds := 500
	if testing.Short() {
		seeds = 50
	}
	for i := range seeds {
		runAndCompare(t, build(t, flag, seedNumber(i)), flag)
	}
}

func TestProgramProperty(t *testing.T) {
	property := func(flag, seed []byte) bool {
		if len(flag) == 0 {
			flag = []byte{0}
		}
		flag = flag[:min(len(flag), flagexec.MaxFlagLength)]
		image := build(t, string(flag), seed)
		checkForm(t, image)
		runAndCompare(t, image, string(flag))
		return !t.Failed()
	}
	if err := quick.Check(property, &quick.Config{MaxCount: 100}); err != nil {
		t.Error(err)
	}
}

// The pods' own case: a ConfigMap volume with mode 0111, and a challenge that
// does not run as root.
func TestProgramRunsForUsersWhoCannotReadIt(t *testing.T) {
	needsTarget(t)
	if os.Geteuid() != 0 {
		t.Skip("changing to another user needs root")
	}
	const unprivileged = 65534
	const flag = "flag{execute only}"
	directory, err := os.MkdirTemp("", "flagexec") //nolint:usetesting // The parents of t.TempDir are closed to other users.
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(directory); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(directory, 0o711); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(directory, "get_flag")
	writeExecutable(t, file, build(t, flag, []byte("seed")), 0o111)
	runUnprivileged := func(name string, args ...string) ([]byte, error) {
		command := exec.Command(name, args...)
		command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: unprivileged, Gid: unprivileged}}
		return command.Output()
	}

	out, err := runUnprivileged(file)
	if err != nil || string(out) != flag {
		t.Errorf("run by an unprivileged user: printed %q, error %v, want %q", out, err, flag)
	}
	if out, err := runUnprivileged("cat", file); err == nil {
		t.Errorf("an unprivileged user could read %d bytes of the file", len(out))
	}
}

func TestProgramFailsWhenTheFlagCannotBeWritten(t *testing.T) {
	file := executable(t, build(t, "flag{unheard}", []byte("seed")))
	ctx, cancel := context.WithTimeout(context.Background(), runLimit)
	defer cancel()

	t.Run("closed standard output", func(t *testing.T) {
		err := exec.CommandContext(ctx, "/bin/sh", "-c", `exec "$0" >&-`, file).Run()
		wantExit(t, err, 1)
	})
	t.Run("full device", func(t *testing.T) {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Skipf("no device that is always full: %v", err)
		}
		defer full.Close()
		command := exec.CommandContext(ctx, file)
		command.Stdout = full
		wantExit(t, command.Run(), 1)
	})
	t.Run("read-only standard output", func(t *testing.T) {
		null, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer null.Close()
		command := exec.CommandContext(ctx, file)
		command.Stdout = null
		wantExit(t, command.Run(), 1)
	})
	t.Run("reader gone", func(t *testing.T) {
		reader, writer, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer writer.Close()
		if err := reader.Close(); err != nil {
			t.Fatal(err)
		}
		command := exec.CommandContext(ctx, file)
		command.Stdout = writer
		if err := command.Run(); err == nil {
			t.Error("exited 0 although no process could read the flag")
		}
	})
}

// FuzzBuild runs every program it makes.
func FuzzBuild(f *testing.F) {
	f.Add([]byte("flag{seed corpus}"), []byte("seed"))
	f.Fuzz(func(t *testing.T, flag, seed []byte) {
		image, err := flagexec.Build(string(flag), seed)
		if len(flag) == 0 || len(flag) > flagexec.MaxFlagLength {
			if err == nil || image != nil {
				t.Fatalf("Build of a flag of %d bytes: %d bytes, error %v, want only an error", len(flag), len(image), err)
			}
			return
		}
		if err != nil {
			t.Fatalf("Build of a flag of %d bytes: %v", len(flag), err)
		}
		checkForm(t, image)
		runAndCompare(t, image, string(flag))
	})
}

// runLimit is far above the millisecond that a program takes.
const runLimit = 20 * time.Second

// needsTarget skips where the program cannot run.
func needsTarget(t testing.TB) {
	t.Helper()
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skipf("the program is for linux/amd64, this is %s/%s", runtime.GOOS, runtime.GOARCH)
	}
}

func runAndCompare(t testing.TB, image []byte, flag string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	// A broken loop in the program must end the test, not outlive it.
	ctx, cancel := context.WithTimeout(context.Background(), runLimit)
	defer cancel()
	command := exec.CommandContext(ctx, executable(t, image))
	command.Stdout, command.Stderr = &stdout, &stderr
	// With an empty environment the stack starts elsewhere than in a shell.
	command.Env = []string{}
	if err := command.Run(); err != nil {
		t.Fatalf("flag of %d bytes: %v", len(flag), err)
	}
	if stdout.String() != flag {
		t.Fatalf("flag of %d bytes: printed %q, want %q", len(flag), stdout.String(), flag)
	}
	if stderr.Len() != 0 {
		t.Errorf("flag of %d bytes: wrote %q to standard error", len(flag), stderr.String())
	}
}

// executable writes the image to a file that may be run.
func executable(t testing.TB, image []byte) string {
	t.Helper()
	needsTarget(t)
	file := filepath.Join(t.TempDir(), "flag")
	writeExecutable(t, file, image, 0o755)
	return file
}

// writeExecutable holds off forks until the file is closed: a child forked in
// between inherits the open descriptor, and exec then fails with ETXTBSY
// (golang.org/issue/22315).
func writeExecutable(t testing.TB, file string, image []byte, mode os.FileMode) {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(file, image, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, mode); err != nil {
		t.Fatal(err)
	}
}

func wantExit(t *testing.T, err error, code int) {
	t.Helper()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != code {
		t.Errorf("ended with %v, want exit status %d", err, code)
	}
}
