package flagexec_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	sysWrite     = 1
	sysPoll      = 7
	sysExitGroup = 231
)

// The kernel writes 1 KiB to a pipe in one piece, so the cases a program must
// be ready for are played to it by a tracer.
func TestProgramFinishesInterruptedAndShortWrites(t *testing.T) {
	flag := textFlag(1000, 5)
	for name, answers := range map[string][]answer{
		"undisturbed":         {},
		"interrupted":         {fail(syscall.EINTR), fail(syscall.EINTR)},
		"short":               {short(1), short(1), short(7), short(500)},
		"short, interrupted":  {short(3), fail(syscall.EINTR), short(1), fail(syscall.EINTR)},
		"would block":         {fail(syscall.EAGAIN), short(10), fail(syscall.EAGAIN)},
		"one byte at a time":  repeat(short(1), 1000),
		"ends with one short": {short(999)},
	} {
		t.Run(name, func(t *testing.T) {
			for i := range 10 {
				traced := trace(t, build(t, flag, seedNumber(i)), answers)
				if traced.exit != 0 || traced.output != flag {
					t.Fatalf("seed %d: exit %d after %d bytes, want exit 0 and the flag", i, traced.exit, len(traced.output))
				}
				if strings.Contains(traced.stackAtEnd, flag[:8]) || strings.Contains(traced.stackAtEnd, flag[len(flag)-8:]) {
					t.Fatalf("seed %d: the flag is still on the stack at the end", i)
				}
				if want := countFailures(answers, syscall.EAGAIN); traced.polls != want {
					t.Fatalf("seed %d: waited %d times, want %d", i, traced.polls, want)
				}
			}
		})
	}
}

func TestProgramGivesUpOnErrors(t *testing.T) {
	flag := "flag{never finished}"
	for name, answers := range map[string][]answer{
		"input/output error":        {fail(syscall.EIO)},
		"error after a short write": {short(4), fail(syscall.ENOSPC)},
		"nothing taken":             {short(0)},
		"bad descriptor":            {fail(syscall.EBADF)},
	} {
		t.Run(name, func(t *testing.T) {
			traced := trace(t, build(t, flag, []byte("seed")), answers)
			if traced.exit != 1 {
				t.Errorf("exit %d, want 1", traced.exit)
			}
			if strings.Contains(traced.stackAtEnd, flag[:8]) {
				t.Error("the flag is still on the stack at the end")
			}
		})
	}
}

