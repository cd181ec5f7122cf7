package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bergctf/berg-operator/test/samples/images/solve"
)

// The three programs of the shop run as they do in their containers, only that they share a host: a
// loopback address that belongs to this test alone.
func TestShopIsSolved(t *testing.T) {
	const flag = `flag{a & b "c" 100%} ü`
	dir := t.TempDir()
	build := exec.Command("go", "build", "-o", dir+"/", "./shop-web", "./shop-database", "./shop-bot")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, output)
	}
	host := fmt.Sprintf("127.%d.%d.1", 1+os.Getpid()>>8&0x7f, os.Getpid()&0xff)
	environment := []string{
		"LISTEN_HOST=" + host,
		"DATABASE_ENDPOINT=" + net.JoinHostPort(host, "5555"),
		"STOREFRONT_ENDPOINT=" + net.JoinHostPort(host, "8000"),
		"FLAG=" + flag,
		"VISIT_INTERVAL=100ms",
	}

	// The bot and the web come first: they have to tolerate that what they need is not there yet.
	bot := start(t, filepath.Join(dir, "shop-bot"), environment)
	start(t, filepath.Join(dir, "shop-web"), environment)
	base := "http://" + net.JoinHostPort(host, "8080")
	waitForStatus(t, base+"/healthz", http.StatusServiceUnavailable)
	start(t, filepath.Join(dir, "shop-database"), environment)
	waitForStatus(t, base+"/healthz", http.StatusOK)

	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	got, err := solve.Shop(ctx, http.DefaultClient, base)
	if err != nil || got != flag {
		t.Errorf("flag %q (%v), want %q", got, err, flag)
	}
	if output := bot.stop(); strings.Contains(output, "flag{") {
		t.Errorf("the bot printed its secret:\n%s", output)
	}
}

type program struct {
	command *exec.Cmd
	output  *bytes.Buffer
	cancel  context.CancelFunc
	ended   bool
}

// start runs a program until the end of the test, or until stop.
func start(t *testing.T, path string, environment []string) *program {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	command := exec.CommandContext(ctx, path)
	command.Env = environment
	// A graceful end: the programs promise to stop on it.
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = 5 * time.Second
	p := &program{command: command, output: &bytes.Buffer{}, cancel: cancel}
	command.Stdout, command.Stderr = p.output, p.output
	if err := command.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		output := p.stop()
		if state := command.ProcessState; !state.Success() {
			t.Errorf("%s: %s\n%s", filepath.Base(path), state, output)
		}
	})
	return p
}

func (p *program) stop() string {
	if !p.ended {
		p.ended = true
		p.cancel()
		// The exit code is looked at in the clean-up; after a cancellation Wait reports that instead.
		_ = p.command.Wait()
	}
	return p.output.String()
}

func waitForStatus(t *testing.T, address string, want int) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		var last string
		response, err := http.Get(address)
		if err == nil {
			response.Body.Close()
			if response.StatusCode == want {
				return
			}
			last = response.Status
		} else {
			last = err.Error()
		}
		select {
		case <-again.C:
		case <-deadline:
			t.Fatalf("%s: %s, want %d", address, last, want)
		}
	}
}
