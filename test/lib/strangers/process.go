package strangers

import (
	"os"
	"os/exec"
	"syscall"
)

// Command returns a command that runs this program with other arguments, as attackers do: it only gets CPUs that nothing else wants,
// because attackers usually have machines of their own, and ends with this program.
func Command(args ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	command := exec.Command("chrt", append([]string{"-i", "0", self}, args...)...)
	command.Stderr = os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return command, nil
}
