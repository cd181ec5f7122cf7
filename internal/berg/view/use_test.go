package view

import (
	"testing"
	"time"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/kit/gateadmin"
)

func TestUseIsFoundInTheAnswersOfAllReplicas(t *testing.T) {
	began := time.Date(2030, 6, 1, 12, 0, 0, 0, time.UTC)
	now := began.Add(2 * time.Hour)
	route := func(host string, first, last time.Time, open int64) gateadmin.HostUse {
		return gateadmin.HostUse{ID: gateadmin.ID(host), First: first, Last: last, Open: open}
	}
	row := func(created time.Time, hosts ...string) *Row {
		r := &Row{State: Running, Created: created}
		for _, host := range hosts {
			r.Services = append(r.Services, bergv1.ServiceEndpoint{Hostname: host})
		}
		return r
	}
	at := func(minutes int) time.Time { return began.Add(time.Duration(minutes) * time.Minute) }

	var uses Uses
	if got := uses.Find(row(at(10), "web"), now); got.Words() != "" {
		t.Errorf("before an answer: %+v", got)
	}
	uses.Merge([]gateadmin.Report{
		{Since: began.Add(-time.Hour), Hosts: []gateadmin.HostUse{route("web", at(20), at(30), 0), route("open", at(40), at(50), 1), route("old", at(-10), at(60), 0), route("silent", time.Time{}, time.Time{}, 0)}},
		{Since: began, Hosts: []gateadmin.HostUse{route("web", at(15), at(80), 0), route("ssh", at(5), at(6), 0), route("new", time.Time{}, time.Time{}, 0)}},
	}, now, true)
	for name, c := range map[string]struct {
		row  *Row
		want Use
		said string
	}{
		"two replicas":   {row(at(10), "web"), Use{Known: true, First: at(15), Last: at(80)}, "last used"},
		"two hosts":      {row(at(1), "web", "ssh"), Use{Known: true, First: at(5), Last: at(80)}, "last used"},
		"open":           {row(at(10), "open"), Use{Known: true, Active: true, First: at(40)}, "in use"},
		"from before":    {row(at(-20), "old"), Use{Known: true, Last: at(60)}, "last used"},
		"never":          {row(at(10), "new"), Use{Known: true}, "never opened"},
		"not since":      {row(at(-20), "silent"), Use{Known: true, Since: began}, "not used since"},
		"another way in": {row(at(10), "node"), Use{}, ""},
	} {
		if got := uses.Find(c.row, now); got != c.want || got.Words() != c.said {
			t.Errorf("%s: %+v %q, want %+v %q", name, got, got.Words(), c.want, c.said)
		}
	}

	// What is not reported for a while, and belongs to no instance, is not kept.
	later := now.Add(2 * forgetHosts)
	uses.Forget(map[string]bool{gateadmin.ID("web"): true}, later)
	if len(uses.hosts) != 1 || uses.Find(row(at(10), "web"), later).Words() != "last used" {
		t.Errorf("%d hosts are kept", len(uses.hosts))
	}
}
