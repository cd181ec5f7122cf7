package manifests

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/rules"
	"github.com/bergctf/berg-operator/internal/berg/sealed"
	"github.com/bergctf/berg-operator/internal/berg/sealkey"
	"github.com/bergctf/berg-operator/internal/config"
)

// Snapshot is what the pods of an instance are built from. It is stored in the status of the
// instance, so that a live instance is repaired to the state it was started with. A later
// state of the Challenge or of the configuration would restart its pods.
type Snapshot struct {
	AllowOutboundTraffic bool
	Containers           []bergv1.Container
	// Defaults is nil until the instance is started.
	Defaults *Defaults
	// Images are the digests of the images that rollouts have pulled once more, by container.
	Images map[string]string
	// Seal is how the private part of the containers was stored.
	Seal Seal
}

// Seal is how the private part of the containers of a snapshot was stored: their variables, commands and probes.
type Seal int

// The kinds of seal.
const (
	// SealCurrent: it was sealed with the key that seals now, or there is nothing to seal.
	SealCurrent Seal = iota
	// SealOutdated: a version that sealed nothing has stored it, or it was sealed with a former key.
	SealOutdated
	// SealLost: it does not open. Of the variables only the names are known, and nothing of commands and probes.
	SealLost
)

// stored is a snapshot in a status.
type stored struct {
	AllowOutboundTraffic bool               `json:"allowOutboundTraffic,omitempty"`
	Containers           []sealed.Container `json:"containers,omitempty"`
	Defaults             *Defaults          `json:"defaults,omitempty"`
	Images               map[string]string  `json:"images,omitempty"`
	// Sealed has a sealed.Private of each container, in their order, as JSON. It opens for the instance alone. "": none of
	// them has anything private, or all is readable.
	Sealed string `json:"sealed,omitempty"`
}

// Defaults is the part of the configuration that pods and the published addresses are built
// from.
type Defaults struct {
	Domain           string            `json:"domain,omitempty"`
	HTTPPort         int32             `json:"httpPort,omitempty"`
	TLSPort          int32             `json:"tlsPort,omitempty"`
	PlainHTTP        bool              `json:"plainHTTP,omitempty"` // absent: HTTPS, as before there was a choice
	CPULimit         resource.Quantity `json:"cpuLimit"`
	CPURequest       resource.Quantity `json:"cpuRequest"`
	MemoryLimit      resource.Quantity `json:"memoryLimit"`
	MemoryRequest    resource.Quantity `json:"memoryRequest"`
	EgressBandwidth  string            `json:"egressBandwidth,omitempty"`
	IngressBandwidth string            `json:"ingressBandwidth,omitempty"`
	ImagePullPolicy  corev1.PullPolicy `json:"imagePullPolicy,omitempty"`
	RuntimeClassName string            `json:"runtimeClassName,omitempty"`
	PullSecretName   string            `json:"pullSecretName,omitempty"`

	// Earlier versions stored none of these: the pods of their instances do without them.
	EphemeralStorageLimit   resource.Quantity         `json:"ephemeralStorageLimit,omitzero"`
	EphemeralStorageRequest resource.Quantity         `json:"ephemeralStorageRequest,omitzero"`
	SeccompProfile          corev1.SeccompProfileType `json:"seccompProfile,omitempty"`
	UserNamespaces          bool                      `json:"userNamespaces,omitempty"`
	// PlainUserNamespaces: pods without a RuntimeClass run in a user namespace.
	PlainUserNamespaces  bool   `json:"plainUserNamespaces,omitempty"`
	NestedSeccompProfile string `json:"nestedSeccompProfile,omitempty"`
	// AnnotatedPods: pods carry the ID of their instance. They do not carry its UID as its other
	// objects do: secrets are derived from the UID, and players control the pods.
	AnnotatedPods bool `json:"markedPods,omitempty"`
	// LiteralVariables: the author's variables reach the program as they are written. Earlier versions let Kubernetes
	// expand $(NAME) and $$ in them.
	LiteralVariables bool `json:"literalVariables,omitempty"`
	// EngineDefaults: pods have what container engines give to containers: every user may listen on ports below 1024 and
	// use ping, and /dev/shm has room for a browser.
	EngineDefaults bool `json:"engineDefaults,omitempty"`
	// StartupProbes: a container without a readiness probe is ready when a public port accepts a connection.
	StartupProbes bool `json:"startupProbes,omitempty"`
	// Source is the label of the instance at its start. A change of it must not restart pods.
	Source string `json:"source,omitempty"`
	// StaticFlag: the Challenge had a flag of its own. If that was changed since, the old one is not
	// known any more, and what containers wrote is not kept.
	StaticFlag bool `json:"staticFlag,omitempty"`
	// Timeout is the lifetime of an instance without spec.timeout. Nil: the instance was
	// started by a version that did not store it, and the current configuration applies.
	Timeout *metav1.Duration `json:"timeout,omitempty"`
}

