// kubectl-berg is a plugin of kubectl for those who run an event: kubectl berg.
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/bergctf/berg-operator/cmd/kubectl-berg/command"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
)

// echo is within which time a second signal is taken for the first.
const echo = 500 * time.Millisecond

// version is set by the linker.
var version = "v0.0.0-dev"

func main() {
	klog.SetLogger(logr.Discard()) // client-go has nothing to say to people
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		// The second Ctrl-C ends the program at once. One that a terminal and a shell both pass on
		// is one.
		<-ctx.Done()
		<-time.After(echo)
		stop()
	}()
	out := console.New(os.Stdin, os.Stdout, os.Stderr, os.Getenv)
	err := command.Execute(ctx, out, version)
	var known *console.Error
	if err != nil && (!errors.As(err, &known) || !known.Silent) {
		out.Notef("%s %s", out.PaintErr(console.Red, "error:"), console.OneLine(err.Error()))
	}
	os.Exit(console.Code(err))
}
