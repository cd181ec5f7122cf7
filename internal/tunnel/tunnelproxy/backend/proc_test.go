package backend

import (
	"os/exec"
	"testing"
	"time"
)

func TestFindProcess(t *testing.T) {
	const argument = "--tls-dir=/tmp/a folder/of-this-test"
	if pid, _, err := findProcess(argument); err != nil || pid != 0 {
		t.Fatalf("before its start: %d, %v", pid, err)
	}
	cmd := exec.Command("sh", "-c", "sleep 60; :", "name", argument)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid, startedAt, err := findProcess(argument)
	if err != nil || pid != cmd.Process.Pid || time.Since(startedAt).Abs() > 3*time.Second {
		t.Errorf("process %d since %s, %v: want %d since now", pid, startedAt, err, cmd.Process.Pid)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if pid, _, err := findProcess(argument); err != nil || pid != 0 {
		t.Errorf("after its end: %d, %v", pid, err)
	}
}
