// Command pwn is the sample pwn challenge: a ticket kiosk on a raw TCP port that computes in 32 bits.
// A player who can pay for the golden ticket gets the output of the flag executable.
package main

import (
	"context"
	"net"
	"os"
	"os/exec"
	"time"

	"github.com/bergctf/berg-operator/test/samples/images/internal/toolbox"
)

const (
	port = "1337"
	// flagProgram is where the Challenge has the operator mount the flag; GET_FLAG names another.
	flagProgram    = "/usr/bin/get_flag"
	maxPlayers     = 64
	sessionTimeout = 5 * time.Minute
)

func main() {
	program := flagProgram
	if other := os.Getenv("GET_FLAG"); other != "" {
		program = other
	}
	toolbox.Main(func(ctx context.Context) error {
		return toolbox.ServeTCP(ctx, toolbox.Address(port), maxPlayers, func(ctx context.Context, player net.Conn) {
			serve(ctx, player, program)
		})
	})
}

// serve plays one session and ends it when the time is up.
func serve(ctx context.Context, player net.Conn, program string) {
	ctx, cancel := context.WithTimeout(ctx, sessionTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { player.Close() })
	defer stop()
	visit(player, player, func() ([]byte, error) { return exec.CommandContext(ctx, program).Output() })
}
