package tunnel

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bergctf/berg-operator/internal/config"
)

func TestParseVersion(t *testing.T) {
	for said, want := range map[string]string{
		"berg-tunnel version v0.1.0\n":          "v0.1.0",
		"berg-tunnel version v0.0.0-dev\n":      "v0.0.0-dev",
		"berg-tunnel version v0.1.0-rc.1+x-y_z": "v0.1.0-rc.1+x-y_z",
		"":                                      "",
		"v0.1.0":                                "",
		"berg-tunnel version v0.1.0 of today":   "",
		"berg-tunnel version a/b":               "",
		"berg-tunnel version " + strings.Repeat("1", 65): "",
	} {
		if got := parseVersion(said); got != want {
			t.Errorf("%q: %q, want %q", said, got, want)
		}
	}
}

func TestTheProgramTellsItsVersion(t *testing.T) {
	program := filepath.Join(t.TempDir(), "berg-tunnel")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n[ \"$*\" = --version ] && echo berg-tunnel version v1.2.3\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	r := &registry{config: config.Tunnel{Binary: program}}
	if got := r.version(t.Context()); got != "v1.2.3" {
		t.Errorf("%q", got)
	}
	r.config.Binary += "-missing"
	if got := r.version(t.Context()); got != "" {
		t.Errorf("of a program that is not there: %q", got)
	}
}

func TestPing(t *testing.T) {
	code := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
		w.WriteHeader(code)
	}))
	r := &registry{config: config.Tunnel{Registry: strings.TrimPrefix(server.URL, "http://"), Repository: "proxy", RegistryInsecure: true}}
	for status, answers := range map[int]bool{http.StatusOK: true, http.StatusUnauthorized: true, http.StatusBadGateway: false} {
		code = status
		if err := r.Ping(t.Context()); (err == nil) != answers {
			t.Errorf("%d: %v", status, err)
		}
	}
	server.Close()
	if r.Ping(t.Context()) == nil {
		t.Error("a registry that does not exist answers")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r.Ping(ctx) == nil {
		t.Error("the answer was not waited for")
	}
	// The build reports what is wrong with the settings.
	r.config.Repository = "Not A Repository"
	if err := r.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}
