package livepage

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/kit/gateadmin"
)

// newReport is the answer of a replica that started at a time.
func newReport(since time.Time, routes ...gateadmin.HostUse) gateadmin.Report {
	return gateadmin.Report{Since: since, Hosts: routes}
}

func newRoute(name string, last time.Time, open int64) gateadmin.HostUse {
	return gateadmin.HostUse{ID: gateadmin.ID(name + ".example.org"), First: last, Last: last, Open: open}
}

func TestThePageSaysHowPlayersUseInstances(t *testing.T) {
	now := clocktesting.NewFakeClock(begin.Add(time.Hour))
	b, server := served(t, now)
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		put(t, b, anInstance(name, bergv1.PhaseRunning, ""))
	}
	young := anInstance("young", bergv1.PhaseRunning, "")
	young.CreationTimestamp = metav1.Time{Time: begin.Add(59 * time.Minute)}
	put(t, b, young)
	says := func(name string) string {
		_, _, page := get(t, server.URL+"/live/")
		_, row, _ := strings.Cut(page, `<tr id="row berg/`+name+`">`)
		row, _, _ = strings.Cut(row, "</tr>")
		for _, text := range []string{"in use", "last used", "not used since", "never opened"} {
			if strings.Contains(row, text) {
				return text
			}
		}
		return ""
	}
	if got := says("a"); got != "" {
		t.Errorf("before the gate has answered: %q", got)
	}
	b.seeUses(nil, now.Now(), false)
	if got := says("a"); got != "" {
		t.Errorf("without an answer: %q", got)
	}
	// The younger replica has replaced one whose connections nobody knows.
	b.seeUses([]gateadmin.Report{
		newReport(begin.Add(-time.Hour), newRoute("a", now.Now(), 1), newRoute("b", now.Now().Add(-40*time.Minute), 0), newRoute("c", time.Time{}, 0), newRoute("young", time.Time{}, 0)),
		newReport(begin.Add(30*time.Minute), newRoute("a", time.Time{}, 0), newRoute("b", now.Now().Add(-50*time.Minute), 0), newRoute("d", now.Now().Add(-time.Minute), 0)),
	}, now.Now(), true)
	for name, want := range map[string]string{
		"a": "in use", "b": "last used", "c": "not used since", "d": "in use", "young": "never opened",
		"e": "", // reached otherwise
	} {
		if got := says(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	_, _, page := get(t, server.URL+"/live/instances/b")
	if !strings.Contains(page, ">40 min</time> ago") || strings.Contains(page, "first used") { // an earlier replica may have served it
		t.Error("the page of an instance does not say when it was used")
	}

	// An hour later nothing was used, and one replica is gone. What was used stays used.
	version := b.version
	now.Step(time.Hour)
	b.seeUses([]gateadmin.Report{newReport(begin.Add(-time.Hour))}, now.Now(), true)
	for name, want := range map[string]string{"a": "last used", "b": "last used", "c": "not used since", "d": "last used", "young": "never opened"} {
		if got := says(name); got != want {
			t.Errorf("an hour later, %s: %q", name, got)
		}
	}
	if b.version != version+2 {
		t.Errorf("%d rows have changed, 2 have become idle", b.version-version)
	}
	b.seeUses([]gateadmin.Report{newReport(begin.Add(-time.Hour), newRoute("young", now.Now(), 1))}, now.Now(), true)
	if _, _, page = get(t, server.URL+"/live/instances/young"); !strings.Contains(page, "in use, first used") {
		t.Error("the page of an instance does not say when it was first used")
	}
	b.see(anInstance("a", bergv1.PhaseFailed, bergv1.CauseCrashing), false)
	b.see(anInstance("a", bergv1.PhaseRunning, ""), false)
	if got := says("a"); got != "last used" {
		t.Errorf("after a change of the instance: %q", got)
	}
}

func TestEachReplicaIsAskedForItsUse(t *testing.T) {
	var after []string
	gate := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		after = append(after, r.URL.Path+"?"+r.URL.RawQuery)
		_ = json.NewEncoder(w).Encode(newReport(begin, newRoute("a", begin, 1)))
	}))
	defer gate.Close()
	_, port, err := net.SplitHostPort(strings.TrimPrefix(gate.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	client := newGateClient("berg-gate-admin:" + port)
	client.lookup = func(_ context.Context, host string) ([]string, error) {
		if host != "berg-gate-admin" {
			t.Errorf("looked up %q", host)
		}
		return []string{"127.0.0.1", "127.0.0.1"}, nil
	}
	reports, err := client.ask(t.Context(), time.Unix(1000, 0))
	if err != nil || len(reports) != 2 || reports[0].Hosts[0] != newRoute("a", begin, 1) || after[0] != "/usage?after=1000" {
		t.Errorf("%+v, %v, asked %v", reports, err, after)
	}
	client.lookup = func(context.Context, string) ([]string, error) { return []string{"127.0.0.1", "0.0.0.1"}, nil }
	if reports, err = client.ask(t.Context(), time.Time{}); err == nil || len(reports) != 1 || after[len(after)-1] != "/usage?after=0" {
		t.Errorf("one replica does not answer: %+v, %v", reports, err)
	}
	client.lookup = func(context.Context, string) ([]string, error) { return nil, errors.New("no such host") }
	if reports, err = client.ask(t.Context(), time.Time{}); err == nil || reports != nil {
		t.Errorf("without the gate: %+v, %v", reports, err)
	}
}