// A server makes its pipe non-blocking and the child inherits that.
func TestProgramWaitsForASlowReader(t *testing.T) {
	flag := textFlag(1024, 9)
	var pipe [2]int
	if err := syscall.Pipe2(pipe[:], syscall.O_NONBLOCK|syscall.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	reader := os.NewFile(uintptr(pipe[0]), "reader")
	defer reader.Close()
	filler := fillPipe(t, pipe[1])

	// Not os/exec: it switches the descriptors it passes on to blocking.
	file := executable(t, build(t, flag, []byte("seed")))
	pid, err := syscall.ForkExec(file, []string{file}, &syscall.ProcAttr{Files: []uintptr{0, uintptr(pipe[1]), 2}})
	if err != nil {
		t.Fatal(err)
	}
	overdue := time.AfterFunc(runLimit, func() { syscall.Kill(pid, syscall.SIGKILL) })
	defer overdue.Stop()
	if err := syscall.Close(pipe[1]); err != nil {
		t.Fatal(err)
	}
	awaitSyscall(t, pid, sysPoll)

	if err := reader.SetReadDeadline(time.Now().Add(runLimit)); err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(reader)
	if err != nil {
		t.Fatal(err)
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &status, 0, nil); err != nil {
		t.Fatal(err)
	}
	if status.ExitStatus() != 0 {
		t.Errorf("exit %d, want 0", status.ExitStatus())
	}
	if got := string(out[min(filler, len(out)):]); got != flag {
		t.Errorf("read %d bytes after the filler, want the flag of %d", len(got), len(flag))
	}
}

// fillPipe writes until the pipe takes not even one more byte.
func fillPipe(t *testing.T, pipe int) int {
	t.Helper()
	written := 0
	for _, size := range []int{4096, 1} {
		for {
			n, err := syscall.Write(pipe, make([]byte, size))
			if err == syscall.EAGAIN {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			written += n
		}
	}
	return written
}

// awaitSyscall returns when the process sleeps in that system call.
func awaitSyscall(t *testing.T, pid, number int) {
	t.Helper()
	want := fmt.Sprintf("%d ", number)
	last := ""
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(runLimit); time.Now().Before(deadline); <-ticker.C {
		current, err := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", pid))
		if os.IsNotExist(err) {
			t.Skip("this kernel does not show what a process waits for")
		}
		if err != nil {
			t.Fatal(err)
		}
		if last = string(current); strings.HasPrefix(last, want) {
			return
		}
	}
	t.Fatalf("the program does not sleep in system call %d but in %q", number, last)
}

// answer is what the tracer does with one call of write.
type answer struct {
	// limit is the most that the call may write, if no error is played.
	limit int
	errno syscall.Errno
}

func short(n int) answer              { return answer{limit: n} }
func fail(errno syscall.Errno) answer { return answer{errno: errno} }

func repeat(a answer, n int) []answer {
	answers := make([]answer, n)
	for i := range answers {
		answers[i] = a
	}
	return answers
}

func countFailures(answers []answer, errno syscall.Errno) int {
	n := 0
	for _, a := range answers {
		if a.errno == errno {
			n++
		}
	}
	return n
}

type traced struct {
	exit       int
	output     string
	polls      int
	stackAtEnd string
}

// trace runs the program, gives its writes the answers in order, and lets
// everything after them pass.
func trace(t *testing.T, image []byte, answers []answer) traced {
	t.Helper()
	file := executable(t, image)
	// The kernel takes ptrace requests only from the thread that started the
	// tracee.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	command := exec.Command(file)
	command.Stdout = writer
	command.SysProcAttr = &syscall.SysProcAttr{Ptrace: true, Pdeathsig: syscall.SIGKILL}
	err = command.Start()
	writer.Close()
	if err != nil {
		t.Skipf("this place does not let a test trace its child: %v", err)
	}
	pid := command.Process.Pid
	defer command.Process.Kill()
	overdue := time.AfterFunc(runLimit, func() { command.Process.Kill() })
	defer overdue.Stop()

	var result traced
	var status syscall.WaitStatus
	entering := true
	for {
		if _, err := syscall.Wait4(pid, &status, 0, nil); err != nil {
			t.Fatalf("wait: %v", err)
		}
		if status.Exited() || status.Signaled() {
			break
		}
		var registers syscall.PtraceRegs
		if err := syscall.PtraceGetRegs(pid, &registers); err != nil {
			t.Fatalf("registers: %v", err)
		}
		// The first stop is that of exec itself, before any call.
		if status.StopSignal() == syscall.SIGTRAP && registers.Orig_rax != ^uint64(0) && registers.Orig_rax != syscall.SYS_EXECVE {
			if entering {
				enter(t, pid, &registers, &answers, &result)
			} else {
				leave(t, pid, &registers, &answers)
			}
			entering = !entering
		}
		if err := syscall.PtraceSyscall(pid, 0); err != nil {
			t.Fatalf("continue: %v", err)
		}
	}
	if status.Signaled() {
		t.Fatalf("ended by signal %v", status.Signal())
	}
	result.exit = status.ExitStatus()
	output, err := io.ReadAll(reader)
	if err != nil {
		t.Fatal(err)
	}
	result.output = string(output)
	return result
}

func enter(t *testing.T, pid int, registers *syscall.PtraceRegs, answers *[]answer, result *traced) {
	t.Helper()
	switch registers.Orig_rax {
	case sysWrite:
		if len(*answers) == 0 {
			return
		}
		// A call with zero bytes replaces a failing one; leave sets the error.
		registers.Rdx = uint64((*answers)[0].limit)
		if err := syscall.PtraceSetRegs(pid, registers); err != nil {
			t.Fatal(err)
		}
	case sysPoll:
		result.polls++
	case sysExitGroup:
		stack := make([]byte, 4096)
		n, _ := syscall.PtracePeekData(pid, uintptr(registers.Rsp), stack)
		result.stackAtEnd = string(bytes.Clone(stack[:n]))
	default:
		t.Fatalf("the program made the system call %d", registers.Orig_rax)
	}
}

func leave(t *testing.T, pid int, registers *syscall.PtraceRegs, answers *[]answer) {
	t.Helper()
	if registers.Orig_rax != sysWrite || len(*answers) == 0 {
		return
	}
	if errno := (*answers)[0].errno; errno != 0 {
		registers.Rax = uint64(-int64(errno))
		if err := syscall.PtraceSetRegs(pid, registers); err != nil {
			t.Fatal(err)
		}
	}
	*answers = (*answers)[1:]
}
