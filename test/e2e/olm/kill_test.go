package olm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// killOperator ends every process of the operator as a crash of the machine does:
// without a signal that it could handle. The node is this machine, so its processes
// are to be seen in /proc; their control groups name the pods.
func killOperator(ctx context.Context) {
	GinkgoHelper()
	pods, err := world.operatorPods(ctx)
	Expect(err).NotTo(HaveOccurred())
	killed := 0
	for _, pod := range pods {
		groups, err := filepath.Glob("/proc/[0-9]*/cgroup")
		Expect(err).NotTo(HaveOccurred())
		for _, file := range groups {
			group, err := os.ReadFile(file)
			// A process may end while it is looked at.
			if err != nil || !bytes.Contains(group, []byte(pod.UID)) {
				continue
			}
			process := filepath.Dir(file)
			if command, err := os.ReadFile(filepath.Join(process, "cmdline")); err != nil || !bytes.HasPrefix(command, []byte("/manager\x00")) {
				continue
			}
			pid, err := strconv.Atoi(filepath.Base(process))
			Expect(err).NotTo(HaveOccurred())
			if err := syscall.Kill(pid, syscall.SIGKILL); !errors.Is(err, syscall.ESRCH) {
				Expect(err).NotTo(HaveOccurred())
				killed++
			}
		}
	}
	Expect(killed).NotTo(BeZero(), "no process of the operator was found in /proc")
}

// runsVersion is nil when a pod of this version has a process.
func runsVersion(ctx context.Context, version string) error {
	pods, err := world.operatorPods(ctx)
	if err != nil {
		return err
	}
	for _, pod := range pods {
		for _, c := range pod.Status.ContainerStatuses {
			if ofVersion(pod.Spec.Containers[0], version) && c.State.Running != nil {
				return nil
			}
		}
	}
	return fmt.Errorf("none of %d pods runs %s", len(pods), version)
}
