package command

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/view"
	"github.com/bergctf/berg-operator/internal/kit/gateadmin"
)

func TestRowsAreSortedByAnyColumn(t *testing.T) {
	at := func(minute int) time.Time { return time.Date(2030, 6, 1, 12, minute, 0, 0, time.UTC) }
	rows := []listed{
		{Row: view.Row{Namespace: "b", Name: "a", Challenge: "web", Owner: "3", Source: "red", Phase: bergv1.PhaseRunning, Created: at(2), Started: at(3)}, SecondsLeft: ptr.To[int64](60)},
		{Row: view.Row{Namespace: "a", Name: "c", Challenge: "pwn", Owner: "1", Phase: bergv1.PhaseFailed, Reason: "Refused", Cause: bergv1.CauseRefused, Created: at(3)}},
		{Row: view.Row{Namespace: "a", Name: "b", Challenge: "web", Owner: "2", Source: "blue", Phase: bergv1.PhasePending, Cause: bergv1.CauseQueued, Created: at(1), Started: at(4)}, SecondsLeft: ptr.To[int64](5)},
	}
	wants := map[string]string{
		"": "a/b a/c b/a", "name": "b/a a/b a/c", "challenge": "a/c a/b b/a", "phase": "a/b b/a a/c", "problem": "a/c a/b b/a", "cause": "a/b a/c b/a",
		"left": "a/b b/a a/c", "owner": "a/c a/b b/a", "source": "a/b b/a a/c", "created": "a/b b/a a/c", "started": "b/a a/b a/c",
	}
	if len(wants) != len(sortKeys)+1 {
		t.Errorf("%d of %d keys are tested", len(wants)-1, len(sortKeys))
	}
	for by, want := range wants {
		sorted := slices.Clone(rows)
		sortRows(sorted, by)
		var names []string
		for _, row := range sorted {
			names = append(names, row.Namespace+"/"+row.Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("by %q: %s, want %s", by, got, want)
		}
	}
}

func TestAListSaysHowInstancesAreUsed(t *testing.T) {
	noon := time.Date(2030, 6, 1, 12, 0, 0, 0, time.UTC)
	var uses view.Uses
	uses.Merge([]gateadmin.Report{{Since: noon.Add(-time.Hour), Hosts: []gateadmin.HostUse{
		{ID: gateadmin.ID("open"), First: noon.Add(-30 * time.Minute), Last: noon, Open: 1},
		{ID: gateadmin.ID("idle"), First: noon.Add(-50 * time.Minute), Last: noon.Add(-40 * time.Minute)},
		{ID: gateadmin.ID("new")},
		{ID: gateadmin.ID("old")},
	}}}, noon, true)
	for host, want := range map[string]string{
		"open": "in use", "idle": "last used 40m00s ago", "new": "never opened", "old": "not used since 2030-06-01T11:00:00Z", "node": "",
	} {
		l := listed{Row: view.Row{State: view.Running, Created: noon.Add(-55 * time.Minute), Services: []bergv1.ServiceEndpoint{{Hostname: host}}}}
		if host == "old" {
			l.Created = noon.Add(-2 * time.Hour)
		}
		l.addUse(&uses, noon)
		if l.used != want || (l.Use == nil) != (want == "") {
			t.Errorf("%s: %q %+v, want %q", host, l.used, l.Use, want)
		}
	}
}
