package challenge

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	"github.com/bergctf/berg-operator/internal/config"
)

// Snapshot holds the inputs that a challenge was started with. A later change of the definition or of the settings does
// not change the challenge of a player. It is stored as JSON, so the names of its fields must not change while challenges live.
type Snapshot struct {
	Components []hexactfv1.Component `json:"components"`
	// Isolated is HEXACTF_ISOLATION as it was at the start.
	Isolated bool `json:"isolated"`
	// Egress and PodCIDRs are HEXACTF_EGRESS and HEXACTF_POD_CIDRS as they were at the start.
	Egress   config.Egress  `json:"egress,omitempty"`
	PodCIDRs []netip.Prefix `json:"podCIDRs,omitempty"`
}

// isolatedGraceSeconds bounds how long an isolated challenge that is being deleted waits for its pods, and the player
// for the next one of the same name.
const isolatedGraceSeconds = 2

// newSnapshot returns the snapshot for a start.
func newSnapshot(definition *hexactfv1.ChallengeDefinition, cfg config.HexaCTF) *Snapshot {
	return &Snapshot{Components: definition.Spec.Components, Isolated: cfg.Isolation, Egress: cfg.Egress, PodCIDRs: cfg.PodCIDRs}
}

func (s *Snapshot) raw() (*runtime.RawExtension, error) {
	data, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode the definition: %w", err)
	}
	return &runtime.RawExtension{Raw: data}, nil
}

// decodeSnapshot returns the snapshot of a challenge, nil if it was not started. A snapshot that cannot be read is an error. A
// challenge is never built from the present definition in its place.
func decodeSnapshot(c *hexactfv1.Challenge) (*Snapshot, error) {
	if c.Status.DefinitionSnapshot == nil {
		return nil, nil
	}
	s := &Snapshot{}
	if err := json.Unmarshal(c.Status.DefinitionSnapshot.Raw, s); err != nil {
		return nil, fmt.Errorf("read status.definitionSnapshot: %w", err)
	}
	return s, nil
}

// inherited reports whether another operator, which records no snapshot, has started a challenge that runs.
func inherited(c *hexactfv1.Challenge) bool {
	return c.Status.StartedAt != nil && c.Status.DefinitionSnapshot == nil && c.Status.CurrentStatus.State == hexactfv1.StateRunning
}

// effectiveDuration is how long a challenge of a definition lives, 0 for no limit. The default applies to a missing definition,
// and to a duration that the schema does not allow.
func effectiveDuration(definition *hexactfv1.ChallengeDefinition) time.Duration {
	switch {
	case definition == nil:
		return hexactfv1.DefaultDuration
	case definition.Spec.IsOne:
		return 0
	case definition.Spec.Duration == nil, !validDuration(definition.Spec.Duration.Duration):
		return hexactfv1.DefaultDuration
	default:
		return definition.Spec.Duration.Duration
	}
}

// setExpiry writes when a challenge expires. It must have startedAt.
func setExpiry(s *hexactfv1.ChallengeStatus, definition *hexactfv1.ChallengeDefinition) {
	s.IsOne = definition != nil && definition.Spec.IsOne
	s.ExpiresAt = nil
	if d := effectiveDuration(definition); d > 0 {
		s.ExpiresAt = &metav1.Time{Time: s.StartedAt.Add(d)}
	}
}

// Identity is the problem and the player of a challenge.
type Identity struct {
	ChallengeID, User string
}

// challengeIdentity returns the identity by the labels at the start; before it, by the present labels.
func challengeIdentity(c *hexactfv1.Challenge) Identity {
	return Identity{
		ChallengeID: cmp.Or(c.Status.ChallengeID, c.Labels[hexactfv1.LabelChallengeID]),
		User:        cmp.Or(c.Status.User, c.Labels[hexactfv1.LabelUser]),
	}
}
