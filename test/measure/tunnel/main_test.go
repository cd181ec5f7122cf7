package main

import (
	"slices"
	"strings"
	"testing"
)

func TestMissedTargets(t *testing.T) {
	good := result{One: 10, Many: 10, Connections: 1000, P50: 10, P99: 20, Memory: 1e6, MemoryAfter: 2e6}
	worse := result{One: 5, Many: 5, Connections: 500, P50: 20, P99: 40, Memory: 2e6, MemoryAfter: 4e6}
	ahead, broken := worse, worse
	ahead.Many, broken.P99 = 11, 0
	for name, test := range map[string]struct {
		peer    *result
		missing string
		want    []string
	}{
		"all is well":                        {&worse, "", nil},
		"a peer is ahead":                    {&ahead, "", []string{"many streams: chisel is ahead"}},
		"a peer that is not there":           {nil, "it is not installed", []string{"chisel could not be measured"}},
		"a figure that could not be had":     {&broken, "", []string{"latency p99: could not be compared with chisel"}},
		"the peer was not requested, --only": {nil, "", nil},
	} {
		f := figures{Results: map[string]result{"berg-tunnel": good}, Missing: map[string]string{}}
		if test.peer != nil {
			f.Results["chisel"] = *test.peer
		}
		if test.missing != "" {
			f.Missing["chisel"] = test.missing
		}
		if got := f.missed(); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
		table := f.table(plan{streams: 100}, 1)
		columns := 0
		for line := range strings.Lines(table) {
			if n := strings.Count(line, "|"); n > 0 && columns > 0 && n != columns {
				t.Errorf("%s: a row has %d columns, want %d: %s", name, n, columns, line)
			} else if n > 0 {
				columns = n
			}
		}
	}
	if got := (&figures{}).missed(); len(got) != 1 {
		t.Errorf("without berg-tunnel: %q", got)
	}
}
