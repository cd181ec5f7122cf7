package console

import (
	"bytes"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// consoleOf returns a console with this number of columns, 0 for a pipe.
func consoleOf(columns int) (*Console, *bytes.Buffer) {
	out := &bytes.Buffer{}
	return &Console{Out: out, Err: out, OutTerminal: columns > 0, ErrTerminal: columns > 0, width: func() int { return columns }}, out
}

func TestTableFitsTheTerminal(t *testing.T) {
	fill := func(c *Console) {
		table := Table{Console: c, Header: []string{"NAME", "PHASE", "ADDRESS"}, Shrink: []int{0, 2}}
		table.Write([]Cell{{Text: "alice-guestbook"}, {Text: "Running"}, {Text: "https://5f0c3e64-4c6e-4f6a.challenges.example.com"}})
	}
	for _, columns := range []int{40, 60, 120} {
		c, out := consoleOf(columns)
		fill(c)
		for line := range strings.SplitSeq(out.String(), "\n") {
			if n := len([]rune(line)); n > columns {
				t.Errorf("%d columns on a terminal of %d: %q", n, columns, line)
			}
		}
		if !strings.Contains(out.String(), "Running") {
			t.Errorf("a column that may not shrink is truncated: %s", out)
		}
	}
	c, out := consoleOf(0)
	fill(c)
	if !strings.Contains(out.String(), "challenges.example.com") {
		t.Errorf("truncated in a pipe: %s", out)
	}
	tiny, out := consoleOf(5)
	fill(tiny)
	if !strings.Contains(out.String(), "…") {
		t.Errorf("a terminal of five columns: %s", out)
	}
}

func TestControlCharactersAreStripped(t *testing.T) {
	if got := OneLine("a\x1b[2J\nb\t\u202ec\x00"); got != "a[2J b c" {
		t.Errorf("%q", got)
	}
	if got := StripControl("a\x1b[2J\tb\x07"); got != "a[2J\tb" {
		t.Errorf("%q", got)
	}
}

func TestColoursOnlyOnTerminals(t *testing.T) {
	env := func(pairs ...string) func(string) string {
		return func(name string) string {
			for i := 0; i < len(pairs); i += 2 {
				if pairs[i] == name {
					return pairs[i+1]
				}
			}
			return ""
		}
	}
	var out bytes.Buffer
	if c := New(nil, &out, &out, env()); c.OutColor || c.OutTerminal || c.TextWidth() != 0 {
		t.Errorf("a buffer is a terminal: %+v", c)
	}
	if paint(false, Red, "x") != "x" || paint(true, Red, "x") != "\x1b[31mx\x1b[0m" {
		t.Error("paint")
	}
}

func TestProgressOnTerminalsAndInPipes(t *testing.T) {
	now := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	c, out := consoleOf(0)
	p := c.Progress(now, "extend", 100)
	for range 50 {
		now.SetTime(now.Now().Add(time.Second))
		p.Add(1)
	}
	if n := strings.Count(out.String(), "\n"); n != 5 || !strings.Contains(out.String(), "extend: 50 of 100, 50s left") {
		t.Errorf("%d lines:\n%s", n, out)
	}
	c, out = consoleOf(60)
	p = c.Progress(now, "extend", 100)
	now.SetTime(now.Now().Add(time.Second))
	p.Add(30)
	p.Note("no connection " + strings.Repeat("x", 100))
	p.Finish()
	if strings.Contains(out.String(), "\n") || !strings.HasSuffix(out.String(), "\r\x1b[K") {
		t.Errorf("%q", out)
	}
	for part := range strings.SplitSeq(out.String(), "\r") {
		if n := len([]rune(strings.TrimSuffix(part, "\x1b[K"))); n >= 60 {
			t.Errorf("%d columns of 60: %q", n, part)
		}
	}
}

func TestDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 12 * time.Second: "12s", 250 * time.Second: "4m10s", 125 * time.Minute: "2h05m", 50 * time.Hour: "2d2h", -time.Minute: "-1m00s",
	} {
		if got := Duration(d); got != want {
			t.Errorf("%s: %s, want %s", d, got, want)
		}
	}
}

func TestWrap(t *testing.T) {
	if got := Wrap("one two three four five six seven", 24, "  "); got != "one two three four five\n  six seven" {
		t.Errorf("%q", got)
	}
	if got := Wrap("one two", 0, "  "); got != "one two" {
		t.Errorf("%q", got)
	}
}

func TestObjectsAsJSONAndYAML(t *testing.T) {
	type row struct {
		Name  string `json:"name"`
		Count int    `json:"count,omitempty"`
	}
	for _, tc := range []struct {
		yaml       bool
		whole, one string
	}{
		{false, "[\n  {\n    \"name\": \"<a>\",\n    \"count\": 2\n  }\n]\n", "{\"name\":\"b\"}\n"},
		{true, "- count: 2\n  name: <a>\n", "name: b\n---\n"},
	} {
		c, out := consoleOf(0)
		c.YAML = tc.yaml
		if err := c.WriteJSON([]row{{"<a>", 2}}); err != nil || out.String() != tc.whole {
			t.Errorf("%q, %v", out, err)
		}
		out.Reset()
		if err := c.WriteLine(row{Name: "b"}); err != nil || out.String() != tc.one {
			t.Errorf("%q, %v", out, err)
		}
	}
}
