package hexactftest

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// Only the repetitions of an operator that is killed and started again are allowed.
func TestRepetitions(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		sequences []int64
		differs   bool    // the last one says something else than before
		received  []int64 // nil: it is refused
	}{
		"nothing":                          {received: []int64{}},
		"each once":                        {sequences: []int64{1, 2, 3}, received: []int64{1, 2, 3}},
		"one twice":                        {sequences: []int64{1, 2, 2, 3}, received: []int64{1, 2, 3}},
		"all once more":                    {sequences: []int64{1, 2, 1, 2, 3}, received: []int64{1, 2, 3}},
		"the end once more":                {sequences: []int64{1, 2, 3, 2, 3}, received: []int64{1, 2, 3}},
		"killed while it repeats":          {sequences: []int64{1, 2, 3, 1, 2, 1, 2, 3, 4}, received: []int64{1, 2, 3, 4}},
		"one given up":                     {sequences: []int64{1, 2, 9}, received: []int64{1, 2, 9}},
		"one given up, and once more":      {sequences: []int64{1, 9, 1, 9, 10}, received: []int64{1, 9, 10}},
		"an incomplete repetition":         {sequences: []int64{1, 2, 3, 1}, received: []int64{1, 2, 3}},
		"another text":                     {sequences: []int64{1, 2, 2}, differs: true},
		"one too late":                     {sequences: []int64{1, 3, 2}},
		"an old one, and then a new one":   {sequences: []int64{1, 2, 3, 1, 4}},
		"a repetition that leaves one out": {sequences: []int64{1, 2, 3, 1, 3}},
		"no sequence":                      {sequences: []int64{0}},
	} {
		var all []Message
		for n, sequence := range tc.sequences {
			m := Message{Sequence: sequence, Raw: fmt.Sprint("message ", sequence)}
			if tc.differs && n == len(tc.sequences)-1 {
				m.Raw += ", otherwise"
			}
			all = append(all, m)
		}
		received, err := withoutRepeats(all)
		if (err != nil) != (tc.received == nil) {
			t.Errorf("%s: error %v", name, err)
			continue
		}
		var got []int64
		for _, m := range received {
			got = append(got, m.Sequence)
		}
		if !slices.Equal(got, tc.received) {
			t.Errorf("%s: %v, want %v", name, got, tc.received)
		}
	}
}

func TestUnfinishedRepetitions(t *testing.T) {
	t.Parallel()
	var c Consumer
	read := func(uid string, sequence int) {
		c.Read("a-1", fmt.Appendf(nil, `{"user":"a","problemId":"1","newStatus":"Creating","timestamp":"2025-06-01T12:00:00Z","name":%q,"uid":%q,"sequence":%d}`, uid, uid, sequence), time.Time{})
	}
	for _, sequence := range []int{1, 2, 1} {
		read("one", sequence)
	}
	read("other", 1)
	if got := c.Unfinished(); len(got) != 1 {
		t.Errorf("%v", got)
	}
	read("one", 2)
	if got := c.Unfinished(); len(got) != 0 {
		t.Errorf("%v", got)
	}
}
