package isolation

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Command is the argument that makes the operator's program the probe. It is
// meant for the pods of the check alone.
const Command = "isolation-probe"

const dialTimeout = 1500 * time.Millisecond

// Probe runs the probe and returns its exit code. With an address it reports whether a connection
// can be made; without, it waits for SIGTERM.
func Probe(args []string, stderr io.Writer) int {
	if len(args) == 0 {
		asked := make(chan os.Signal, 1)
		signal.Notify(asked, os.Interrupt, syscall.SIGTERM)
		<-asked
		return 0
	}
	connection, err := net.DialTimeout("tcp", args[0], dialTimeout)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	_ = connection.Close()
	return 0
}
