// Command pause holds the namespaces of a pod: it sleeps, reaps children that were left to it, and
// exits immediately on SIGTERM or SIGINT.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGCHLD)
	// Children may have ended before Notify: their signal was not seen.
	reap()
	for received := range signals {
		if received != syscall.SIGCHLD {
			return
		}
		reap()
	}
}

// reap collects every child that has ended and returns how many there were. One SIGCHLD may stand
// for several children, since pending signals of one kind are merged.
func reap() int {
	for count := 0; ; {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil || pid <= 0:
			return count
		default:
			count++
		}
	}
}
