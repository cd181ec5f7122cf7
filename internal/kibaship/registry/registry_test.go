package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func parse(reference string) (name.Reference, error) { return name.ParseReference(reference) }

func TestLogins(t *testing.T) {
	logins, err := ParseLogins([]byte(`{"auths":{
		"https://index.docker.io/v1/": {"username": "hub", "password": "1"},
		"registry.example.org": {"auth": "YWxsOjI="},
		"registry.example.org/team": {"username": "team", "password": "3"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for image, want := range map[string]string{
		"nginx": "hub", "team/app": "hub", "registry.example.org/other/app": "all", "registry.example.org/team/app": "team",
		"registry.example.org/teams/app": "all", "registry.example.com/team/app": "",
	} {
		ref, err := parse(image)
		if err != nil {
			t.Fatal(err)
		}
		config, err := logins.For(ref.Context()).Authorization()
		if err != nil || config.Username != want {
			t.Errorf("%s: %q, %v, want %q", image, config.Username, err, want)
		}
	}
	for _, wrong := range []string{"", "password", `{}`, `{"auths":{"x":{"auth":"secret!"}}}`} {
		if _, err := ParseLogins([]byte(wrong)); err == nil || strings.Contains(err.Error(), "secret!") {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}

// A registry that an Application names may be anything, and what it says must not be shown.
func TestErrorsTellNothingOfTheAnswer(t *testing.T) {
	const secret = "internal-secret"
	for name, answer := range map[string]http.HandlerFunc{
		"a page":       func(w http.ResponseWriter, _ *http.Request) { http.Error(w, secret, http.StatusNotFound) },
		"another page": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, secret) },
		"a code": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			fmt.Fprintf(w, `{"errors":[{"code":%q,"message":%[1]q}]}`, secret)
		},
		"a realm beyond": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="http://`+secret+`.invalid/"`)
			w.WriteHeader(http.StatusUnauthorized)
		},
	} {
		server := httptest.NewServer(answer)
		ref, err := parse(strings.TrimPrefix(server.URL, "http://") + "/team/app" + ":1")
		if err != nil {
			t.Fatal(err)
		}
		through, err := Transport(nil, Nearby)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Resolve(context.Background(), ref, nil, through)
		if err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", name, err)
		}
		server.Close()
	}
}

func TestWhereTheOperatorGoes(t *testing.T) {
	for address, want := range map[string]bool{
		"93.184.216.34": true, "10.1.2.3": true, "192.168.1.1": true, "172.16.0.1": true, "100.64.0.1": true, "2001:db8::1": true, "fd00::1": true,
		"64:ff9b::a01:203": true,
		"127.0.0.1":        false, "127.8.8.8": false, "::1": false, "::ffff:127.0.0.1": false, "64:ff9b::7f00:1": false,
		"0.0.0.0": false, "::": false, "255.255.255.255": false, "224.0.0.1": false, "ff02::1": false,
		"169.254.169.254": false, "fe80::1": false, "fe80::1%eth0": false, "::ffff:169.254.169.254": false, "64:ff9b::a9fe:a9fe": false,
		// Metadata of clouds that is not link-local, and addresses of IPv4 in other notations of IPv6.
		"100.100.100.200": false, "168.63.129.16": false, "fd00:ec2::254": false, "0.1.2.3": false,
		"2002:a9fe:a9fe::1": false, "::ffff:0:127.0.0.1": false, "::127.0.0.1": false, "64:ff9b:1::7f00:1": false, "64:ff9b:1:a9fe:a9:fe00::": false,
		"2001:0:7f00:1::": false, "2001:db8::5efe:127.0.0.1": false, "2002:5db8:d822::1": true,
	} {
		if got := Public(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s: %v", address, got)
		}
	}
	for address, want := range map[string]bool{
		"93.184.216.34": true, "2001:db8::1": true, "64:ff9b::5db8:d822": true, "::ffff:93.184.216.34": true,
		"10.1.2.3": false, "192.168.1.1": false, "172.16.0.1": false, "100.64.0.1": false, "198.18.0.1": false, "fd00::1": false,
		"64:ff9b::a01:203": false, "::ffff:10.1.2.3": false, "127.0.0.1": false, "169.254.169.254": false, "fe80::1%eth0": false,
		"2002:a01:203::1": false, "2002:7f00:1::": false, "::ffff:0:10.1.2.3": false, "::10.1.2.3": false, "64:ff9b:1::a01:203": false,
		"2001:0:a01:203::": false, "2001:0:5db8:d822:0:0:f5fe:fdfc": false, "2001:db8::5efe:10.1.2.3": false, "168.63.129.16": false, "2002:5db8:d822::1": true,
	} {
		if got := Internet(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s, of a registry that is not listed: %v", address, got)
		}
	}
	undo := Exempt(netip.MustParsePrefix("127.0.0.1/32"))
	if !Public(netip.MustParseAddr("127.0.0.1")) || Public(netip.MustParseAddr("127.0.0.2")) {
		t.Error("an exemption is too small, or too large")
	}
	if undo(); Public(netip.MustParseAddr("127.0.0.1")) {
		t.Error("an exemption outlives its end")
	}
}

