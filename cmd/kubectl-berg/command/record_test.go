package command

import (
	"bytes"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
)

var noon = time.Date(2026, 7, 11, 12, 0, 0, 0, time.UTC)

func recordAbout(name, of string, minute int) metav1.PartialObjectMetadata {
	return metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: name, CreationTimestamp: metav1.Time{Time: noon.Add(time.Duration(minute) * time.Minute)},
		Labels:      map[string]string{bergv1.LabelOwnerID: "owner"},
		Annotations: map[string]string{bergv1.AnnotationInstance: of, bergv1.AnnotationChallenge: "web", bergv1.AnnotationDeleteAt: "2026-07-12T12:00:00Z"},
	}}
}

func TestLatestRecord(t *testing.T) {
	all := []metav1.PartialObjectMetadata{
		recordAbout("a", "berg/alice", 1), recordAbout("b", "berg/alice", 3), recordAbout("c", "berg/alice", 2), recordAbout("d", "other/alice", 4),
	}
	for asked, want := range map[string]string{"alice": "b", "c": "c", "bob": ""} {
		if got := latestRecord(all, "berg", asked); got != want {
			t.Errorf("%s: %q, want %q", asked, got, want)
		}
	}
	var names []string
	for _, row := range recordRows(all, "berg", false) {
		names = append(names, row.Record)
	}
	if got := strings.Join(names, " "); got != "b c a" {
		t.Errorf("of a namespace: %s", got)
	}
	if got := len(recordRows(append(all, recordAbout("e", "", 5)), "berg", true)); got != 4 {
		t.Errorf("%d of all namespaces", got)
	}
}

func TestPrintRecordStripsControlCharacters(t *testing.T) {
	var out bytes.Buffer
	r := &root{Console: console.New(nil, &out, &out, func(string) string { return "" })}
	r.printRecord(&bergv1.ChallengeInstanceRecord{Spec: bergv1.ChallengeInstanceRecordSpec{
		Instance: bergv1.RecordedInstance{Namespace: "berg", Name: "alice"}, ChallengeRef: bergv1.ChallengeReference{Name: "web"},
		OwnerID: "owner", Reason: "Timeout", Phase: bergv1.PhaseRunning, EndedAt: metav1.Time{Time: noon}, Incomplete: "in part",
		Problem:  &bergv1.RecordedProblem{Condition: "Healthy", Reason: "CrashLoopBackOff", Message: "web: \x1b[2Jback-off"},
		Timeline: []bergv1.RecordedMoment{{Moment: "Created", At: metav1.Time{Time: noon}}},
		Containers: []bergv1.RecordedContainer{
			{Name: "web", Pod: "web-1", State: "Waiting", WaitingFor: "CrashLoopBackOff", Restarts: 3, Exit: &bergv1.RecordedExit{Code: 139, Reason: "Error"}, Log: "one\ntwo\n", LogCut: true},
			{Name: "db", Pod: "db-1", State: "Running", LogMissing: "there was no answer within 2s"},
		},
	}})
	got := out.String()
	for _, want := range []string{
		"berg/alice of challenge web, owner owner\n", "ended at 2026-07-11T12:00:00Z, in phase Running: Timeout\n", "Healthy CrashLoopBackOff: web: ",
		"in part\n", "  2026-07-11T12:00:00Z  Created\n", "web-1/web: Waiting, CrashLoopBackOff, 3 restarts, last exit 139 Error\n",
		"  end of the log:\n  │ one\n  │ two\n", "db-1/db: Running\n  no log: there was no answer within 2s\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in:\n%s", want, got)
		}
	}
	if strings.Contains(got, "\x1b") {
		t.Errorf("%q", got)
	}
}
