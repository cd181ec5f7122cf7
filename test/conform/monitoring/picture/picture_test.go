package picture

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"time"
)

func TestFormat(t *testing.T) {
	for _, test := range []struct {
		value float64
		unit  string
		want  string
	}{
		{0, "short", "0"},
		{0, "s", "0 s"},
		{2.5, "short", "2.5"},
		{12.345, "short", "12.3"},
		{1234, "short", "1.23 K"},
		{0.0123, "short", "0.012"},
		{0.0005, "s", "500 µs"},
		{0.25, "s", "250 ms"},
		{7, "s", "7 s"},
		{90, "s", "1.5 min"},
		{7200, "s", "2 h"},
		{1536, "bytes", "1.5 KiB"},
		{2_500_000, "Bps", "2.5 MB/s"},
		{0.425, "percentunit", "42.5%"},
		{3, "ops", "3 ops/s"},
		{-1, "short", "-1"},
	} {
		if got := Format(test.value, test.unit); got != test.want {
			t.Errorf("%v %s: got %q, want %q", test.value, test.unit, got, test.want)
		}
	}
}

func TestStepsOfTheGrid(t *testing.T) {
	for _, test := range []struct {
		high float64
		unit string
		want float64
	}{
		{0, "short", 1},
		{4, "short", 1},
		{30, "short", 10},
		{0.9, "short", 0.25},
		{240, "s", 60},
		{3 << 20, "bytes", 1 << 20},
		{1, "percentunit", 0.25},
	} {
		if got := niceStep(test.high, test.unit); math.Abs(got-test.want) > test.want/1000 {
			t.Errorf("%v %s: got %v, want %v", test.high, test.unit, got, test.want)
		}
	}
}

func board(lines ...Line) Board {
	begin := time.Date(2026, 1, 2, 10, 0, 30, 0, time.UTC)
	return Board{
		Title: "A <board>", Text: "What & why", Begin: begin, End: begin.Add(12 * time.Minute),
		Panels: []Panel{
			{Type: "row", Title: "Part", W: 24, H: 1},
			{Type: "stat", Title: "Number", Y: 1, W: 4, H: 4, Unit: "short", Steps: []Step{{"green", math.Inf(-1)}, {"orange", 3}}, Lines: lines},
			{Type: "timeseries", Title: "Graph", Y: 5, W: 8, H: 8, Unit: "s", Lines: lines},
		},
	}
}

func TestDraw(t *testing.T) {
	nan := math.NaN()
	picture := Draw(board(Line{"<error>", []float64{1, nan, 2, 2, 2, nan, 3}}))
	for _, want := range []string{
		"A &lt;board&gt;", "What &amp; why", "▾ Part", "&lt;error&gt;",
		`class="number orange"`, ">3</text>", // the last value
		">10:03</text>", ">3 s</text>",
		"h0M", // a value alone is a point
	} {
		if !bytes.Contains(picture, []byte(want)) {
			t.Errorf("no %s in\n%s", want, picture)
		}
	}
	if bytes.Contains(picture, []byte("NaN")) || bytes.Contains(picture, []byte("No data")) {
		t.Errorf("got\n%s", picture)
	}
	decoder := xml.NewDecoder(bytes.NewReader(picture))
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if again := Draw(board(Line{"<error>", []float64{1, nan, 2, 2, 2, nan, 3}})); !bytes.Equal(picture, again) {
		t.Error("it is another one the next time")
	}
}

func TestDrawWithoutData(t *testing.T) {
	for _, lines := range [][]Line{nil, {{"none", []float64{math.NaN(), math.NaN()}}}} {
		if got := bytes.Count(Draw(board(lines...)), []byte(">No data<")); got != 2 {
			t.Errorf("got %d panels without data, want 2", got)
		}
	}
}

func TestStackedLinesAddUp(t *testing.T) {
	p := Panel{Stacked: true, Lines: []Line{{"a", []float64{1, 2}}, {"b", []float64{math.NaN(), 3}}}}
	got := p.stack()
	if got[0].Values[1] != 2 || got[1].Values[0] != 1 || got[1].Values[1] != 5 {
		t.Errorf("got %v", got)
	}
}

func TestLongLegendsAreCut(t *testing.T) {
	var lines []Line
	for range 12 {
		lines = append(lines, Line{strings.Repeat("x", 20), []float64{1, 1}})
	}
	if got := string(Draw(board(lines...))); !strings.Contains(got, ">and 9 more</text>") || strings.Count(got, strings.Repeat("x", 20)) > 4 {
		t.Errorf("got\n%s", got)
	}
}
