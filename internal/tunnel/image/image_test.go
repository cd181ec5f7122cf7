package image

import (
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// place is a registry, which counts what is written to it and may refuse everything.
type place struct {
	*httptest.Server
	writes atomic.Int64
	status atomic.Int64
	host   string
}

func serve(t *testing.T, secure bool, password string) *place {
	t.Helper()
	p := &place{}
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if status := int(p.status.Load()); status != 0 {
			http.Error(w, "no", status)
			return
		}
		if _, given, _ := r.BasicAuth(); password != "" && given != password {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/manifests/") {
			p.writes.Add(1)
		}
		inner.ServeHTTP(w, r)
	})
	if secure {
		p.Server = httptest.NewTLSServer(handler)
	} else {
		p.Server = httptest.NewServer(handler)
	}
	t.Cleanup(p.Close)
	p.host = p.Listener.Addr().String()
	return p
}

func (p *place) authority() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw})
}

// base makes a base image for two platforms.
func (p *place) base(t *testing.T, tag string) name.Reference {
	t.Helper()
	reference, err := name.ParseReference(p.host + "/base/core:" + tag)
	if err != nil {
		t.Fatal(err)
	}
	index := v1.ImageIndex(empty.Index)
	for _, architecture := range []string{"amd64", "arm64"} {
		image, err := random.Image(1024, 2)
		if err != nil {
			t.Fatal(err)
		}
		if image, err = mutate.ConfigFile(image, &v1.ConfigFile{
			OS: "linux", Architecture: architecture,
			Config: v1.Config{Env: []string{"PATH=/bin"}, Cmd: []string{"/bin/sh"}, Labels: map[string]string{"vendor": "example"}},
		}); err != nil {
			t.Fatal(err)
		}
		image = mutate.MediaType(image, types.OCIManifestSchema1)
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: architecture}},
		})
	}
	if err := remote.WriteIndex(reference, index, remote.WithTransport(p.Client().Transport)); err != nil {
		t.Fatal(err)
	}
	return reference
}

func programFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, []byte(content), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func build(t *testing.T, options Options, base string) (string, error) {
	t.Helper()
	builder, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	return builder.Ensure(t.Context(), base)
}

