package usage

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/bergctf/berg-operator/internal/kit/gateadmin"
)

var shop = Challenge{"berg", "shop"}

func newKey(name string) Key { return Key{"HTTPRoute", "challenge-" + name, "web"} }

// pod is a connection to a pod, with the pod's end.
func pod(t *testing.T) (ours, theirs net.Conn) {
	t.Helper()
	ours, theirs = net.Pipe()
	t.Cleanup(func() { _, _ = ours.Close(), theirs.Close() })
	return ours, theirs
}

func exchange(t *testing.T, use *Use, question, answer string) net.Conn {
	t.Helper()
	ours, theirs := pod(t)
	tracked := use.Track(ours)
	go func() {
		_, _ = io.ReadFull(theirs, make([]byte, len(question)))
		_, _ = io.WriteString(theirs, answer)
	}()
	if _, err := io.WriteString(tracked, question); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(tracked, make([]byte, len(answer))); err != nil {
		t.Fatal(err)
	}
	return tracked
}

func scrape(t *testing.T, r *Recorder) string {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(r)
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return answer.Body.String()
}

func TestTheUseOfARouteIsReported(t *testing.T) {
	r := NewRecorder()
	used := r.Use(newKey("a"), "1", "a.example", shop)
	r.Use(newKey("b"), "2", "b.example", shop)
	end := used.Begin()
	exchange(t, used, "question", "long answer")
	report := r.Report(time.Now().Add(time.Hour))
	if len(report.Hosts) != 1 || report.Hosts[0].Open != 1 || report.Hosts[0].Bytes != 19 || report.Hosts[0].ID != gateadmin.ID("a.example") || report.Hosts[0].First.IsZero() {
		t.Fatalf("while it is open: %+v", report)
	}
	if strings.Contains(fmt.Sprint(report), "example") {
		t.Errorf("the report names a host: %+v", report)
	}
	end()
	if report = r.Report(time.Now().Add(time.Hour)); len(report.Hosts) != 0 {
		t.Errorf("used before: %+v", report)
	}
	if report = r.Report(time.Time{}); len(report.Hosts) != 2 {
		t.Errorf("all: %+v", report)
	}
	for _, route := range report.Hosts {
		if isUsed := route.ID == gateadmin.ID("a.example"); route.Open != 0 || isUsed == route.First.IsZero() || isUsed == route.Last.IsZero() || route.Last.Before(route.First) {
			t.Errorf("%+v", route)
		}
	}
	text := scrape(t, r)
	for _, line := range []string{
		`berg_gate_challenge_bytes_total{challenge="shop",challenge_namespace="berg",direction="from_players"} 8`,
		`berg_gate_challenge_bytes_total{challenge="shop",challenge_namespace="berg",direction="to_players"} 11`,
		`berg_gate_challenge_routes{challenge="shop",challenge_namespace="berg",opened="false"} 1`,
		`berg_gate_challenge_routes{challenge="shop",challenge_namespace="berg",opened="true"} 1`,
		`berg_gate_challenge_connections_total{challenge="shop",challenge_namespace="berg"} 1`,
		`berg_gate_challenge_open_connections{challenge="shop",challenge_namespace="berg"} 0`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("%s is missing in\n%s", line, text)
		}
	}
	// A counter never falls: instances end all the time.
	r.End(newKey("a"))
	if sum := r.sums()[shop]; sum.received != 8 || sum.sent != 11 || sum.total != 1 || sum.routes != 1 || sum.opened != 0 {
		t.Errorf("after its end: %+v", sum)
	}
}

func TestARouteThatIsDeletedEndsItsConnections(t *testing.T) {
	r := NewRecorder()
	use := r.Use(newKey("a"), "1", "a.example", shop)
	conn := exchange(t, use, "q", "a")
	if same := r.Use(newKey("a"), "1", "a.example", shop); same != use {
		t.Error("a change of the route forgets its use")
	}
	next := r.Use(newKey("a"), "2", "a.example", shop)
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("the connection continues after another route has the name")
	}
	if next.total.Load() != 0 || next == use {
		t.Error("the next route begins with the use of the former one")
	}
	ours, theirs := pod(t)
	use.Track(ours)
	if _, err := theirs.Read(make([]byte, 1)); err == nil {
		t.Error("a connection that was made too late continues")
	}
	var none *Use
	none.Begin()()
	if got := none.Track(ours); got != ours {
		t.Error("without a Use the connection is another one")
	}
}

func TestFewChallengesHaveSeries(t *testing.T) {
	r := NewRecorder()
	for n := range 3 * maxChallenges {
		r.Use(newKey(fmt.Sprint(n)), "1", fmt.Sprint(n), Challenge{"berg", fmt.Sprint("c", n)}).Begin()()
	}
	r.Use(newKey("foreign"), "1", "foreign", Challenge{}).Begin()()
	sums := r.sums()
	if len(sums) != maxChallenges+1 || sums[Others].total != 2*maxChallenges+1 {
		t.Errorf("%d Challenges, %d connections of others", len(sums), sums[Others].total)
	}
}
