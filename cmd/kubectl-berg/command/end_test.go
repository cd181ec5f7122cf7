package command

import (
	"bytes"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/bulk"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
)

func TestEndAfterSkipsAFrozenInstance(t *testing.T) {
	i := running("alice", func(i *bergv1.ChallengeInstance) {
		i.Annotations[bergv1.AnnotationFrozen] = noon.Format(time.RFC3339)
		i.Status.StartedAt = &metav1.Time{Time: noon}
	})
	// There is no cluster: a write would panic.
	got, err := endAt(t.Context(), nil, i, noon.Add(time.Hour))
	if want := bulk.Skip("frozen: unfreeze it first, or end it without --after"); got != want || err != nil {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
}

func TestPointInTime(t *testing.T) {
	day := func(d, hour, minute int) time.Time { return time.Date(2030, 1, d, hour, minute, 0, 0, time.Local) }
	for _, tc := range []struct {
		now  time.Time
		text string
		want time.Time // zero: refused
	}{
		{day(31, 12, 0), "30m", day(31, 12, 30)},
		{day(31, 12, 0), "23:30", day(31, 23, 30)},
		{day(30, 23, 0), "01:00", day(31, 1, 0)},
		{day(31, 12, 0), "11:00", time.Time{}}, // an hour ago is not in 23 hours
		{day(31, 12, 0), "12:00", time.Time{}},
		{day(31, 12, 0), day(31, 13, 0).Format(time.RFC3339), day(31, 13, 0)},
		{day(31, 12, 0), "yesterday", time.Time{}},
	} {
		got, err := pointInTime(tc.text, tc.now)
		if (err == nil) == tc.want.IsZero() || err == nil && !got.Equal(tc.want) {
			t.Errorf("%s at %s: %s, %v", tc.text, tc.now, got, err)
		}
	}
}

func TestDurationsAreValidatedBeforeAnyRequest(t *testing.T) {
	for _, args := range [][]string{
		{"extend", "--until", "nonsense", "--all", "--dry-run"},
		{"end", "--after", "nonsense", "--all", "--dry-run"},
		{"rollout", "guestbook", "--ready-timeout", "0s"},
	} {
		var out bytes.Buffer
		c := New(console.New(nil, &out, &out, func(string) string { return "" }), "test")
		c.SetArgs(append(args, "--server", "http://127.0.0.1:1", "--kubeconfig", "/dev/null"))
		err := c.ExecuteContext(t.Context())
		if got := console.Code(err); got != console.ExitUsage {
			t.Errorf("%v: exit code %d: %v", args, got, err)
		}
	}
}

func TestFreezeDryRunListsChallenges(t *testing.T) {
	var out bytes.Buffer
	r := &root{Console: console.New(nil, &out, &out, func(string) string { return "" })}
	frozen := map[string]string{bergv1.AnnotationFrozen: "x"}
	challenges := []*bergv1.Challenge{
		{ObjectMeta: metav1.ObjectMeta{Namespace: "berg", Name: "guestbook"}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "berg", Name: "still", Annotations: frozen}},
	}
	instances := []*bergv1.ChallengeInstance{running("alice")}
	if err := r.showDryRun("freeze", qualifiedNames(changing(challenges, true)), qualifiedNames(changing(instances, true))); err != nil {
		t.Fatal(err)
	}
	const want = "would freeze Challenge berg/guestbook\nwould freeze instance berg/alice\n1 Challenges and 1 instances; nothing was done\n"
	if got := out.String(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
