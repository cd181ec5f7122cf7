package livepage

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/platform/tokens"
	"github.com/bergctf/berg-operator/internal/platform/web"
)

const theFlag = "flag{<b>not for the wall</b>&\"'}"

// options are those of a Board of the tests.
var options = Options{
	Namespaces: []string{"berg", "other"}, RecordNamespace: "records", NodePorts: 2768,
	Operator: Operator{"berg-operator-system", "berg-operator-controller-manager", "berg-operator"}, SourceURL: "https://ctf.example.com/teams/{source}",
}

var begin = time.Date(2030, 6, 1, 19, 0, 0, 0, time.UTC)

// anInstance is one as the API server has it, with a flag.
func anInstance(name string, phase bergv1.Phase, cause bergv1.Cause) *bergv1.ChallengeInstance {
	i := &bergv1.ChallengeInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "berg", Name: name, CreationTimestamp: metav1.Time{Time: begin}}}
	i.Spec.ChallengeRef.Name, i.Spec.OwnerID, i.Spec.Flag = "web", "player-"+name, theFlag
	i.Annotations = map[string]string{"kubectl.kubernetes.io/last-applied-configuration": theFlag}
	i.Status.Phase, i.Status.Cause = phase, cause
	if phase == bergv1.PhaseRunning {
		i.Status.StartedAt = &metav1.Time{Time: begin}
		i.Status.ReadyAt = &metav1.Time{Time: begin.Add(3 * time.Second)}
		i.Status.ExpiresAt = &metav1.Time{Time: begin.Add(time.Hour)}
		i.Status.Start = &bergv1.StartTimes{NamespaceCreatedAt: &metav1.MicroTime{Time: begin.Add(time.Second)}, PodsReadyAt: &metav1.MicroTime{Time: begin.Add(3 * time.Second)}}
		i.Status.Services = []bergv1.ServiceEndpoint{{Name: "web", Hostname: name + ".example.org", Port: 443, URL: "https://" + name + ".example.org"}}
	}
	return i
}

func failing(i *bergv1.ChallengeInstance, message string) *bergv1.ChallengeInstance {
	i.Status.Conditions = []metav1.Condition{{Type: bergv1.ConditionPodsReady, Status: metav1.ConditionFalse, Reason: "Crashing", Message: message, LastTransitionTime: metav1.Time{Time: begin}}}
	return i
}

// put does what the cache does with an instance.
func put(t testing.TB, b *Board, i *bergv1.ChallengeInstance) {
	t.Helper()
	b.see(i, false)
}

func served(t testing.TB, now clock.WithTicker) (*Board, *httptest.Server) {
	t.Helper()
	b := newBoard(options, now)
	b.ready = true
	endpoint, err := New(b, now, time.Hour, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	endpoint.Routes(mux)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mux.ServeHTTP(w, r.WithContext(web.WithGrant(r.Context(), tokens.Grant{Namespace: "berg"})))
	}))
	t.Cleanup(server.Close)
	return b, server
}

func get(t testing.TB, address string) (status int, header http.Header, body string) {
	t.Helper()
	answer, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	all, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, answer.Header, string(all)
}

func TestThePageShowsWhatRunsAndWhyTheRestDoesNot(t *testing.T) {
	b, server := served(t, clocktesting.NewFakeClock(begin.Add(time.Minute)))
	put(t, b, anInstance("a", bergv1.PhaseRunning, ""))
	put(t, b, failing(anInstance("b", bergv1.PhaseStarting, bergv1.CauseCrashing), "container web ended with exit code 1"))
	put(t, b, anInstance("c", bergv1.PhasePending, bergv1.CauseQueued))
	elsewhere := anInstance("d", bergv1.PhaseRunning, "")
	elsewhere.Namespace = "other"
	put(t, b, elsewhere)

	status, header, page := get(t, server.URL+"/live/")
	if status != http.StatusOK || !strings.Contains(header.Get("Content-Security-Policy"), "default-src 'none'") || strings.Contains(header.Get("Content-Security-Policy"), "unsafe") {
		t.Errorf("%d, %v", status, header)
	}
	for _, want := range []string{
		"https://a.example.org", "player-a", "A program in it keeps exiting. container web ended with exit code 1", "It is in the queue.",
		"3.0 s", "1 wait, in the order of their creation", "3 found",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	if strings.Index(page, "A program in it keeps exiting.") > strings.Index(page, `id="challenges-title"`) || strings.Index(page, `id="q"`) > strings.Index(page, `id="counts"`) {
		t.Error("what needs a person, and the search, are not the first")
	}
	for _, never := range []string{"d.example.org", "<script>", "style=", "onclick", "http://"} {
		if strings.Contains(page, never) {
			t.Errorf("the page has %q", never)
		}
	}
	for query, found := range map[string]string{"?q=PLAYER-a": "1 found", "?state=waiting": "1 found", "?challenge=none": "0 found", "?q=" + strings.Repeat("x", 5000): "0 found"} {
		if _, _, page := get(t, server.URL+"/live/"+query); !strings.Contains(page, found) {
			t.Errorf("%.40s: not %s", query, found)
		}
	}
	_, _, one := get(t, server.URL+"/live/instances/b")
	for _, want := range []string{"kubectl berg why b -n berg", "kubectl berg end b -n berg", "exit code 1"} {
		if !strings.Contains(one, want) {
			t.Errorf("the page of an instance does not say %q", want)
		}
	}
	if status, _, _ := get(t, server.URL+"/live/instances/d"); status != http.StatusNotFound {
		t.Errorf("an instance of another namespace: %d", status)
	}
}

// lines is a stream of events.
type lines struct{ read *bufio.Scanner }

func openStream(t testing.TB, address string, header ...string) lines {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; n+1 < len(header); n += 2 {
		request.Header.Set(header[n], header[n+1])
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = answer.Body.Close() })
	l := lines{bufio.NewScanner(answer.Body)}
	l.read.Buffer(nil, 16<<20)
	l.read.Scan() // the comment that it begins with: from now on changes are seen
	return l
}