func must(t *testing.T, options Options, base string) string {
	t.Helper()
	result, err := build(t, options, base)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func TestTheImageIsTheBaseAndOneFile(t *testing.T) {
	p := serve(t, false, "")
	base := p.base(t, "1")
	for _, architecture := range []string{"amd64", "arm64"} {
		result := must(t, Options{Repository: p.host + "/t/proxy", Insecure: true, Program: programFile(t, "the program"), Version: "v1.2.3", Architecture: architecture}, base.String())
		reference, _ := name.ParseReference(result)
		if tags, _ := remote.List(reference.Context()); !slices.ContainsFunc(tags, func(tag string) bool { return strings.HasPrefix(tag, "v1.2.3-") }) {
			t.Errorf("tags %v", tags)
		}
		source, err := remote.Get(base)
		if err != nil {
			t.Fatal(err)
		}
		image, err := remote.Image(reference)
		if err != nil {
			t.Fatal(err)
		}
		file, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		c := file.Config
		if file.Architecture != architecture || len(c.Entrypoint) != 1 || c.Entrypoint[0] != Program || len(c.Cmd) != 0 || c.User != User ||
			c.Env[0] != "PATH=/bin" || c.Labels["vendor"] != "example" || c.Labels[BaseDigestLabel] != source.Digest.String() {
			t.Errorf("config %+v", c)
		}
		layers, _ := image.Layers()
		if len(layers) != 3 {
			t.Fatalf("%d layers", len(layers))
		}
		if kind, _ := layers[2].MediaType(); kind != types.OCILayer {
			t.Errorf("the layer of an OCI image is %s", kind)
		}
		content, _ := layers[2].Uncompressed()
		all, _ := io.ReadAll(content)
		if !strings.Contains(string(all), "the program") || !strings.HasPrefix(string(all), "usr/local/bin/dcptun_c") {
			t.Errorf("the layer holds %q", all[:200])
		}
	}
}

func TestTheSameInputGivesTheSameImage(t *testing.T) {
	p, q := serve(t, false, ""), serve(t, false, "")
	base := p.base(t, "1")
	first := must(t, Options{Repository: p.host + "/tunnels", Insecure: true, Program: programFile(t, "x"), Version: "v1"}, base.String())
	second := must(t, Options{Repository: q.host + "/tunnels", Insecure: true, Program: programFile(t, "x"), Version: "v1"}, base.String())
	if digest := func(reference string) string { _, d, _ := strings.Cut(reference, "@"); return d }; digest(first) != digest(second) {
		t.Errorf("%s and %s differ", first, second)
	}
}

func TestAnImageIsBuiltOnce(t *testing.T) {
	p := serve(t, false, "")
	base := p.base(t, "1")
	options := Options{Repository: p.host + "/tunnels", Insecure: true, Program: programFile(t, "x"), Version: "v1"}
	first := must(t, options, base.String())
	writes := p.writes.Load()
	again := must(t, options, base.String())
	if again != first || p.writes.Load() != writes {
		t.Errorf("built again: %+v", again)
	}

	tags := func() int {
		repository, _ := name.NewRepository(options.Repository, name.Insecure)
		all, _ := remote.List(repository)
		return len(all)
	}
	moved := p.base(t, "1") // the tag has another digest now
	if after := must(t, options, moved.String()); after == first || tags() != 1 {
		t.Errorf("the base has changed, and the image was not rebuilt: %+v", after)
	}

	options.Program = programFile(t, "y")
	if after := must(t, options, base.String()); after == first {
		t.Errorf("the program has changed, and the image was not rebuilt: %+v", after)
	}

	other := p.base(t, "2")
	if after := must(t, options, other.String()); after == first || tags() != 2 {
		t.Errorf("another base has the same tag: %+v", after)
	}
}

func TestABaseThatCannotBeReached(t *testing.T) {
	p, q := serve(t, false, ""), serve(t, false, "")
	base := q.base(t, "1").String()
	options := Options{Repository: p.host + "/tunnels", Insecure: true, Program: programFile(t, "x"), Version: "v1"}
	first := must(t, options, base)

	q.status.Store(http.StatusNotFound)
	if again := must(t, options, base); again != first {
		t.Errorf("the image that is there was not used: %+v", again)
	}
	options.Program = programFile(t, "y")
	switch _, err := build(t, options, base); {
	case !errors.Is(err, ErrBase) || !strings.Contains(err.Error(), base):
		t.Errorf("%v: want the base's name", err)
	case Retry(err):
		t.Errorf("%v: a missing base stays missing", err)
	}
	q.status.Store(http.StatusServiceUnavailable)
	if _, err := build(t, options, base); !errors.Is(err, ErrBase) || !Retry(err) {
		t.Errorf("%v: want it to be tried again", err)
	}
	q.Close()
	if _, err := build(t, options, base); !errors.Is(err, ErrBase) || !Retry(err) {
		t.Errorf("%v: want it to be tried again", err)
	}
}

// What breaks off in the middle of an answer is on its way, as what never answers.
func TestAnAnswerThatBreaksOff(t *testing.T) {
	p, whole := serve(t, false, ""), serve(t, false, "")
	base := whole.base(t, "1").String()
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		recorded := httptest.NewRecorder()
		whole.Config.Handler.ServeHTTP(recorded, r)
		for name, values := range recorded.Header() {
			w.Header()[name] = values
		}
		body := recorded.Body.Bytes()
		if strings.Contains(r.URL.Path, "/blobs/") {
			w.Header().Set("Content-Length", strconv.Itoa(len(body)))
			w.WriteHeader(recorded.Code)
			_, _ = w.Write(body[:len(body)/2])
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(recorded.Code)
		_, _ = w.Write(body)
	}))
	defer proxy.Close()
	base = strings.Replace(base, whole.host, proxy.Listener.Addr().String(), 1)
	_, err := build(t, Options{Repository: p.host + "/tunnels", Insecure: true, Program: programFile(t, "x"), Version: "v1"}, base)
	if !errors.Is(err, ErrBase) || !Retry(err) {
		t.Errorf("%v: want it to be tried again", err)
	}
}

func TestABaseForAnotherPlatform(t *testing.T) {
	p := serve(t, false, "")
	base := p.base(t, "1")
	if _, err := build(t, Options{Repository: p.host + "/tunnels", Insecure: true, Program: programFile(t, "x"), Version: "v1", Architecture: "s390x"}, base.String()); !errors.Is(err, ErrBase) || Retry(err) {
		t.Errorf("index: %v", err)
	}
	single, err := remote.Image(base, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: "arm64"}))
	if err != nil {
		t.Fatal(err)
	}
	alone, _ := name.ParseReference(p.host + "/alone:1")
	if err := remote.Write(alone, single); err != nil {
		t.Fatal(err)
	}
	if _, err := build(t, Options{Repository: p.host + "/tunnels", Insecure: true, Program: programFile(t, "x"), Version: "v1", Architecture: "amd64"}, alone.String()); !errors.Is(err, ErrBase) || !strings.Contains(err.Error(), "linux/arm64") {
		t.Errorf("image: %v", err)
	}
}