// NewSnapshot normalises a Challenge.
func NewSnapshot(c *bergv1.Challenge) Snapshot {
	return Snapshot{AllowOutboundTraffic: c.Spec.AllowOutboundTraffic, Containers: c.Spec.Containers}.normal()
}

// normal returns a snapshot in a form that survives being stored, and in which two snapshots
// that result in the same pods are equal. Values of variables are strings, as a container
// sees them: an API server may reformat numbers, and null in a merge patch means deletion.
func (s Snapshot) normal() Snapshot {
	s.Containers = slices.Clone(s.Containers)
	for i := range s.Containers {
		c := &s.Containers[i]
		if len(c.Environment) == 0 {
			continue
		}
		texts := make(map[string]bergv1.EnvironmentValue, len(c.Environment))
		for name, value := range c.Environment {
			if text, err := value.Text(); err == nil { // Validate refuses the others
				value = bergv1.StringValue(text)
			}
			texts[name] = value
		}
		c.Environment = texts
	}
	return s
}

// NewDefaults returns the part of the configuration that an instance keeps.
func NewDefaults(cfg config.Challenge) *Defaults {
	return &Defaults{
		Domain: cfg.Domain, HTTPPort: cfg.HTTPPort, TLSPort: cfg.TLSPort, PlainHTTP: !cfg.UsesHTTPS(),
		CPULimit: cfg.CPULimit, CPURequest: cfg.CPURequest,
		MemoryLimit: cfg.MemoryLimit, MemoryRequest: cfg.MemoryRequest,
		EgressBandwidth: cfg.EgressBandwidth, IngressBandwidth: cfg.IngressBandwidth,
		ImagePullPolicy: cfg.ImagePullPolicy, RuntimeClassName: cfg.RuntimeClassName, PullSecretName: cfg.PullSecretName,
		EphemeralStorageLimit: cfg.EphemeralStorageLimit, EphemeralStorageRequest: cfg.EphemeralStorageRequest,
		SeccompProfile: cfg.SeccompProfile, UserNamespaces: cfg.UserNamespaces == config.UserNamespacesTrue, PlainUserNamespaces: cfg.UserNamespaces == config.UserNamespacesPlain, NestedSeccompProfile: cfg.NestedSeccompProfile,
		AnnotatedPods: true, LiteralVariables: true, EngineDefaults: true, StartupProbes: true,
		Timeout: &metav1.Duration{Duration: cfg.Timeout},
	}
}

// ApplyTo returns the configuration with the stored values instead of the current ones.
func (d *Defaults) ApplyTo(cfg config.Challenge) config.Challenge {
	if d == nil {
		return cfg
	}
	cfg.Domain, cfg.HTTPPort, cfg.TLSPort, cfg.HTTPTLS = d.Domain, d.HTTPPort, d.TLSPort, config.HTTPTLSFor(!d.PlainHTTP)
	cfg.CPULimit, cfg.CPURequest = d.CPULimit, d.CPURequest
	cfg.MemoryLimit, cfg.MemoryRequest = d.MemoryLimit, d.MemoryRequest
	cfg.EgressBandwidth, cfg.IngressBandwidth = d.EgressBandwidth, d.IngressBandwidth
	cfg.ImagePullPolicy, cfg.RuntimeClassName, cfg.PullSecretName = d.ImagePullPolicy, d.RuntimeClassName, d.PullSecretName
	cfg.EphemeralStorageLimit, cfg.EphemeralStorageRequest = d.EphemeralStorageLimit, d.EphemeralStorageRequest
	cfg.SeccompProfile, cfg.UserNamespaces, cfg.NestedSeccompProfile = d.SeccompProfile, d.userNamespaces(), d.NestedSeccompProfile
	return cfg
}

func (d *Defaults) userNamespaces() config.UserNamespaces {
	switch {
	case d.UserNamespaces:
		return config.UserNamespacesTrue
	case d.PlainUserNamespaces:
		return config.UserNamespacesPlain
	default:
		return config.UserNamespacesFalse
	}
}

// HasExpansions reports whether Kubernetes would change the value of a variable, which is a string in every snapshot.
func (s Snapshot) HasExpansions() bool {
	for _, c := range s.Containers {
		for _, value := range c.Environment {
			if text, _ := value.Text(); strings.Contains(text, "$") {
				return true
			}
		}
	}
	return false
}