// next returns the data of the next event of a name.
func (l lines) next(t testing.TB, now *clocktesting.FakeClock, name string) string {
	t.Helper()
	done := make(chan struct{})
	defer close(done)
	go func() { // the stream waits for changes that come together
		for {
			select {
			case <-done:
				return
			case <-time.After(time.Millisecond):
				now.Step(settle)
			}
		}
	}()
	for l.read.Scan() {
		if l.read.Text() == "event: "+name && l.read.Scan() {
			return strings.TrimPrefix(l.read.Text(), "data: ")
		}
	}
	t.Fatalf("the stream ended without %s: %v", name, l.read.Err())
	return ""
}

// until returns the data of the first event of a name that has a text.
func (l lines) until(t testing.TB, now *clocktesting.FakeClock, name, text string) string {
	t.Helper()
	for {
		if data := l.next(t, now, name); strings.Contains(data, text) {
			return data
		}
	}
}

// A page gets what has changed since it was made, also if it lost its connection, or gets another replica.
func TestAStreamContinuesWhereThePageIs(t *testing.T) {
	now := clocktesting.NewFakeClock(begin)
	b, server := served(t, now)
	put(t, b, anInstance("a", bergv1.PhaseRunning, ""))
	put(t, b, anInstance("b", bergv1.PhaseRunning, ""))
	mark := b.Cursor(b.Read("berg", 0).Version)
	_, _, page := get(t, server.URL+"/live/")
	if !strings.Contains(page, `data-cursor="`+mark+`"`) {
		t.Errorf("the page does not have its mark %s", mark)
	}
	put(t, b, failing(anInstance("a", bergv1.PhaseFailed, bergv1.CauseCrashing), "it ended"))
	b.forget(anInstance("b", bergv1.PhaseRunning, ""))
	for name, open := range map[string]func() lines{
		"by its address": func() lines { return openStream(t, server.URL+"/live/events?after="+mark) },
		"by the last event": func() lines {
			return openStream(t, server.URL+"/live/events?after=old.1", "Last-Event-Id", mark)
		},
	} {
		if got := open().next(t, now, "rows"); !strings.Contains(got, "it ended") || !strings.HasSuffix(got, `{"id":"berg/b"}]`) {
			t.Errorf("%s: %s", name, got)
		}
	}
	for _, mark := range []string{"", "another.7", b.id + ".x", newBoard(options, now).Cursor(3)} {
		got := openStream(t, server.URL+"/live/events?after="+mark).next(t, now, "parts")
		for _, part := range []string{`"problems":`, `"others":`, `"found":"1 found"`, "it ended"} {
			if !strings.Contains(got, part) {
				t.Errorf("after %q there is no %s", mark, part)
			}
		}
	}
}

func TestTheStreamFollowsInstances(t *testing.T) {
	now := clocktesting.NewFakeClock(begin)
	b, server := served(t, now)
	put(t, b, anInstance("a", bergv1.PhaseRunning, ""))
	all, running := openStream(t, server.URL+"/live/events"), openStream(t, server.URL+"/live/events?state=running")

	put(t, b, failing(anInstance("a", bergv1.PhaseFailed, bergv1.CauseCrashing), "it ended"))
	if got := all.next(t, now, "rows"); !strings.Contains(got, "it ended") {
		t.Errorf("the change: %s", got)
	}
	if got := running.next(t, now, "rows"); strings.Contains(got, "html") || !strings.Contains(got, "berg/a") {
		t.Errorf("a row that does not match any more: %s", got)
	}
	b.forget(anInstance("a", bergv1.PhaseFailed, ""))
	if got := all.next(t, now, "rows"); got != `[{"id":"berg/a"}]` {
		t.Errorf("the deletion: %s", got)
	}
}