func TestForbiddenAddressesAreNotConnectedTo(t *testing.T) {
	through, err := Transport(nil, Public)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was asked") }))
	defer server.Close()
	_, port, _ := strings.Cut(strings.TrimPrefix(server.URL, "http://"), ":")
	for _, host := range []string{"169.254.169.254", "127.0.0.1:" + port, "localhost:" + port, "[::1]:" + port, "0.0.0.0:" + port} {
		ref, err := parse(host + "/team/app" + ":1")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Resolve(context.Background(), ref, nil, through); err == nil || !strings.Contains(err.Error(), "to which the operator does not go") {
			t.Errorf("%s: %v", host, err)
		}
	}
}

// A registry that may be asked names who gives tokens for it, and where its content is.
func TestForbiddenAddressesAreNeverReached(t *testing.T) {
	forbidden := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was asked") }))
	defer forbidden.Close()
	// By a name: the library refuses some addresses itself.
	elsewhere := strings.Replace(forbidden.URL, "127.0.0.1", "localhost", 1)
	for name, answer := range map[string]http.HandlerFunc{
		"a realm": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="`+elsewhere+`/token",service="x"`)
			w.WriteHeader(http.StatusUnauthorized)
		},
		"a redirect": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere, http.StatusFound) },
	} {
		// Both are on this machine: what comes after the registry's answer goes to the other one.
		var sent atomic.Bool
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			sent.Store(true)
			answer(w, r)
		}))
		through, err := Transport(nil, func(netip.Addr) bool { return !sent.Load() })
		if err != nil {
			t.Fatal(err)
		}
		ref, err := parse(strings.TrimPrefix(server.URL, "http://") + "/team/app" + ":1")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Resolve(context.Background(), ref, nil, through); !errors.Is(err, errForbiddenAddress) {
			t.Errorf("%s: %v", name, err)
		}
		server.Close()
	}
}

const commitTime = "1000000000"

// pushed returns the image that is pushed.
func (p Push) pushed() (v1.Image, error) {
	image, err := p.image()
	if err != nil {
		return nil, err
	}
	return p.finished(context.Background(), image)
}

func archive(t *testing.T, file string) (digest string) {
	t.Helper()
	image, err := random.Image(128, 2)
	if err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag("registry.example.org/xx:build")
	if err != nil {
		t.Fatal(err)
	}
	if err := tarball.WriteToFile(file, tag, image); err != nil {
		t.Fatal(err)
	}
	// The archive is not compressed: its digest is another one than that of the image.
	finished, err := Push{Root: filepath.Dir(file), Archive: filepath.Base(file), Time: commitTime}.pushed()
	if err != nil {
		t.Fatal(err)
	}
	sum, err := finished.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return sum.String()
}

func TestPush(t *testing.T) {
	server := httptest.NewServer(registry.New())
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	root, out := t.TempDir(), t.TempDir()
	want := archive(t, filepath.Join(root, "image.tar"))
	p := Push{Root: root, Archive: "image.tar", Destination: host + "/team/app:1", Time: commitTime, Digest: filepath.Join(out, "digest"), Size: filepath.Join(out, "size"), Problem: filepath.Join(out, "problem")}
	var errs bytes.Buffer
	if code := Main(p.Args(), &errs); code != 0 {
		t.Fatalf("exit code %d: %s", code, &errs)
	}
	if got, err := os.ReadFile(p.Digest); err != nil || string(got) != want {
		t.Errorf("digest %q, %v, want %s", got, err, want)
	}
	if size, err := os.ReadFile(p.Size); err != nil || len(size) < 3 || strings.Trim(string(size), "0123456789") != "" {
		t.Errorf("size %q, %v", size, err)
	}
	ref, err := parse(p.Destination)
	if err != nil {
		t.Fatal(err)
	}
	through, err := Transport(nil, Nearby)
	if err != nil {
		t.Fatal(err)
	}
	if image, err := Resolve(context.Background(), ref, nil, through); err != nil || image.Digest != want {
		t.Errorf("the registry has %+v, %v", image, err)
	}
}

// A build can put anything in the place of the archive.
func TestPushReadsNothingBeyondItsRoot(t *testing.T) {
	root, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "login")
	archive(t, elsewhere)
	for name, put := range map[string]func(string) error{
		"a link":      func(at string) error { return os.Symlink(elsewhere, at) },
		"a directory": func(at string) error { return os.Mkdir(at, 0o700) },
		"nothing":     func(string) error { return nil },
		"nonsense":    func(at string) error { return os.WriteFile(at, []byte("x"), 0o600) },
	} {
		at := filepath.Join(root, "image.tar")
		if err := put(at); err != nil {
			t.Fatal(err)
		}
		problem := filepath.Join(t.TempDir(), "problem")
		var errs bytes.Buffer
		code := Main(Push{Root: root, Archive: "image.tar", Destination: "127.0.0.1:1/xx:1", Time: commitTime, Problem: problem}.Args(), &errs)
		if code == 0 || !strings.Contains(errs.String(), "the builder left no image") {
			t.Errorf("%s: exit code %d: %s", name, code, &errs)
		}
		if reported, err := os.ReadFile(problem); err != nil || !strings.Contains(errs.String(), string(reported)) {
			t.Errorf("%s: %q, %v", name, reported, err)
		}
		if err := os.RemoveAll(at); err != nil {
			t.Fatal(err)
		}
	}
}
