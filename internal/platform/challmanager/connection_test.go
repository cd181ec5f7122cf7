package challmanager

import (
	"encoding/json"
	"testing"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

func TestConnectionInfo(t *testing.T) {
	for want, endpoints := range map[string][]bergv1.ServiceEndpoint{
		"":                         nil,
		"tcp://ctf.example.com:31": {{Name: "pwn", URL: "tcp://ctf.example.com:31"}},
		"ctf.example.com:31":       {{Name: "pwn", Hostname: "ctf.example.com", Port: 31}},
		"web: https://a.example.com\nssh: tcp://b:22": {{Name: "web", URL: "https://a.example.com"}, {Name: "ssh", URL: "tcp://b:22"}},
		"&lt;b&gt;: tcp://a\nc: &#34;&#39;&amp;":      {{Name: "<b>", URL: "tcp://a"}, {Name: "c", URL: `"'&`}},
	} {
		if got := ConnectionInfo(endpoints); got != want {
			t.Errorf("%q, want %q", got, want)
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
