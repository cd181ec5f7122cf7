package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// syscallZero asks whether a process is there, without doing anything to it.
const syscallZero = syscall.Signal(0)

// startProcess starts a program that waits until it is ended.
func startProcess(t *testing.T, environment ...string) *exec.Cmd {
	t.Helper()
	command := exec.Command("cat")
	command.Env = append([]string{"PATH=" + os.Getenv("PATH")}, environment...)
	input, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = command.Wait() }()
	t.Cleanup(func() { input.Close() })
	return command
}

func writePID(t *testing.T, state string, pid int) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(state, "operator.pid"), []byte(strconv.Itoa(pid)), 0o600); err != nil {
		t.Fatal(err)
	}
}
