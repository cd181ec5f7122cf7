package plan

import (
	"slices"
	"testing"
)

func TestShare(t *testing.T) {
	for _, tc := range []struct {
		wanted []int
		limit  int
		want   []int
	}{
		{nil, 3, []int{}},
		{[]int{4, 1, 4}, 5, []int{2, 1, 2}},
		{[]int{2, 0, 1}, 9, []int{2, 0, 1}},
		{[]int{1, 1, 1}, 2, []int{1, 1, 0}},
		{[]int{3}, 0, []int{0}},
	} {
		if got := Share(tc.wanted, tc.limit); !slices.Equal(got, tc.want) {
			t.Errorf("%v of %d: %v, want %v", tc.wanted, tc.limit, got, tc.want)
		}
	}
}
