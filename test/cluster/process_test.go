package main

import (
	"os/exec"
	"testing"
)

func TestAProcessIsFoundWhileItsProgramIsLoaded(t *testing.T) {
	dir := t.TempDir()
	// A shell without an environment becomes a component.
	pid := startBare(t, dir, "sh", "-c", "sleep 0.2; "+markCluster+"="+dir+" "+markComponent+"=late exec sleep 60")
	found, err := processes(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != 1 || found[0].pid != pid || found[0].component != "late" {
		t.Errorf("found %v, not process %d", found, pid)
	}
}

func TestAProcessWithoutAnEnvironmentIsNobodys(t *testing.T) {
	dir := t.TempDir()
	startBare(t, dir, "sleep", "60")
	if found, err := processes(dir); err != nil || len(found) > 0 {
		t.Errorf("found %v, %v", found, err)
	}
}

// startBare starts a program that works in a directory and has no environment. It ends with the test.
func startBare(t *testing.T, dir, program string, args ...string) (pid int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir, cmd.Env = dir, []string{}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}
