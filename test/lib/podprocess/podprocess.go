// Package podprocess ends processes of pods whose node is this machine.
package podprocess

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"k8s.io/apimachinery/pkg/types"
)

// Kill ends the processes of a program in a pod as a crash does, without a signal that they could handle, and returns how many there were.
// The control groups of processes name their pods.
func Kill(pod types.UID, program string) (killed int, err error) {
	groups, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		return 0, err
	}
	for _, file := range groups {
		group, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(group, []byte(pod)) { // a process may end at any time
			continue
		}
		process := filepath.Dir(file)
		if command, err := os.ReadFile(filepath.Join(process, "cmdline")); err != nil || !bytes.HasPrefix(command, []byte(program+"\x00")) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(process))
		if err != nil {
			return killed, err
		}
		switch err := syscall.Kill(pid, syscall.SIGKILL); {
		case err == nil:
			killed++
		case !errors.Is(err, syscall.ESRCH):
			return killed, err
		}
	}
	return killed, nil
}
