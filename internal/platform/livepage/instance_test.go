package livepage

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/view"
)

func anEvent(uid, instance types.UID, message string, count int32) *corev1.Event {
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{UID: uid}, InvolvedObject: corev1.ObjectReference{UID: instance}, Reason: "PodsReady", Message: message,
		EventTime: metav1.MicroTime{Time: begin}, Series: &corev1.EventSeries{Count: count, LastObservedTime: metav1.MicroTime{Time: begin.Add(time.Duration(count) * time.Second)}},
	}
}

func TestEventsAreBounded(t *testing.T) {
	seen := map[types.UID]int{}
	r := newEventRing(func(instance types.UID) { seen[instance]++ })
	add := func(e *corev1.Event) {
		t.Helper()
		if err := r.Add(e); err != nil {
			t.Fatal(err)
		}
	}
	add(anEvent("1", "a", strings.Repeat("ü", maxEventText), 1))
	add(anEvent("1", "a", "it happened again", 5))
	if got := r.List("a"); len(got) != 1 || got[0].Count != 5 || got[0].Message != "it happened again" || !got[0].Last.Equal(begin.Add(5*time.Second)) || !got[0].First.Equal(begin) {
		t.Errorf("an event that happened again: %+v", got)
	}
	if err := r.Delete(anEvent("1", "a", "", 1)); err != nil || len(r.List("a")) != 1 {
		t.Error("an event that the API server has forgotten is gone")
	}
	for n := range maxEventsEach * 2 {
		add(anEvent(types.UID(fmt.Sprint("more", n)), "a", strings.Repeat("ü", maxEventText), 1))
	}
	got := r.List("a")
	if len(got) != maxEventsEach || r.total != maxEventsEach || len(got[0].Message) > maxEventText+len("…") || !strings.HasSuffix(got[0].Message, "ü…") {
		t.Errorf("%d events, %d counted, the first is %q", len(got), r.total, got[0].Message)
	}
	for n := range maxEvents + 10 {
		add(anEvent(types.UID(fmt.Sprint("one of ", n)), types.UID(fmt.Sprint(n)), "", 1))
	}
	if r.total > maxEvents || len(r.byInstance) > maxEvents || len(r.order) > maxEvents || len(r.List("a")) != 0 || len(r.List(types.UID(fmt.Sprint(maxEvents+9)))) != 1 {
		t.Errorf("%d events of %d instances are kept", r.total, len(r.byInstance))
	}
	add(&corev1.Event{}) // of no instance
	if seen["a"] != 2+maxEventsEach*2 || seen[""] != 0 {
		t.Errorf("%d events of a were announced", seen["a"])
	}
	old := &corev1.Event{FirstTimestamp: metav1.Time{Time: begin}, LastTimestamp: metav1.Time{Time: begin.Add(time.Minute)}, Count: 3, Type: "Warning"}
	if got := newEvent(old); got.Count != 3 || !got.Warning || !got.Last.Equal(begin.Add(time.Minute)) {
		t.Errorf("an event of the former API: %+v", got)
	}
}

func TestTimelineIsInOrderOfTime(t *testing.T) {
	i := failing(anInstance("a", bergv1.PhaseRunning, ""), "container web ended")
	i.Status.Conditions[0].LastTransitionTime = metav1.Time{Time: begin.Add(10 * time.Second)}
	r := view.NewRow(i)
	var lines []string
	for _, m := range timeline(&r, []Event{{Reason: "Late", Message: "m", Last: begin.Add(time.Minute), First: begin, Count: 3, Warning: true}, {Reason: "Early", Last: begin}}) {
		lines = append(lines, fmt.Sprintf("%s|%s|%s|%t", m.At.Sub(begin), m.What, m.Detail, m.Bad))
	}
	want := []string{
		"0s|Created||false", "0s|Event Early||false", "1s|Stage namespace|it took 1.0 s|false", "3s|Stage ready|it took 2.0 s|false",
		"3s|Running|all pods were ready for the first time|false", "10s|PodsReady is False|Crashing: container web ended|true",
		"1m0s|Event Late|m (3 times since 19:00:00 UTC)|true",
	}
	if !slices.Equal(lines, want) {
		t.Errorf("%s", strings.Join(lines, "\n"))
	}
}

