package scrape

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
)

func TestRecordingIsWrittenInTheNotationOfPromtool(t *testing.T) {
	r := Recording{
		Begin: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Interval: 5 * time.Second,
		Keep: func(name string) bool { return name != "other" },
	}
	target := model.LabelSet{"job": "operator"}
	for _, page := range []string{"a 1\nother 1\n", "a 1\nb{job=\"its\",x=\"y\"} 0.12345\n", "a 1\nb{x=\"y\"} 20\n", "a 2.5\n", "a 2.5\nb{x=\"y\"} 100\n"} {
		all, err := Parse(strings.NewReader(page))
		if err != nil {
			t.Fatal(err)
		}
		r.Next()
		r.Add(all, target)
	}
	var text strings.Builder
	n, err := r.WriteTo(&text)
	want := "# from 2026-01-02T03:04:05Z every 5s for 20s\n" +
		`a{job="operator"} 1x2 2.5x1` + "\n" +
		`b{job="operator", x="y"} _x1 0.123 20 stale 100` + "\n"
	if err != nil || text.String() != want || n != int64(len(want)) {
		t.Errorf("got %d, %v:\n%s\nwant:\n%s", n, err, &text, want)
	}
}

func TestNotationOfSeriesThatEnd(t *testing.T) {
	r := Recording{scrapes: 4}
	for want, values := range map[string][]float64{
		"0 stale _x2":  {0},
		"_x4":          nil,
		"_x2 1x1":      {math.NaN(), math.NaN(), 1, 1},
		"10x1 stale 7": {10, 10, math.NaN(), 7},
		"-1x3":         {-1, -1, -1, -1},
	} {
		if got := r.notation(values); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
