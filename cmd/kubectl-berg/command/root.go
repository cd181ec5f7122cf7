package command

import (
	"context"
	"time"

	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/bergctf/berg-operator/cmd/kubectl-berg/cluster"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
)

// root has the state that all commands share. output and retryTimeout are valid once a command runs. Follow and reads may call
// reportConnection concurrently.
type root struct {
	*console.Console
	flags   *genericclioptions.ConfigFlags
	version string
	clock   clock.WithTicker
	output  string
	// retryTimeout is the value of retryFlag, of all commands or of this one.
	retryTimeout time.Duration
}

const (
	retryFlag = "retry-timeout"
	retryHelp = "how long to retry while the API server does not answer"
)

// open prepares the connection to the API server. It sends no request: a wrong address is noticed by the first one.
func (r *root) open() (*cluster.Cluster, error) {
	c, err := cluster.Connect(r.flags, "kubectl-berg/"+r.version, r.clock, warnings{r.Console})
	if err == nil {
		c.RetryTimeout, c.Lost = r.retryTimeout, r.reportConnection
	}
	return c, cluster.Explain("read the kubeconfig", err)
}

// warnings shows the warnings of the API server.
type warnings struct{ console *console.Console }

var _ rest.WarningHandler = warnings{}

// HandleWarningHeader shows one.
func (w warnings) HandleWarningHeader(code int, _, text string) {
	if code == 299 && text != "" {
		w.console.Notef("%s %s", w.console.PaintErr(console.Yellow, "warning:"), console.OneLine(text))
	}
}

// reportConnection reports a lost connection, and with nil a restored one.
func (r *root) reportConnection(err error) {
	if err == nil {
		r.Notef("%s", r.PaintErr(console.Green, "connected again"))
		return
	}
	r.Notef("%s %s", r.PaintErr(console.Yellow, "no connection, retrying:"), console.OneLine(err.Error()))
}

// writeRows writes rows as JSON, as names or as a table; row returns the name and the cells of one.
func writeRows[T any](r *root, rows []T, none string, t *console.Table, row func(T) (string, []console.Cell)) error {
	if r.Format == console.JSON {
		return r.WriteJSON(rows)
	}
	lines := make([][]console.Cell, 0, len(rows))
	for _, each := range rows {
		name, cells := row(each)
		if r.Format == console.Name {
			r.Printf("%s\n", name)
		}
		lines = append(lines, cells)
	}
	switch {
	case r.Format == console.Name:
	case len(rows) == 0:
		r.Notef("%s", none)
	default:
		t.Write(lines...)
	}
	return nil
}

// problemError is the result of a command that did its work: an exit code if it found a problem.
func problemError(found bool) error {
	if found {
		return console.Silentf(console.ExitProblem, "a problem was found")
	}
	return nil
}

// symbol is a character in front of a line.
type symbol struct {
	text   string
	colour console.Colour
}

var (
	okSymbol      = symbol{"✓", console.Green}
	waitingSymbol = symbol{"…", console.Yellow}
	warningSymbol = symbol{"!", console.Yellow}
	problemSymbol = symbol{"✗", console.Red}
	unknownSymbol = symbol{"?", console.Faint}
)

// paintSymbol colours a symbol for standard output.
func (r *root) paintSymbol(s symbol) string { return r.Paint(s.colour, s.text) }

// untilCancelled runs a command that reads files, and returns when the program is asked to end: a read has no deadline. The
// goroutine is left behind then: it may still read, and the program ends.
func untilCancelled(ctx context.Context, run func() error) error {
	done := make(chan error, 1)
	go func() { done <- run() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return console.Silentf(console.ExitInterrupted, "interrupted")
	}
}
