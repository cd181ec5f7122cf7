package status

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
)

// An instance is up to date while the settings mean the same for it, however they are written.
func TestSettingsThatMeanTheSameAreCurrent(t *testing.T) {
	load := func(tls string) map[string]string {
		return map[string]string{"CHALLENGE_HTTP_TLS": tls, "CHALLENGE_HTTP_PORT": "8080"}
	}
	secure, auto, plain := testConfig(t, load("true")).Challenge, testConfig(t, load("auto")).Challenge, testConfig(t, load("false")).Challenge
	instance := &bergv1.ChallengeInstance{}
	pinned := manifests.NewSnapshot(&bergv1.Challenge{}, auto)
	if !defaultsCurrent(&pinned, secure, instance) || !defaultsCurrent(&pinned, auto, instance) || defaultsCurrent(&pinned, plain, instance) {
		t.Errorf("HTTPTLS %s: current with true %v, auto %v, false %v", pinned.Defaults.HTTPTLS,
			defaultsCurrent(&pinned, secure, instance), defaultsCurrent(&pinned, auto, instance), defaultsCurrent(&pinned, plain, instance))
	}
}

// The default timeout concerns only instances that have none of their own.
func TestTheDefaultTimeoutIsOneOfTheSettings(t *testing.T) {
	cfg := testConfig(t, nil).Challenge
	pinned := manifests.NewSnapshot(&bergv1.Challenge{}, cfg)
	instance := &bergv1.ChallengeInstance{}
	instance.Status.DefaultTimeout = &metav1.Duration{Duration: cfg.Timeout + time.Hour}
	if defaultsCurrent(&pinned, cfg, instance) {
		t.Error("another default timeout counts as current")
	}
	instance.Spec.Timeout = "30m"
	if !defaultsCurrent(&pinned, cfg, instance) {
		t.Error("the default timeout concerns an instance with its own")
	}
}
