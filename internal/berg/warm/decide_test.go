package warm

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// some returns prepared instances, one for each letter: r is ready, s starts, c crashes, o is outdated, b is bound. Later ones are
// younger.
func some(letters string) (all []Prepared) {
	for n, letter := range letters {
		all = append(all, Prepared{
			UID: types.UID(fmt.Sprint(n)), Age: int64(-n), Claimable: letter == 'r' || letter == 'o', Outdated: letter == 'o', Bound: letter == 'b', Stuck: letter == 'c',
		})
	}
	return all
}

func TestDecide(t *testing.T) {
	for name, tc := range map[string]struct {
		pools          []Pool
		limit, starved int
		building       int
		created        []int
		deleted        [][]types.UID
	}{
		"the minimum is created":                     {pools: []Pool{{Min: 2}}, limit: 9, created: []int{2}},
		"those that are there count":                 {pools: []Pool{{Min: 3, Prepared: some("rs")}}, limit: 9, created: []int{1}},
		"those that are taken over do not":           {pools: []Pool{{Min: 1, Prepared: some("b")}}, limit: 9, created: []int{1}},
		"none without a limit of the operator":       {pools: []Pool{{Min: 1, Prepared: some("r")}}, deleted: [][]types.UID{{"0"}}},
		"players count for max":                      {pools: []Pool{{Min: 5, Max: 4, Players: 1}}, limit: 9, created: []int{3}},
		"and for maxInstances":                       {pools: []Pool{{Min: 5, MaxInstances: 4, Players: 6, Prepared: some("r")}}, limit: 9, deleted: [][]types.UID{{"0"}}},
		"outdated ones are replaced":                 {pools: []Pool{{Min: 2, Prepared: some("or")}}, limit: 9, created: []int{1}, deleted: [][]types.UID{{"0"}}},
		"a frozen Challenge keeps what it has":       {pools: []Pool{{Min: 3, Frozen: true, Prepared: some("or")}}, limit: 9},
		"surplus ones end: starting, then the young": {pools: []Pool{{Min: 1, Prepared: some("rsr")}}, limit: 9, deleted: [][]types.UID{{"1", "2"}}},
		"a limit is shared":                          {pools: []Pool{{Min: 4}, {Min: 1}, {Min: 4}}, limit: 5, created: []int{2, 1, 2}},
		"few start at a time":                        {pools: []Pool{{Min: 20, Prepared: some("sssr")}, {Min: 20}}, limit: 100, created: []int{3, 2}},
		"few are built at a time":                    {pools: []Pool{{Min: 3}, {Min: 3}}, limit: 100, building: 7, created: []int{2, 1}},
		"one that cannot start holds up no other":    {pools: []Pool{{Min: 20, Prepared: some("cccccccc")}, {Min: 2}}, limit: 100, created: []int{0, 2}},
		"and its own Challenge only with many":       {pools: []Pool{{Min: 3, Prepared: some("cr")}}, limit: 100, created: []int{1}},
		"players without a node get the capacity, from the largest pool": {
			pools: []Pool{{Min: 3, Prepared: some("rrr")}, {Min: 2, Prepared: some("r")}}, limit: 9, starved: 2, deleted: [][]types.UID{{"1", "2"}},
		},
		"those that end already count for them": {pools: []Pool{{Min: 3, Prepared: some("rb")}}, limit: 9, starved: 1},
	} {
		for n, change := range Decide(tc.pools, Limits{tc.limit, 8, 10 - tc.building, tc.starved}) {
			var created int
			var deleted []types.UID
			if tc.created != nil {
				created = tc.created[n]
			}
			if n < len(tc.deleted) {
				deleted = tc.deleted[n]
			}
			slices.Sort(change.Delete)
			if change.Create != created || !slices.Equal(change.Delete, deleted) {
				t.Errorf("%s: pool %d creates %d and deletes %v, want %d and %v", name, n, change.Create, change.Delete, created, deleted)
			}
		}
	}
}

// One is prepared at once, and in each second while players come. When they have gone, none waits.
func TestInstancesArePreparedAtAPaceWhilePlayersCome(t *testing.T) {
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for name, tc := range map[string]struct {
		playerCame, prepared time.Time
		want                 time.Duration
	}{
		"after a start of the operator":         {},
		"with players, the first":               {playerCame: now},
		"with players, the second":              {playerCame: now, prepared: ago(pace / 4), want: pace * 3 / 4},
		"with players, a second later":          {playerCame: now, prepared: ago(pace)},
		"a player came a moment ago":            {playerCame: ago(pace / 2), prepared: ago(pace / 2), want: pace / 2},
		"players have gone":                     {playerCame: ago(pace), prepared: now},
		"the clock of the machine was set back": {playerCame: now.Add(time.Hour), prepared: ago(2 * pace)},
	} {
		if got := untilNext(now, tc.playerCame, tc.prepared); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}
