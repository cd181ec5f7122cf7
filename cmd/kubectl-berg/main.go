// kubectl-berg is a kubectl plugin for people who run an event: kubectl berg.
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

// duplicateWindow is the time in which a second signal counts as the first one.
const duplicateWindow = 500 * time.Millisecond

// version is set by the linker.
var version = "v0.0.0-dev"

func main() {
	klog.SetLogger(logr.Discard()) // the log of client-go is not for users
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		// A second Ctrl-C kills the program. A terminal and a shell may both send a signal for the
		// first one.
		<-ctx.Done()
		<-time.After(duplicateWindow)
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
