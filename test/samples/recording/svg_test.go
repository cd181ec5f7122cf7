package main

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

func TestScreenFollowsTerminalControls(t *testing.T) {
	s := newScreen()
	for _, part := range []string{"one\r\n\x1b[32m✓", "\x1b[0m two\r\nspin\rS\x1b[", "K done <&>"} {
		s.write([]byte(part))
	}
	want := []string{"one", `<tspan class="g">✓</tspan> two`, "S done &lt;&amp;&gt;"}
	if got := s.draw(); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got %q", got)
	}
}

func TestDrawingIsXMLWithTheLastFrame(t *testing.T) {
	text := svg(thin([]frame{{0, []string{"a"}}, {time.Second, []string{"a", "b"}}, {time.Second + time.Millisecond, []string{"a", "c"}}}), 80)
	reader := xml.NewDecoder(strings.NewReader(text))
	for {
		if _, err := reader.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if !strings.Contains(text, ">c</text>") {
		t.Errorf("the last frame is missing:\n%s", text)
	}
}