const secret = "correct-horse"

func dockerConfig(host, password string) []byte {
	return fmt.Appendf(nil, `{"auths":{"https://%s/":{"auth":%q}}}`, host, base64.StdEncoding.EncodeToString([]byte("me:"+password)))
}

func TestTLSAndLogin(t *testing.T) {
	p := serve(t, true, secret)
	public := serve(t, false, "")
	base := public.base(t, "1").String()
	options := Options{Repository: p.host + "/tunnels", Program: programFile(t, "x"), Version: "v1", Authorities: p.authority()}
	var err error
	if options.Credentials, err = ParseCredentials(dockerConfig(p.host, secret)); err != nil {
		t.Fatal(err)
	}
	must(t, options, base)
	if builder, _ := New(options); builder.Ping(t.Context()) != nil {
		t.Error("a registry that wants a login does not answer")
	}

	wrong := options
	if wrong.Credentials, err = ParseCredentials(dockerConfig(p.host, "guessed-wrong")); err != nil {
		t.Fatal(err)
	}
	if _, err := build(t, wrong, base); err == nil || Retry(err) || strings.Contains(err.Error(), "guessed-wrong") {
		t.Errorf("wrong password: %v", err)
	}
	none := options
	none.Credentials = Credentials{}
	if _, err := build(t, none, base); err == nil || Retry(err) {
		t.Errorf("no password: %v", err)
	}
	stranger := options
	stranger.Authorities = nil
	if _, err := build(t, stranger, base); err == nil || Retry(err) {
		t.Errorf("unknown authority: %v", err)
	}
}

func TestAPushThatIsRefused(t *testing.T) {
	public := serve(t, false, "")
	base := public.base(t, "1").String()
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	readOnly := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			http.Error(w, "read only", http.StatusForbidden)
			return
		}
		inner.ServeHTTP(w, r)
	}))
	defer readOnly.Close()
	_, err := build(t, Options{Repository: readOnly.Listener.Addr().String() + "/tunnels", Insecure: true, Program: programFile(t, "x"), Version: "v1"}, base)
	if !errors.Is(err, ErrPush) || Retry(err) {
		t.Errorf("%v", err)
	}
}

func TestInput(t *testing.T) {
	for _, repository := range []string{"", "registry.example/name:tag", "no spaces", "registry.example/UPPER"} {
		if _, err := New(Options{Repository: repository}); !errors.Is(err, ErrInput) {
			t.Errorf("repository %q: %v", repository, err)
		}
	}
	if err := CheckBase("no spaces"); !errors.Is(err, ErrInput) || Retry(err) {
		t.Errorf("CheckBase: %v", err)
	}
	if _, err := ParseCredentials([]byte(`{"auths":"` + secret)); err == nil || strings.Contains(err.Error(), secret) {
		t.Errorf("ParseCredentials: %v", err)
	}
	if _, err := ParseCredentials([]byte(`{"auths":{"r":{"auth":"` + secret + `!"}}}`)); err == nil || strings.Contains(err.Error(), secret) {
		t.Errorf("ParseCredentials: %v", err)
	}
}

func TestTag(t *testing.T) {
	digest := strings.Repeat("0123456789abcdef", 4)
	for version, want := range map[string]string{
		"v1.2.3":        "v1.2.3-",
		"v1.2.3+build5": "v1.2.3_build5-",
		"dev":           "dev_0123456789ab-",
		"v0.0.0-dev":    "dev_0123456789ab-",
		"":              "dev_0123456789ab-",
	} {
		if got := Tag(version, digest, "registry.example/base:1", "amd64"); !strings.HasPrefix(got, want) || len(got) != len(want)+12 {
			t.Errorf("Tag(%q) = %q, want %q and 12 characters", version, got, want)
		}
	}
}

func TestCredentialsForAPart(t *testing.T) {
	c, err := ParseCredentials([]byte(`{"auths":{"r.example/team":{"password":"inner"},"r.example":{"password":"outer"},"docker.io":{"password":"hub"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for repository, want := range map[string]string{
		"r.example/team/x": "inner",
		"r.example/other":  "outer",
		"r.example/teams":  "outer",
		"library/nginx":    "hub",
		"s.example/x":      "",
	} {
		parsed, _ := name.NewRepository(repository)
		shown, err := c.Resolve(parsed)
		if err != nil {
			t.Fatal(err)
		}
		config, _ := authn.Authorization(t.Context(), shown)
		if config.Password != want {
			t.Errorf("%s: %q, want %q", repository, config.Password, want)
		}
	}
	if text := fmt.Sprintf("%v %+v %#v", c, c, c); strings.Contains(text, "inner") {
		t.Error("credentials print themselves")
	}
}
