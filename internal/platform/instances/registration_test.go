package instances

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/view"
	"github.com/bergctf/berg-operator/internal/platform/tokens"
)

var noon = time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)

func TestTheChallengeOfAScenario(t *testing.T) {
	for scenario, want := range map[string]string{
		"guestbook": "guestbook", "guestbook:v2": "guestbook",
		"registry.example.com/ctf/guestbook:v2":         "guestbook",
		"registry.example.com:5000/ctf/guestbook":       "guestbook",
		"localhost:5000/guestbook@sha256:0123456789abc": "guestbook",
		"oci://x/y/guestbook:v1@sha256:01":              "guestbook",
	} {
		if got := ChallengeName(scenario); got != want {
			t.Errorf("%s: %q, want %q", scenario, got, want)
		}
	}
}

func TestARegistrationIsReadAsItWasWritten(t *testing.T) {
	for name, r := range map[string]Registration{
		"little": {UID: "u", Namespace: "berg", Endpoint: "chall-manager", Token: "ctfd", ID: "1", Scenario: "web"},
		"all": {
			UID: "u", Namespace: "berg", Endpoint: "chall-manager", ID: "../ä\x00", Scenario: "x/web:v1", Timeout: 90 * time.Minute,
			Until: noon.Add(123 * time.Millisecond), UntilText: "2030-01-31T12:00:00.1230Z", Min: 3, Max: 1 << 62,
		},
	} {
		object := r.configMap()
		object.UID = r.UID
		if got, err := read(object); err != nil || got != r {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		object.Name = "another"
		if _, err := read(object); err == nil {
			t.Errorf("%s: a copy under another name is a registration", name)
		}
	}
}

func TestTimeouts(t *testing.T) {
	for name, tc := range map[string]struct {
		r              Registration
		start, renewed time.Time
		want           string
	}{
		"neither":                {Registration{}, noon, noon, ""},
		"from the start":         {Registration{Timeout: 10 * time.Minute}, noon, noon, "600s"},
		"from the renewal":       {Registration{Timeout: 10 * time.Minute}, noon, noon.Add(5 * time.Minute), "900s"},
		"until alone":            {Registration{Until: noon.Add(time.Hour)}, noon, noon, "3601s"}, // spec.until ends it exactly
		"until and a timeout":    {Registration{Timeout: 2 * time.Hour, Until: noon.Add(time.Hour)}, noon, noon, "7200s"},
		"until before the start": {Registration{Until: noon.Add(-time.Hour)}, noon, noon, "1s"},
	} {
		if got := tc.r.timeout(tc.start, tc.renewed); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
	if end := (Registration{Until: noon.Add(1500 * time.Millisecond)}).latestEnd(); !end.Equal(&metav1.Time{Time: noon.Add(time.Second)}) {
		t.Errorf("the end is %s", end)
	}
}

// The end of an instance is the one of its registration, in the words of the platform, or another one.
func TestAnEndComesBackAsItWasSent(t *testing.T) {
	sent := "2030-01-31T13:00:00.250+00:00"
	r := Registration{Until: noon.Add(time.Hour + 250*time.Millisecond), UntilText: sent}
	ends := func(at time.Time) Instance {
		return newInstance(instance(func(i *bergv1.ChallengeInstance) { i.Status.ExpiresAt = &metav1.Time{Time: at} }), r, nil)
	}
	if v := ends(noon.Add(time.Hour)); v.UntilText != sent || !v.Until.Equal(r.Until) {
		t.Errorf("at its until: %q, %s", v.UntilText, v.Until)
	}
	if v := ends(noon.Add(time.Minute)); v.UntilText != "" || !v.Until.Equal(noon.Add(time.Minute)) {
		t.Errorf("earlier: %q, %s", v.UntilText, v.Until)
	}
}

func TestOwnersAndNames(t *testing.T) {
	uuid := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	seen := map[string]string{}
	for _, registration := range []types.UID{"a", "b"} {
		for _, source := range []string{"1", "2", "1\x00"} {
			for _, predecessor := range []types.UID{"", "x", "y"} {
				id := OwnerID(registration, source, predecessor)
				key := string(registration) + "|" + source + "|" + string(predecessor)
				if other, twice := seen[id]; twice || !uuid.MatchString(id) || id != OwnerID(registration, source, predecessor) {
					t.Errorf("%s of %s and %s", id, key, other)
				}
				seen[id] = key
			}
		}
	}
	dns := regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$`)
	for _, challenge := range []string{"web", strings.Repeat("a", 64), strings.Repeat("a", 39) + "." + strings.Repeat("b", 24), "a.b-c"} {
		if name := Name(challenge, OwnerID("a", "1", "")); !dns.MatchString(name) {
			t.Errorf("%s: %s", challenge, name)
		}
	}
	names := map[string]tokens.Grant{}
	for _, g := range []tokens.Grant{{Endpoint: "a", Name: "b"}, {Endpoint: "a", Name: "rehearsal"}, {Endpoint: "ab"}, {Endpoint: "a", Name: "bc"}} {
		for _, id := range []string{"1", "c1"} {
			name := RegistrationName(g, id)
			if other, twice := names[name]; twice {
				t.Errorf("%v and %v share a registration", g, other)
			}
			names[name] = g
		}
	}
}

func TestSources(t *testing.T) {
	for _, source := range []string{"0", "7", "18446744073709551615", "0f8fad5b-d9cb-469f-a165-70867728950e", "a_b.c", strings.Repeat("a", 63)} {
		if err := CheckSource(source); err != nil {
			t.Errorf("%s: %v", source, err)
		}
	}
	for _, source := range []string{"", "-1", "a b", "a/b", "../a", "a,b", "ä", "a\n", strings.Repeat("a", 64), strings.Repeat("a", 1<<20)} {
		if err := CheckSource(source); !Is(err, Invalid) {
			t.Errorf("%.80q: %v", source, err)
		}
	}
}

func instance(change ...func(*bergv1.ChallengeInstance)) *bergv1.ChallengeInstance {
	i := &bergv1.ChallengeInstance{ObjectMeta: metav1.ObjectMeta{Name: "web-1", UID: "1", CreationTimestamp: metav1.NewTime(noon)}}
	for _, c := range change {
		c(i)
	}
	return i
}

func TestOfTwoThatLiveTheOlderOneCounts(t *testing.T) {
	old := instance()
	young := instance(func(i *bergv1.ChallengeInstance) {
		i.Name, i.CreationTimestamp = "web-0", metav1.NewTime(noon.Add(time.Second))
	})
	over := instance(func(i *bergv1.ChallengeInstance) {
		i.Name, i.Spec.TerminationReason, i.CreationTimestamp = "web-2", bergv1.TerminationUserRequest, metav1.NewTime(noon.Add(-time.Second))
	})
	current, others, ending := live([]bergv1.ChallengeInstance{*young, *over, *old})
	if current.Name != "web-1" || len(others) != 1 || others[0].Name != "web-0" || len(ending) != 1 || ending[0].Name != "web-2" {
		t.Errorf("%v, %v, %v", current, others, ending)
	}
}

func TestEveryCauseIsASentence(t *testing.T) {
	for _, cause := range bergv1.Causes {
		i := instance(func(i *bergv1.ChallengeInstance) { i.Status.Cause = cause })
		if v := newInstance(i, Registration{ID: "1"}, nil); v.Reason != view.Explain(cause).Players || v.State == view.Running {
			t.Errorf("%s: %+v", cause, v)
		}
	}
}

// Waiting helps while an instance starts, or its owner's earlier one ends. It does not help with any other cause.
func TestWhenWaitingDoesNotHelp(t *testing.T) {
	for _, cause := range bergv1.Causes {
		i := newInstance(instance(func(i *bergv1.ChallengeInstance) { i.Status.Cause = cause }), Registration{}, nil)
		helps := cause == bergv1.CauseNotReadyYet || cause == bergv1.CauseAddressPending || cause == bergv1.CauseOwnerBusy
		if i.Stuck == helps {
			t.Errorf("%s: stuck is %t", cause, i.Stuck)
		}
		if byItself := view.Explain(cause).Waits; byItself && i.NeedsPerson {
			t.Errorf("%s: it needs a person although it starts by itself", cause)
		}
	}
	if i := newInstance(instance(func(i *bergv1.ChallengeInstance) { i.Status.Phase = bergv1.PhaseFailed }), Registration{}, nil); !i.Stuck || !i.NeedsPerson {
		t.Errorf("failed: %+v", i)
	}
}

// A refused start does not promise that the instance starts automatically, since it was deleted.
func TestARefusalNamesTheLimitAlone(t *testing.T) {
	i := instance(func(i *bergv1.ChallengeInstance) {
		meta.SetStatusCondition(&i.Status.Conditions, metav1.Condition{
			Type: bergv1.ConditionAdmitted, Status: metav1.ConditionFalse, Reason: bergv1.ReasonQueued,
			Message: "Queued: the limit set by SOURCE_MAX_INSTANCES (1) is reached. The instance starts automatically, in creation order, when a slot is free",
		})
	})
	if got := limitReached(i); got != "the limit set by SOURCE_MAX_INSTANCES (1) is reached" {
		t.Errorf("%q", got)
	}
}

func TestFlagsOfAnInstance(t *testing.T) {
	static := &bergv1.Challenge{Spec: bergv1.ChallengeSpec{Flag: "flag{static}", Containers: []bergv1.Container{{Hostname: "web"}}}}
	dynamic := static.DeepCopy()
	dynamic.Spec.Containers[0].DynamicFlag = &bergv1.DynamicFlag{Env: &bergv1.FlagEnv{Name: "FLAG"}}
	own := instance(func(i *bergv1.ChallengeInstance) { i.Spec.Flag = "flag{own}" })
	for name, tc := range map[string]struct {
		i    *bergv1.ChallengeInstance
		c    *bergv1.Challenge
		want string
	}{
		"its own": {own, dynamic, "flag{own}"}, "its own, of a static Challenge": {own, static, "flag{own}"},
		"that of its Challenge": {instance(), static, "flag{static}"},
		"none yet":              {instance(), dynamic, ""}, "without its Challenge": {instance(), nil, ""},
	} {
		if got := strings.Join(newInstance(tc.i, Registration{ID: "1"}, tc.c).Flags, ","); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
