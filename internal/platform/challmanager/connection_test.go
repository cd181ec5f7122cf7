package challmanager

import (
	"encoding/json"
	"testing"
	"time"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/platform/instances"
	"github.com/bergctf/berg-operator/internal/platform/web"
)

func TestConnectionInfo(t *testing.T) {
	for want, endpoints := range map[string][]bergv1.ServiceEndpoint{
		"":                         nil,
		"tcp://ctf.example.com:31": {{Name: "pwn", URL: "tcp://ctf.example.com:31"}},
		"ctf.example.com:31":       {{Name: "pwn", Hostname: "ctf.example.com", Port: 31}},
		"web: https://a.example.com | ssh: tcp://b:22": {{Name: "web", URL: "https://a.example.com"}, {Name: "ssh", URL: "tcp://b:22"}},
		"&lt;b&gt;: tcp://a | c: &#34;&#39;&amp;":      {{Name: "<b>", URL: "tcp://a"}, {Name: "c", URL: `"'&`}},
	} {
		if got := ConnectionInfo("", endpoints); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// The text of the author replaces the addresses. Lines stay apart where a page shows line breaks as spaces.
func TestConnectionInfoOfTheAuthor(t *testing.T) {
	addresses := []bergv1.ServiceEndpoint{{Name: "ssh", URL: "tcp://b:22"}}
	for text, want := range map[string]string{
		"ssh -p 22 ctf@b":               "ssh -p 22 ctf@b",
		"ssh -p 22 ctf@b\npassword x\n": "ssh -p 22 ctf@b | password x",
		"<b>":                           "&lt;b&gt;",
	} {
		if got := ConnectionInfo(text, addresses); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// An instance that all players share never ends where nothing says when.
func TestSharedInstancesNeverEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		registration instances.Registration
		source       string
		want         time.Duration
	}{
		"of one player":  {instances.Registration{}, "7", 0},
		"of all":         {instances.Registration{}, "0", web.MaxTimeout},
		"with a timeout": {instances.Registration{Timeout: time.Hour}, "0", 0},
		"with an end":    {instances.Registration{Until: time.Now()}, "0", 0},
	} {
		if got := options(tc.registration, tc.source).Timeout; got != tc.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestIntegersAreNumbersOrStrings(t *testing.T) {
	for text, want := range map[string]int64{"5": 5, `"5"`: 5, "null": 0, `""`: 0, "5.0": 5, `"9223372036854775807"`: 1<<63 - 1} {
		var i integer
		if err := json.Unmarshal([]byte(text), &i); err != nil || int64(i) != want {
			t.Errorf("%s: %d, %v", text, i, err)
		}
	}
	for _, text := range []string{`"five"`, "5.5", "1e30", "true", "{}"} {
		if err := json.Unmarshal([]byte(text), new(integer)); err == nil {
			t.Errorf("%s is accepted", text)
		}
	}
}