// A Challenge has a line of its own, with what its last check said and whether its images are on the nodes.
func TestChallengesAndChecks(t *testing.T) {
	b, server := served(t, clocktesting.NewFakeClock(begin.Add(time.Minute)))
	see := func(object any) {
		kept, err := trim(object)
		if err != nil {
			t.Fatal(err)
		}
		b.seeOther(kept)
	}
	wrong := &bergv1.Challenge{ObjectMeta: metav1.ObjectMeta{Namespace: "berg", Name: "wrong"}}
	wrong.Spec.Flag = theFlag
	wrong.Status.Conditions = []metav1.Condition{
		{Type: bergv1.ChallengeConditionAccepted, Status: metav1.ConditionFalse, Message: "spec.containers[0].image is <b>empty</b>"},
		{Type: bergv1.ChallengeConditionImagesReady, Status: metav1.ConditionTrue},
	}
	see(wrong)
	check := &bergv1.ChallengeCheck{ObjectMeta: metav1.ObjectMeta{Namespace: "berg", Name: "solver"}}
	check.Spec.ChallengeRef.Name = "wrong"
	check.Spec.Solver.Env = []bergv1.SolverVariable{{Name: "FLAG", Value: theFlag}}
	check.Status.LastResult = &bergv1.CheckResult{CheckRun: bergv1.CheckRun{StartedAt: metav1.Time{Time: begin}}, Result: bergv1.CheckWrongFlag, Message: theFlag}
	see(check)
	_, _, page := get(t, server.URL+"/live/")
	for _, want := range []string{"spec.containers[0].image is &lt;b&gt;empty", "The Challenge is not accepted. spec.containers", "kubectl berg try wrong -n berg", "<td>yes</td>", `<span class="problem">WrongFlag</span>, `} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	if strings.Contains(page, "not for the wall") {
		t.Error("the page shows a flag")
	}
	check.Status.LastResult.Result = bergv1.CheckSolved
	see(check)
	if _, _, page := get(t, server.URL+"/live/"); !strings.Contains(page, "<span>Solved</span>, ") {
		t.Error("the page does not say that a solver got the flag")
	}
	b.forgetOther(check)
	b.forgetOther(wrong)
	if len(b.challenges)+len(b.checks) > 0 {
		t.Errorf("%v, %v are left", b.challenges, b.checks)
	}
}

// A reader that has missed too much reads everything again.
func TestAReaderThatMissedDeletionsReadsAll(t *testing.T) {
	b := newBoard(options, clocktesting.NewFakeClock(begin))
	put(t, b, anInstance("kept", bergv1.PhaseRunning, ""))
	known := b.Read("berg", 0).Version
	for n := range maxGone * 2 {
		i := anInstance(fmt.Sprint(n), bergv1.PhaseRunning, "")
		put(t, b, i)
		b.forget(i)
	}
	if v := b.Read("berg", known); !v.All || len(v.Rows) != 1 || len(b.gone) > maxGone {
		t.Errorf("all %t, %d rows, %d deletions are kept", v.All, len(v.Rows), len(b.gone))
	}
	known = b.Read("berg", 0).Version
	put(t, b, anInstance("more", bergv1.PhasePending, ""))
	if v := b.Read("berg", known); v.All || len(v.Rows) != 1 || v.Rows[0].Name != "more" {
		t.Errorf("%+v", v)
	}
}

func TestHistoryIsBounded(t *testing.T) {
	b := newBoard(options, clocktesting.NewFakeClock(begin))
	put(t, b, anInstance("a", bergv1.PhasePending, ""))
	put(t, b, anInstance("a", bergv1.PhaseRunning, ""))
	put(t, b, anInstance("b", bergv1.PhaseFailed, bergv1.CauseInvalid))
	for n := range maxSamples + 10 {
		b.sample(begin.Add(time.Duration(n) * time.Minute))
	}
	all := b.History("berg")
	if len(all) != maxSamples {
		t.Errorf("%d samples", len(all))
	}
	if last := all[len(all)-1]; last.Running != 1 || last.Failed != 1 || last.Starts != 0 {
		t.Errorf("%+v", last)
	}
	b = newBoard(options, clocktesting.NewFakeClock(begin))
	put(t, b, anInstance("a", bergv1.PhasePending, ""))
	put(t, b, anInstance("a", bergv1.PhaseRunning, ""))
	b.forget(anInstance("a", bergv1.PhaseRunning, ""))
	b.sample(begin)
	if first := b.History("berg")[0]; first.Starts != 1 || first.Ends != 1 || first.Failures != 0 || first.ToRunning != 3*time.Second {
		t.Errorf("%+v", first)
	}
	if svg := string(plot(all, func(s Sample) float64 { return float64(s.Running) })); !strings.HasPrefix(svg, "<svg") || strings.Contains(svg, "NaN") {
		t.Errorf("%.80s", svg)
	}
}

// BenchmarkPage writes the page of 5,000 instances, of which one has changed.
func BenchmarkPage(b *testing.B) {
	board, server := served(b, clock.RealClock{})
	for n := range 5000 {
		put(b, board, anInstance(fmt.Sprintf("i-%d", n), bergv1.PhaseRunning, ""))
	}
	for b.Loop() {
		put(b, board, anInstance("one", bergv1.PhasePending, ""))
		put(b, board, anInstance("one", bergv1.PhaseRunning, ""))
		if status, _, _ := get(b, server.URL+"/live/"); status != http.StatusOK {
			b.Fatal(status)
		}
	}
}
