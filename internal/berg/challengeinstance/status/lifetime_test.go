package status

import (
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
)

// What an earlier version has pinned says nothing of plain HTTP: it told of HTTPS.
func TestDefaultsOfEarlierVersions(t *testing.T) {
	secure := testConfig(t, map[string]string{"CHALLENGE_HTTP_TLS": "true", "CHALLENGE_HTTP_PORT": "8080"}).Challenge
	plain := testConfig(t, map[string]string{"CHALLENGE_HTTP_TLS": "false", "CHALLENGE_HTTP_PORT": "8080"}).Challenge
	data, err := json.Marshal(manifests.NewDefaults(secure))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(data), "plainHTTP") {
		t.Errorf("not as an earlier version writes it: %s", data)
	}
	earlier := &manifests.Defaults{}
	instance := &bergv1.ChallengeInstance{}
	if err := json.Unmarshal(data, earlier); err != nil {
		t.Fatal(err)
	}
	if !defaultsCurrent(&manifests.Snapshot{Defaults: earlier}, secure, instance) || defaultsCurrent(&manifests.Snapshot{Defaults: earlier}, plain, instance) || !earlier.ApplyTo(plain).UsesHTTPS() {
		t.Errorf("up to date %v and %v, TLS %v", defaultsCurrent(&manifests.Snapshot{Defaults: earlier}, secure, instance), defaultsCurrent(&manifests.Snapshot{Defaults: earlier}, plain, instance), earlier.ApplyTo(plain).UsesHTTPS())
	}
	if now := manifests.NewDefaults(plain); !defaultsCurrent(&manifests.Snapshot{Defaults: now}, plain, instance) || now.ApplyTo(secure).UsesHTTPS() {
		t.Errorf("plain HTTP is not pinned: %+v", now)
	}
}

// What an earlier version started has none of this pinned, and a rollout would change its pods.
func TestPodsOfAnEarlierVersionAreNotUpToDate(t *testing.T) {
	instance := &bergv1.ChallengeInstance{}
	instance.Status.ChallengeSnapshot = &runtime.RawExtension{Raw: []byte(`{
		"containers": [{"hostname": "web", "image": "example.com/web:1"}],
		"defaults": {"domain": "challenges.example.com", "httpPort": 80, "tlsPort": 443,
			"cpuLimit": "1", "cpuRequest": "100m", "memoryLimit": "512Mi", "memoryRequest": "128Mi",
			"egressBandwidth": "10M", "ingressBandwidth": "10M", "imagePullPolicy": "IfNotPresent"}}`)}
	pinned, err := manifests.StoredSnapshot(instance, testRing)
	if err != nil {
		t.Fatal(err)
	}
	cfg := testConfig(t, map[string]string{"CHALLENGE_USER_NAMESPACES": "true"})
	if defaultsCurrent(pinned, cfg.Challenge, instance) {
		t.Error("it counts as up to date, though a rollout would change its pods")
	}
}