// An instance that has ended is found by its name, and listed with the others of its namespace.
func TestInstancesThatHaveEnded(t *testing.T) {
	b, server := served(t, clocktesting.NewFakeClock(begin.Add(time.Hour)))
	record := func(uid, instance string, minute int) *metav1.PartialObjectMetadata {
		kept, err := trimRecord(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Name: uid, CreationTimestamp: metav1.Time{Time: begin.Add(time.Duration(minute) * time.Minute)}, Labels: map[string]string{bergv1.LabelOwnerID: "team-" + uid},
			Annotations: map[string]string{bergv1.AnnotationInstance: instance, bergv1.AnnotationChallenge: "web"},
		}})
		if err != nil {
			t.Fatal(err)
		}
		return kept.(*metav1.PartialObjectMetadata)
	}
	b.seeRecord(record("first", "berg/a", 1))
	b.seeRecord(record("second", "berg/a", 2))
	b.seeRecord(record("third", "other/a", 3))
	if all, found := b.Ended("berg", Filter{}); found != 2 || all[0].UID != "second" || all[1].UID != "first" {
		t.Errorf("%d: %v", found, all)
	}
	if all, _ := b.Ended("berg", Filter{Text: "team-first"}); len(all) != 1 {
		t.Errorf("the search finds %v", all)
	}
	if _, _, page := get(t, server.URL+"/live/?q=team-second"); !strings.Contains(page, `href="ended/second"`) || strings.Contains(page, "ended/first") || strings.Contains(page, "ended/third") {
		t.Error("the page does not list those that match, and no other")
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := client.Get(server.URL + "/live/instances/a")
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusSeeOther || answer.Header.Get("Location") != "/live/ended/second" {
		t.Errorf("%d, to %s", answer.StatusCode, answer.Header.Get("Location"))
	}
	for _, uid := range []string{"third", "none"} {
		if status, _, _ := get(t, server.URL+"/live/ended/"+uid); status != http.StatusNotFound {
			t.Errorf("the record %s: %d", uid, status)
		}
	}
	// The page of one that ended a moment ago is opened again until its record is there.
	if _, header, _ := get(t, server.URL+"/live/instances/b"); header.Get("Refresh") != "" {
		t.Error("a page of what never was is opened again")
	}
	put(t, b, anInstance("b", bergv1.PhaseRunning, ""))
	b.forget(anInstance("b", bergv1.PhaseRunning, ""))
	if status, header, _ := get(t, server.URL+"/live/instances/b"); status != http.StatusNotFound || header.Get("Refresh") == "" {
		t.Errorf("%d, %v", status, header)
	}
	// A Board that may not read records has none, and does not fail.
	if _, ok, err := b.Record(t.Context(), "berg", "second"); ok || err != nil {
		t.Errorf("%t, %v", ok, err)
	}
	b.forgetRecord(record("second", "berg/a", 2))
	if last, ok := b.LastEnded("berg", "a"); !ok || last.UID != "first" {
		t.Errorf("%v, %t", last, ok)
	}
}

func TestARecordOnItsPage(t *testing.T) {
	at := func(minute int) metav1.Time { return metav1.Time{Time: begin.Add(time.Duration(minute) * time.Minute)} }
	object := &bergv1.ChallengeInstanceRecord{Spec: bergv1.ChallengeInstanceRecordSpec{
		Reason: "Timeout", Phase: bergv1.PhaseStarting, EndedAt: at(9), Restarts: 4,
		Problem:  &bergv1.RecordedProblem{Condition: "PodsReady", Reason: "Crashing", Message: "exit code 1"},
		Timeline: []bergv1.RecordedMoment{{Moment: "Created", At: at(0)}, {Moment: "Expired", At: at(8)}},
		Containers: []bergv1.RecordedContainer{
			{Name: "web", Image: "web:1", Node: "n", State: "Terminated", Restarts: 4, Exit: &bergv1.RecordedExit{Code: 1, Reason: "Error"}, Log: strings.Repeat("a line\n", maxLog) + "the <flag> is hidden\n"},
			{Name: "db", State: "Running", LogMissing: "Too many ended"},
		},
	}}
	page := recordPage(t, newRecord(Ended{UID: "u", Namespace: "berg", Name: "a"}, object, []Event{{Reason: "Ending", Last: begin.Add(5 * time.Minute)}}))
	for _, want := range []string{
		"PodsReady, Crashing: exit code 1", "Terminated, exit code 1 (Error)", "the &lt;flag&gt; is hidden", "The end of its log", "Too many ended",
		"kubectl berg record u -n berg", "19:09:00 UTC",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	if a, b, c := strings.Index(page, ">Created</th>"), strings.Index(page, "Event Ending"), strings.Index(page, ">Expired</th>"); a < 0 || b < a || c < b {
		t.Errorf("the timeline is out of order: %d, %d, %d", a, b, c)
	}
	if n := strings.Count(page, "a line\n"); n == 0 || n > maxLog/len("a line\n") {
		t.Errorf("%d lines of the log are shown", n)
	}
	if end, shortened := lastLines(strings.Repeat("ü", maxLog), 5); !shortened || end != "üü" {
		t.Errorf("%q", end)
	}
}

// The page of one instance is told of its changes and its events, and of its end.
func TestTheStreamOfOneInstance(t *testing.T) {
	now := clocktesting.NewFakeClock(begin)
	b, server := served(t, now)
	a := anInstance("a", bergv1.PhaseRunning, "")
	a.UID = "uid-of-a"
	put(t, b, a)
	stream := openStream(t, server.URL+"/live/instances/a/events")
	changed, stop := b.RowChanges(b.Row("berg", "a"))
	defer stop()
	put(t, b, anInstance("b", bergv1.PhaseRunning, ""))
	if len(changed) != 0 {
		t.Error("another instance wakes its page")
	}
	if err := b.events.Add(anEvent("e", "uid-of-a", "a new event", 1)); err != nil {
		t.Fatal(err)
	}
	if got := stream.until(t, now, "parts", "a new event"); !strings.Contains(got, "instance-body") {
		t.Errorf("the event: %s", got)
	}
	put(t, b, failing(a.DeepCopy(), "it changed"))
	stream.until(t, now, "parts", "it changed")
	b.forget(a)
	if got := stream.next(t, now, "again"); got != "null" {
		t.Errorf("its end: %s", got)
	}
	if status, _, _ := get(t, server.URL+"/live/instances/a/events"); status != http.StatusNotFound {
		t.Errorf("of one that is gone: %d", status)
	}
}