// Encode returns the snapshot as it is stored in the status of an instance.
func (s Snapshot) Encode(ring *sealkey.Ring, owner types.UID) (*runtime.RawExtension, error) {
	out := s.plain()
	if private := s.private(); slices.ContainsFunc(private, isPrivate) {
		text, err := json.Marshal(private)
		if err != nil {
			return nil, fmt.Errorf("encode the Challenge: %w", err)
		}
		out = s.public()
		if out.Sealed, err = ring.Seal(text, string(owner)); err != nil {
			return nil, fmt.Errorf("seal the Challenge: %w", err)
		}
	}
	data, err := json.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("encode the Challenge: %w", err)
	}
	return &runtime.RawExtension{Raw: data}, nil
}

func isPrivate(p sealed.Private) bool { return !p.IsZero() }

// private is what Encode seals.
func (s Snapshot) private() []sealed.Private {
	all := make([]sealed.Private, 0, len(s.Containers))
	for _, c := range s.Containers {
		all = append(all, sealed.PrivateOf(c))
	}
	return all
}

// plain is the snapshot with everything readable.
func (s Snapshot) plain() stored { return s.storedAs(sealed.Plain) }

// public is the snapshot without what is sealed.
func (s Snapshot) public() stored { return s.storedAs(sealed.Public) }

func (s Snapshot) storedAs(form func(bergv1.Container) sealed.Container) stored {
	out := stored{AllowOutboundTraffic: s.AllowOutboundTraffic, Defaults: s.Defaults, Images: s.Images}
	for _, c := range s.Containers {
		out.Containers = append(out.Containers, form(c))
	}
	return out
}

// StoredSnapshot returns what an instance was started with, nil before its start. Without keys nothing is opened.
func StoredSnapshot(instance *bergv1.ChallengeInstance, ring *sealkey.Ring) (*Snapshot, error) {
	raw := instance.Status.ChallengeSnapshot
	if raw == nil {
		return nil, nil
	}
	in := stored{}
	if err := json.Unmarshal(raw.Raw, &in); err != nil {
		return nil, fmt.Errorf("status.challengeSnapshot: %w", err)
	}
	s := &Snapshot{AllowOutboundTraffic: in.AllowOutboundTraffic, Defaults: in.Defaults, Images: in.Images}
	names := false
	for _, c := range in.Containers {
		s.Containers = append(s.Containers, c.Open())
		names = names || c.Environment.Sealed()
	}
	switch {
	case in.Sealed != "" || names:
		s.open(in.Sealed, ring, instance.UID)
	case slices.ContainsFunc(s.private(), isPrivate):
		s.Seal = SealOutdated
	}
	return s, nil
}

// open puts what is sealed into the containers.
func (s *Snapshot) open(text string, ring *sealkey.Ring, owner types.UID) {
	s.Seal = SealLost
	if ring == nil {
		return
	}
	opened, err := ring.Open(text, string(owner))
	if err != nil {
		return
	}
	var private []sealed.Private
	if json.Unmarshal(opened, &private) != nil || len(private) != len(s.Containers) {
		return
	}
	for n := range private {
		private[n].Put(&s.Containers[n])
	}
	s.Seal = SealCurrent
	if !ring.IsCurrent(text) {
		s.Seal = SealOutdated
	}
}

// WithValuesFrom returns a snapshot that does not open, with the values that the Challenge has now. ok is false if all
// else is not as in the Challenge.
func (s Snapshot) WithValuesFrom(c *bergv1.Challenge) (found Snapshot, ok bool) {
	now := NewSnapshot(c)
	was := s
	was.Defaults, was.Images = nil, nil
	if !sealed.Same(was.public(), now.public()) {
		return s, false
	}
	s.Containers, s.Seal = now.Containers, SealOutdated
	return s, true
}

// Validate returns the errors of the Challenge, each naming its field. allowed is what the administrator allows.
func (s Snapshot) Validate(allowed rules.Allowed) field.ErrorList {
	return rules.Validate(s.Containers, allowed)
}

// Matches reports whether a Challenge results in this snapshot. It compares encoded normal
// forms: the API server may have reordered the keys of one of them, and decoding and encoding
// puts both into the same order.
func (s Snapshot) Matches(c *bergv1.Challenge) bool {
	s = s.normal() // an earlier version may have stored another form
	s.Defaults, s.Images = nil, nil
	return sealed.Same(s.plain(), NewSnapshot(c).plain())
}

// ChangesOfPrivate are those of a Challenge since the snapshot that who reads the instance does not see in it. A
// container that was added or removed is seen.
func (s Snapshot) ChangesOfPrivate(c *bergv1.Challenge) (all []sealed.Changed) {
	for _, was := range s.normal().Containers {
		for _, now := range NewSnapshot(c).Containers {
			if now.Hostname == was.Hostname {
				all = append(all, sealed.Changed{Hostname: was.Hostname, What: sealed.Changes(sealed.PrivateOf(was), sealed.PrivateOf(now))})
			}
		}
	}
	return all
}

func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}
