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

// Snapshot is what a challenge was started with. The definition may be changed or deleted
// since, and so may the settings: what a player works in stays as it is.
type Snapshot struct {
	Components []hexactfv1.Component `json:"components"`
	// Isolated is HEXACTF_ISOLATION as it was at the start.
	Isolated bool `json:"isolated"`
	// Egress and PodCIDRs are HEXACTF_EGRESS and HEXACTF_POD_CIDRS as they were at the start.
	// Egress is "" in what an operator noted that did not keep them: then they are as they are now.
	Egress   config.Egress  `json:"egress,omitempty"`
	PodCIDRs []netip.Prefix `json:"podCIDRs,omitempty"`
}

// snapshotOf returns what a challenge is started with.
func snapshotOf(definition *hexactfv1.ChallengeDefinition, cfg config.HexaCTF) *Snapshot {
	return &Snapshot{Components: definition.Spec.Components, Isolated: cfg.Isolation, Egress: cfg.Egress, PodCIDRs: cfg.PodCIDRs}
}

func (s *Snapshot) raw() (*runtime.RawExtension, error) {
	data, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode the definition: %w", err)
	}
	return &runtime.RawExtension{Raw: data}, nil
}

// startedWith returns what a challenge was started with, nil if it was not started.
func startedWith(c *hexactfv1.Challenge) (*Snapshot, error) {
	if c.Status.DefinitionSnapshot == nil {
		return nil, nil
	}
	s := &Snapshot{}
	if err := json.Unmarshal(c.Status.DefinitionSnapshot.Raw, s); err != nil {
		return nil, fmt.Errorf("read status.definitionSnapshot: %w", err)
	}
	return s, nil
}

// inherited reports whether a challenge runs that another operator has started, which kept no
// note of what it was started with.
func inherited(c *hexactfv1.Challenge) bool {
	return c.Status.StartedAt != nil && c.Status.DefinitionSnapshot == nil && c.Status.CurrentStatus.State == hexactfv1.StateRunning
}

// durationOf is how long a challenge of a definition lives, 0 for ever. A definition that
// nobody has found says nothing, and neither does one that says what no schema allows.
func durationOf(definition *hexactfv1.ChallengeDefinition) time.Duration {
	switch {
	case definition == nil:
		return hexactfv1.DefaultDuration
	case definition.Spec.IsOne:
		return 0
	case definition.Spec.Duration == nil, !lives(definition.Spec.Duration.Duration):
		return hexactfv1.DefaultDuration
	default:
		return definition.Spec.Duration.Duration
	}
}

// limit writes until when a challenge lives. It must have been started.
func limit(s *hexactfv1.ChallengeStatus, definition *hexactfv1.ChallengeDefinition) {
	s.IsOne = definition != nil && definition.Spec.IsOne
	s.ExpiresAt = nil
	if d := durationOf(definition); d > 0 {
		s.ExpiresAt = &metav1.Time{Time: s.StartedAt.Add(d)}
	}
}

// Identity is for whom a challenge is, and of which problem.
type Identity struct {
	ChallengeID, User string
}

// identityOf returns what the labels said at the start; before it, what they say.
func identityOf(c *hexactfv1.Challenge) Identity {
	return Identity{
		ChallengeID: cmp.Or(c.Status.ChallengeID, c.Labels[hexactfv1.LabelChallengeID]),
		User:        cmp.Or(c.Status.User, c.Labels[hexactfv1.LabelUser]),
	}
}
