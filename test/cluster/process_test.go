package main

import (
	"os/exec"
	"testing"
)

func TestAProcessIsFoundWhileItsProgramIsLoaded(t *testing.T) {
	dir := t.TempDir()
	// A shell without an environment becomes a component.
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "sleep 0.2; "+markCluster+"="+dir+" "+markComponent+"=late exec sleep 60")
	cmd.Dir, cmd.Env = dir, []string{}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	found, err := processes(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != 1 || found[0].pid != cmd.Process.Pid || found[0].component != "late" {
		t.Errorf("found %v, not process %d", found, cmd.Process.Pid)
	}
}

func TestAProcessWithoutAnEnvironmentIsNobodys(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "sleep", "60")
	cmd.Dir, cmd.Env = dir, []string{}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	if found, err := processes(dir); err != nil || len(found) > 0 {
		t.Errorf("found %v, %v", found, err)
	}
}
