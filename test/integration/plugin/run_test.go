package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"

	"github.com/creack/pty"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/bergctf/berg-operator/test/lib/limits"
)

// result is the output and the exit code of the program.
type result struct {
	out, err string
	code     int
}

// environment returns the environment of the program, without TERM.
func environment(more ...string) []string {
	return append([]string{"HOME=" + os.Getenv("HOME"), "PATH=" + os.Getenv("PATH"), "KUBECONFIG=" + kubeconfig}, more...)
}

// run runs the program in pipes.
func run(ctx context.Context, args ...string) result {
	GinkgoHelper()
	return feed(ctx, "", args...)
}

// feed runs the program with a standard input.
func feed(ctx context.Context, in string, args ...string) result {
	GinkgoHelper()
	command := exec.CommandContext(ctx, program, args...)
	command.Env = environment()
	command.Stdin = strings.NewReader(in)
	var out, err bytes.Buffer
	command.Stdout, command.Stderr = &out, &err
	failed := command.Run()
	var exit *exec.ExitError
	if failed != nil && !errors.As(failed, &exit) {
		Expect(failed).NotTo(HaveOccurred())
	}
	r := result{out.String(), err.String(), command.ProcessState.ExitCode()}
	GinkgoWriter.Printf("$ kubectl berg %s\n%s%s(%d)\n", strings.Join(args, " "), r.out, r.err, r.code)
	return r
}

// decode reads JSON.
func decode[T any](text string) T {
	GinkgoHelper()
	var v T
	Expect(json.Unmarshal([]byte(text), &v)).To(Succeed(), text)
	return v
}

// terminal is the program in a pseudo-terminal.
type terminal struct {
	command *exec.Cmd
	file    *os.File
	mu      sync.Mutex
	text    bytes.Buffer
	done    chan struct{}
}

// inTerminal starts the program in a terminal with a number of columns.
func inTerminal(ctx context.Context, columns uint16, env []string, args ...string) *terminal {
	GinkgoHelper()
	command := exec.CommandContext(ctx, program, args...)
	command.Env = environment(append([]string{"TERM=xterm-256color"}, env...)...)
	file, err := pty.StartWithSize(command, &pty.Winsize{Rows: 24, Cols: columns})
	Expect(err).NotTo(HaveOccurred())
	t := &terminal{command: command, file: file, done: make(chan struct{})}
	go func() {
		defer close(t.done)
		buffer := make([]byte, 4096)
		for {
			n, err := file.Read(buffer)
			t.mu.Lock()
			t.text.Write(buffer[:n])
			t.mu.Unlock()
			if err != nil { // EIO after the end of the program
				return
			}
		}
	}()
	DeferCleanup(func() {
		_ = file.Close()
		_ = command.Process.Kill()
	})
	return t
}

// Text returns the output so far.
func (t *terminal) Text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}

// Type types text.
func (t *terminal) Type(text string) {
	GinkgoHelper()
	_, err := io.WriteString(t.file, text)
	Expect(err).NotTo(HaveOccurred())
}

// Resize changes the number of columns.
func (t *terminal) Resize(columns uint16) {
	GinkgoHelper()
	Expect(pty.Setsize(t.file, &pty.Winsize{Rows: 24, Cols: columns})).To(Succeed())
}

// Code waits for the end of the program and returns its exit code.
func (t *terminal) Code() int {
	GinkgoHelper()
	Eventually(t.done).WithTimeout(limits.Wait).Should(BeClosed(), t.Text)
	var exit *exec.ExitError
	if err := t.command.Wait(); err != nil && !errors.As(err, &exit) {
		Expect(err).NotTo(HaveOccurred())
	}
	if status, ok := t.command.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	GinkgoWriter.Printf("%q\n", t.Text())
	return t.command.ProcessState.ExitCode()
}
