package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bergctf/berg-operator/test/samples/images/solve"
)

func TestVisit(t *testing.T) {
	sold := func() ([]byte, error) { return []byte("flag{sold}"), nil }
	broken := func() ([]byte, error) { return []byte("flag{"), errors.New("exit status 1") }
	for name, test := range map[string]struct {
		input  string
		print  func() ([]byte, error)
		want   string
		refuse string
	}{
		"balance":             {"1\n4\n", sold, "You have 10000.", "flag"},
		"honest tickets":      {"2\n3\n1\n4\n", sold, "You have 2500.", "flag"},
		"more than one has":   {"2\n5\n1\n", sold, "You cannot pay for that.", "flag"},
		"golden and too poor": {"3\n", sold, "You are 999990000 short.", "flag"},
		"no number":           {"2\n-5\n2\nx\n1\n", sold, "You have 10000.", "flag"},
		"too large a number":  {"2\n3000000000\n1\n", sold, "A number from 1 to 2147483647", "flag"},
		"neither of them":     {"9\n", sold, "Please choose 1 to 4.", "flag"},
		"wrapped":             {"2\n1200000\n1\n", sold, "You have 1294977296.", "flag"},
		"golden":              {"2\n1200000\n3\n1\n", sold, "Here is your golden ticket: flag{sold}\n", "You have"},
		"printer is broken":   {"2\n1200000\n3\n", broken, "out of order", "flag{"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			visit(strings.NewReader(test.input), &out, test.print)
			if !strings.Contains(out.String(), test.want) || strings.Contains(out.String(), test.refuse) {
				t.Errorf("want %q and no %q in:\n%s", test.want, test.refuse, &out)
			}
		})
	}
}

func TestSolvedOverTheNetwork(t *testing.T) {
	const flag = "flag{it wraps\naround} ü"
	program := filepath.Join(t.TempDir(), "get_flag")
	if err := os.WriteFile(program, []byte("#!/bin/sh\nprintf %s '"+flag+"'\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		player, err := listener.Accept()
		if err != nil {
			return
		}
		defer player.Close()
		serve(context.Background(), player, program)
	}()

	got, err := solve.Pwn(t.Context(), listener.Addr().String())
	if err != nil || got != flag {
		t.Errorf("flag %q (%v), want %q", got, err, flag)
	}
}
