// berg-tunnel connects a container network to servers on a host. One program has both ends:
//
//	berg-tunnel expose        lets pods reach servers of this machine
//	berg-tunnel client        in the network: clients connect to it
//	berg-tunnel server        on the host: it dials the client proxy, and the servers
//	berg-tunnel control       calls a server proxy: prepare, delete, list, shutdown
//	berg-tunnel certificates  makes the certificates of a pair
//
// docs/tunnel/proxy.md is its manual. It lists the guarantees for controllers: flags, files, the line on standard output
// when it is ready, and exit codes.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/bergctf/berg-operator/cmd/berg-tunnel/command"
)

// version is set by the linker.
var version = "v0.0.0-dev"

func main() {
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as by nohup
		ends = append(ends, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	// expose removes its objects, even when nothing reads its output any more.
	signal.Ignore(syscall.SIGPIPE)
	go func() {
		// A second signal ends the program immediately.
		<-ctx.Done()
		stop()
	}()
	err := command.New(version, os.Stdout, os.Stderr).ExecuteContext(ctx)
	if err != nil {
		fmt.Fprintf(os.Stderr, "berg-tunnel: %v\n", err)
	}
	os.Exit(command.Code(err))
}
