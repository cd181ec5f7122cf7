package digests

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func TestTheContainerThatStartedLastHasTheNewestImage(t *testing.T) {
	var (
		l       Latest
		web     = types.NamespacedName{Namespace: "berg", Name: "web"}
		noon    = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
		running = func(image, digest string, minutes int) Running {
			return Running{Image: image, Digest: digest, Started: noon.Add(time.Duration(minutes) * time.Minute)}
		}
	)
	for n, step := range []struct {
		challenge types.NamespacedName
		container string
		now       Running
		newest    string
		changed   bool
	}{
		{web, "web", running("a:1", "one", 1), "one", false},
		{web, "web", running("a:1", "one", 2), "one", false},
		{web, "web", running("a:1", "two", 3), "two", true},
		{web, "web", running("a:1", "one", 1), "two", false}, // the first one is out of date
		{web, "web", running("a:1", "two", 4), "two", false},
		{web, "db", running("a:1", "one", 5), "one", false},                                                     // another container
		{types.NamespacedName{Namespace: "berg", Name: "other"}, "web", running("a:1", "one", 6), "one", false}, // another Challenge
		{web, "web", running("a:2", "three", 7), "three", false},                                                // the Challenge was edited
		{web, "web", running("a:1", "two", 4), "two", false},                                                    // which its condition shows otherwise
		{web, "web", running("a:2", "one", 8), "one", true},                                                     // a tag that was set back
	} {
		newest, changed := l.Note(step.challenge, step.container, step.now)
		if newest != step.newest || changed != step.changed {
			t.Errorf("step %d: %s, %t", n, newest, changed)
		}
	}
	l.Forget(web)
	if newest, changed := l.Note(web, "web", running("a:2", "old", 0)); newest != "old" || changed {
		t.Errorf("not forgotten: %s, %t", newest, changed)
	}
}

func TestWhatIsKnownIsBounded(t *testing.T) {
	var l Latest
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	l.Forget(types.NamespacedName{Name: "never seen"})
	for n := range 3 * maxChallenges {
		l.Note(types.NamespacedName{Namespace: "berg", Name: fmt.Sprint(n)}, "web", Running{Image: "a:1", Digest: "one", Started: noon})
	}
	if got := l.Len(); got != maxChallenges {
		t.Errorf("%d Challenges, want %d", got, maxChallenges)
	}
	web := types.NamespacedName{Namespace: "berg", Name: "web"}
	for n := range 3 * maxContainers { // as after so many edits of hostnames
		l.Note(web, fmt.Sprint(n), Running{Image: "a:1", Digest: "one", Started: noon.Add(time.Duration(n) * time.Minute)})
	}
	if got := len(l.forChallenge(web)); got != maxContainers {
		t.Errorf("%d containers, want %d", got, maxContainers)
	}
	// The last ones are known, and the first are not.
	for n, want := range map[int]string{3*maxContainers - 1: "one", 0: "two"} {
		if newest, _ := l.Note(web, fmt.Sprint(n), Running{Image: "a:1", Digest: "two", Started: noon}); newest != want {
			t.Errorf("container %d: %s, want %s", n, newest, want)
		}
	}
}

func TestShort(t *testing.T) {
	for id, want := range map[string]string{
		"ghcr.io/a/b@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef": "0123456789abcdef",
		"sha256:0123": "0123",
		"a:1":         "",
		"":            "",
	} {
		if got := Short(id); got != want {
			t.Errorf("%s: %s", id, got)
		}
	}
}
