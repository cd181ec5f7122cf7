package challengeinstance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// Snapshot is the part of a Challenge that an instance is built from. It is kept
// in the instance's status, so that a live instance is repaired to what it was
// started with, and not to what the Challenge has become.
type Snapshot struct {
	AllowOutboundTraffic bool               `json:"allowOutboundTraffic,omitempty"`
	Containers           []bergv1.Container `json:"containers,omitempty"`
}

func snapshotOf(c *bergv1.Challenge) Snapshot {
	return Snapshot{AllowOutboundTraffic: c.Spec.AllowOutboundTraffic, Containers: c.Spec.Containers}
}

func (s Snapshot) raw() (*runtime.RawExtension, error) {
	data, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode the Challenge: %w", err)
	}
	return &runtime.RawExtension{Raw: data}, nil
}

// pinnedBy returns what an instance was started with, nil before its start.
func pinnedBy(instance *bergv1.ChallengeInstance) (*Snapshot, error) {
	raw := instance.Status.ChallengeSnapshot
	if raw == nil {
		return nil, nil
	}
	s := &Snapshot{}
	if err := json.Unmarshal(raw.Raw, s); err != nil {
		return nil, fmt.Errorf("status.challengeSnapshot: %w", err)
	}
	return s, nil
}

// equal compares encoded forms: the API server may have reordered the keys of
// one of them, decoding and encoding again puts both in the same order.
func (s Snapshot) equal(other Snapshot) bool {
	a, errA := json.Marshal(s)
	b, errB := json.Marshal(other)
	return errA == nil && errB == nil && bytes.Equal(a, b)
}

func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}
