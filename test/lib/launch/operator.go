package launch

import (
	"os"
	"os/exec"
	"syscall"
	"time"
)

// Settings say how an operator is to run.
type Settings struct {
	Program    string // the path of what is run: see Build
	Kubeconfig string // the file that leads it to the API server: see WriteKubeconfig
	Namespace  string // where it keeps its lease
	// Env is what else is in its environment, name=value. What stands here counts, also for
	// what New would set itself.
	Env []string
	// Log is the file that takes what it says. Every process appends to it.
	Log string
}

// Operator is an operator that can be started. Its addresses are of this machine, as host:port; nothing
// listens there unless one of its processes runs.
type Operator struct {
	Settings

	Probes  string // of /healthz and /readyz, by http
	Metrics string // of /metrics, by https unless Env has METRICS_SECURE=false
}

// New chooses addresses for an operator. Nothing is started yet.
func New(s Settings) (*Operator, error) {
	o := &Operator{Settings: s}
	for _, address := range []*string{&o.Probes, &o.Metrics} {
		var err error
		if *address, err = FreeAddress(); err != nil {
			return nil, err
		}
	}
	return o, nil
}

func (o *Operator) environment() []string {
	env := []string{
		"KUBECONFIG=" + o.Kubeconfig, "POD_NAMESPACE=" + o.Namespace,
		"HEALTH_PROBE_BIND_ADDRESS=" + o.Probes, "METRICS_BIND_ADDRESS=" + o.Metrics, "WEBHOOK_BIND_ADDRESS=0",
	}
	return append(env, o.Env...)
}

// Start starts a process. Two at a time would want the same addresses.
func (o *Operator) Start() (*Process, error) {
	log, err := os.OpenFile(o.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the process has it by then
	command := exec.Command(o.Program)
	command.Env, command.Stdout, command.Stderr = o.environment(), log, log
	// The kernel kills the process when this one has ended.
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p := &Process{operator: o, command: command, exited: make(chan struct{}), Launched: time.Now()}
	if err := command.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.exited)
		_ = command.Wait() // the exit code is looked at where it matters
	}()
	return p, nil
}

// Text returns all that the processes said, or why it cannot be read.
func (o *Operator) Text() string {
	text, err := os.ReadFile(o.Log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Tail returns the last lines that the processes said, some 2,000 bytes, or why they cannot be
// read.
func (o *Operator) Tail() string {
	text := o.Text()
	return text[max(len(text)-2000, 0):]
}
