package main

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// environment returns variables as the operator sets them.
func environment(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

func TestPlayWeb(t *testing.T) {
	pages := http.NewServeMux()
	pages.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<h1>The Mountain Herald</h1>") })
	pages.HandleFunc("/article", func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Query().Get("name"), "flag.txt") {
			fmt.Fprintln(w, "flag{herald}")
		}
	})
	server := httptest.NewServer(pages)
	defer server.Close()
	flag, err := play(context.Background(), environment("CHALLENGE", "web", "WEB_URL", server.URL))
	if err != nil || flag != "flag{herald}" {
		t.Errorf("%q, %v", flag, err)
	}
}

func TestConfiguredAuthorityIsTrusted(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<h1>The Mountain Herald</h1>") }))
	defer server.Close()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	for more, believed := range map[string]bool{string(authority): true, "": false} {
		visits, err := visitor(more)
		if err != nil {
			t.Fatal(err)
		}
		if err := shows(context.Background(), visits, server.URL, "Herald"); (err == nil) != believed {
			t.Errorf("believed %t: %v", believed, err)
		}
	}
	if _, err := visitor("no certificate"); err == nil {
		t.Error("what is no certificate is taken for one")
	}
}

func TestWhoIsNotTheChallengeIsNotReached(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "404 page not found") }))
	defer other.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closedPort := listener.Addr().String()
	listener.Close()
	for name, env := range map[string]func(string) string{
		"another page":      environment("CHALLENGE", "web", "WEB_URL", other.URL),
		"another shop":      environment("CHALLENGE", "shop", "SHOP_URL", other.URL),
		"no listener":       environment("CHALLENGE", "pwn", "KIOSK_ENDPOINT", closedPort),
		"no address is set": environment("CHALLENGE", "shop"),
	} {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		if _, err := play(ctx, env); !errors.Is(err, errUnreachable) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
	if _, err := play(context.Background(), environment()); err == nil || errors.Is(err, errUnreachable) {
		t.Errorf("no challenge: %v", err)
	}
}
