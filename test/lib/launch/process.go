package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// pollInterval is the time between two looks at a health endpoint.
const pollInterval = 20 * time.Millisecond

// Process is one run of an operator.
type Process struct {
	Launched time.Time // when it was started

	operator *Operator
	command  *exec.Cmd
	exited   chan struct{}
}

// PID is the number of the process.
func (p *Process) PID() int { return p.command.Process.Pid }

// Exited is closed when the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// ExitCode waits for the end and returns the code, -1 if a signal ended the process.
func (p *Process) ExitCode() int {
	<-p.exited
	return p.command.ProcessState.ExitCode()
}

// State waits for the end and says how it came, such as "exit status 1" or "signal: killed".
func (p *Process) State() string {
	<-p.exited
	return p.command.ProcessState.String()
}

// Signal sends a signal. The error is os.ErrProcessDone if the process has ended.
func (p *Process) Signal(s os.Signal) error { return p.command.Process.Signal(s) }

// Pause stops the process from running until Continue, as a machine does that has no time for
// it. It returns when all threads have stopped.
func (p *Process) Pause() error { return Pause(p.command.Process) }

// Pause sends SIGSTOP to a child of this process, and returns when all its threads have stopped: with the signal alone some
// still run on a busy machine.
func Pause(p *os.Process) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for {
		// WNOWAIT leaves the news, and the end of the process, to the caller of Wait.
		err := unix.Waitid(unix.P_PID, p.Pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// Continue lets a process run on that was paused.
func (p *Process) Continue() error { return p.Signal(syscall.SIGCONT) }

// Stop ends the process as Kubernetes would: it gets SIGTERM, and is killed if it has not ended
// after grace. That is an error, and so is an exit code other than 0.
func (p *Process) Stop(grace time.Duration) error {
	if err := p.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.exited:
	case <-timer.C:
		p.Kill()
		return fmt.Errorf("the operator does not end within %s", grace)
	}
	if code := p.ExitCode(); code != 0 {
		return fmt.Errorf("the operator ended with exit code %d\n%s", code, p.operator.Tail())
	}
	return nil
}

// Kill ends the process without a warning, also one that is paused or has ended, and returns
// when it is gone.
func (p *Process) Kill() {
	_ = p.Signal(syscall.SIGKILL) // an error says that it has ended
	<-p.exited
}

// Ready waits until the operator can serve. An error says that it has ended, or that ctx did,
// with the end of the log.
func (p *Process) Ready(ctx context.Context) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		if status, _ := p.operator.Probe(ctx, "/readyz"); status == http.StatusOK {
			return nil
		}
		select {
		case <-p.exited:
			return fmt.Errorf("the operator ended before it was ready: %s\n%s", p.State(), p.operator.Tail())
		case <-ctx.Done():
			return fmt.Errorf("the operator does not become ready: %w\n%s", context.Cause(ctx), p.operator.Tail())
		case <-ticker.C:
		}
	}
}

// client keeps no connection, so that a probe never meets one of a process that has ended.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// Probe asks a health endpoint such as /readyz and returns the status of HTTP and the text of
// the answer. Without an answer the status is 0 and the text empty.
func (o *Operator) Probe(ctx context.Context, path string) (status int, text string) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+o.Probes+path, nil)
	if err != nil {
		return 0, ""
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, ""
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, ""
	}
	return response.StatusCode, string(body)
}
