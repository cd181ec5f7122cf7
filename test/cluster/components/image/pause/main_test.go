package main

import (
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"
)

func TestEndsOnSignal(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		// Caught here as well: a signal that arrives before main listens must not end the test.
		caught := make(chan os.Signal, 1)
		signal.Notify(caught, sig)
		ended := make(chan struct{})
		go func() {
			main()
			close(ended)
		}()

		deadline := time.After(time.Minute)
		again := time.NewTicker(10 * time.Millisecond)
		for running := true; running; {
			select {
			case <-ended:
				running = false
			case <-again.C:
				if err := syscall.Kill(os.Getpid(), sig); err != nil {
					t.Fatal(err)
				}
			case <-deadline:
				t.Fatalf("still running after %v", sig)
			}
		}
		again.Stop()
		signal.Stop(caught)
	}
}

func TestReapCollectsEveryChild(t *testing.T) {
	ended := make(chan os.Signal, 8)
	signal.Notify(ended, syscall.SIGCHLD)
	defer signal.Stop(ended)

	const children = 3
	for range children {
		if _, err := syscall.ForkExec("/proc/self/exe", []string{"child", "-test.run=^$"}, nil); err != nil {
			t.Fatal(err)
		}
	}
	deadline := time.After(time.Minute)
	for reaped := 0; reaped < children; {
		select {
		case <-ended:
			reaped += reap()
		case <-deadline:
			t.Fatalf("%d children reaped, want %d", reaped, children)
		}
	}
}
