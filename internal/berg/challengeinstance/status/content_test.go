package status

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/config"
)

// What pods are made of is compared, and nothing else of a Challenge: the table of docs/berg/author.md.
func TestWhatAnEditMeansForAnInstance(t *testing.T) {
	cfg := config.Challenge{Timeout: time.Hour}
	for name, tc := range map[string]struct {
		edit     func(*bergv1.ChallengeSpec)
		outdated bool
	}{
		"nothing":  {func(*bergv1.ChallengeSpec) {}, false},
		"an image": {func(s *bergv1.ChallengeSpec) { s.Containers[0].Image = "i:2" }, true},
		"a variable": {func(s *bergv1.ChallengeSpec) {
			s.Containers[0].Environment = map[string]bergv1.EnvironmentValue{"A": bergv1.StringValue("b")}
		}, true},
		"the way of the flag": {func(s *bergv1.ChallengeSpec) {
			s.Containers[0].DynamicFlag = &bergv1.DynamicFlag{Env: &bergv1.FlagEnv{Name: "FLAG"}}
		}, true},
		"another container": {func(s *bergv1.ChallengeSpec) {
			s.Containers = append(s.Containers, bergv1.Container{Hostname: "db", Image: "i"})
		}, true},
		"the way to the internet":    {func(s *bergv1.ChallengeSpec) { s.AllowOutboundTraffic = true }, true},
		"the flag of the author":     {func(s *bergv1.ChallengeSpec) { s.Flag = "flag{another}" }, false},
		"the shape of flags":         {func(s *bergv1.ChallengeSpec) { s.FlagFormat = "other{...}" }, false},
		"how flags are made":         {func(s *bergv1.ChallengeSpec) { s.DynamicFlagMode = "suffix" }, false},
		"a text":                     {func(s *bergv1.ChallengeSpec) { s.Description, s.DisplayName, s.Difficulty = "a", "b", "c" }, false},
		"an attachment":              {func(s *bergv1.ChallengeSpec) { s.Attachments = []bergv1.Attachment{{FileName: "a.zip"}} }, false},
		"when players see it":        {func(s *bergv1.ChallengeSpec) { s.HideUntil = "2030-01-01T00:00:00Z" }, false},
		"how many instances may run": {func(s *bergv1.ChallengeSpec) { s.MaxInstances = 3 }, false},
	} {
		pinned := webOnly()
		pinned.Defaults = cfg.Defaults
		out := startingWith(nil, pod("web", true))
		out.Pinned, out.Challenge = &pinned, challengeOf(webOnly())
		wasReady(out.Instance)
		tc.edit(&out.Challenge.Spec)
		compute(out, cfg, noon)
		c := meta.FindStatusCondition(out.Instance.Status.Conditions, bergv1.ConditionUpToDate)
		if outdated := c.Status == metav1.ConditionFalse; outdated != tc.outdated || tc.outdated && c.Reason != bergv1.ReasonChallengeChanged && c.Reason != bergv1.ReasonFlagMissing {
			t.Errorf("%s: UpToDate is %s: %s", name, c.Status, c.Reason)
		}
	}
}
