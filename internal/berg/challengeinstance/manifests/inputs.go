package manifests

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"maps"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/rules"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/naming"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
)

// Inputs is all that a plan depends on.
type Inputs struct {
	UID        types.UID
	Name       types.NamespacedName
	InstanceID string
	// Seed is random: host names and {entropy} follow from it.
	Seed    string
	OwnerID string
	Flag    string
	// Existing is the namespace of a prepared instance that this one took over. Empty: it has a namespace of its own.
	Existing string
	// Prepared: its objects are made without knowledge of the owner and the flag, and Unclaimed: it has none yet.
	Prepared, Unclaimed bool

	ChallengeName      string
	ChallengeNamespace string
	Challenge          Snapshot
	// Source is the label of the instance at its start.
	Source string
	// Images are the digests of the images that rollouts have pulled again, by container.
	Images map[string]string
	// Cause is why the instance does not run until a person acts, "" if nothing keeps it from running.
	Cause bergv1.Cause
	// Recorded are the endpoints in status.services, which players have seen.
	Recorded []bergv1.ServiceEndpoint
	// PullSecrets has, by container, the copies in use. A container without a copy uses the configured name.
	PullSecrets map[string]PullSecretUse

	Config  config.Challenge
	Gateway config.Gateway
}

// OwnershipLabels are the labels of every object of an instance.
var OwnershipLabels = ownership.Labels{
	Domain: bergv1.GroupVersion.Group,
	Owner:  "instance",
	Found:  map[string]string{bergv1.LabelManagedBy: bergv1.ManagedBy},
}

// OwnerFor is the instance as the owner of the objects in its namespace.
func OwnerFor(instance *bergv1.ChallengeInstance) ownership.Owner {
	return OwnershipLabels.For(OwnerUID(instance), nil)
}

// OwnerUID is the UID that the objects of an instance carry: the UID of the prepared instance that it took over, else its own.
func OwnerUID(instance *bergv1.ChallengeInstance) types.UID {
	return cmp.Or(instance.Status.PreparedFrom, instance.UID)
}

// NamespaceFor returns the namespace of an instance. Its owner ID decides, or the prepared instance that it took over.
func NamespaceFor(instance *bergv1.ChallengeInstance) string {
	if instance.Status.PreparedFrom != "" {
		return instance.Status.Namespace
	}
	return NamespaceName(instance.Spec.OwnerID)
}

// NamespaceOwner is the instance as the owner of its namespace. Other clients can create that namespace first, and copy the
// UID of the instance from an event or its status. So an instance that was not started owns no namespace, and a started
// instance owns only a namespace with the UID, or the token, that its status names.
func NamespaceOwner(instance *bergv1.ChallengeInstance) ownership.Owner {
	s := &instance.Status
	if s.InstanceID == "" {
		return ownership.Owner{}
	}
	owner := OwnerFor(instance)
	owner.Token = &ownership.Token{UID: s.NamespaceUID, Digest: s.NamespaceTokenHash}
	return owner
}

// NamespacePrefix begins the name of every instance's namespace; the owner's ID
// follows it.
const NamespacePrefix = "challenge-"

// NamespaceName returns the namespace of an owner's instance.
func NamespaceName(ownerID string) string { return NamespacePrefix + ownerID }

// Namespace is the name of the namespace of the instance.
func (in Inputs) Namespace() string { return cmp.Or(in.Existing, NamespaceName(in.OwnerID)) }

// secret derives a value that stays the same for the life of the instance and that a player
// cannot guess. Purposes are separated by a zero byte, so two lists of words never mean the same.
func (in Inputs) secret(purpose ...string) []byte {
	mac := hmac.New(sha256.New, []byte(in.Seed))
	mac.Write([]byte(in.InstanceID))
	for _, p := range purpose {
		mac.Write([]byte{0})
		mac.Write([]byte(p))
	}
	return mac.Sum(nil)
}

// hostname returns the UUID in the host name of a routed port.
func (in Inputs) hostname(container, port string) string {
	id := uuid.UUID(in.secret("hostname", container, port)[:16])
	id[6] = id[6]&0x0f | 0x80 // version 8, RFC 9562: custom bits
	id[8] = id[8]&0x3f | 0x80
	return id.String()
}

// path puts the instance's entropy into the path of a flag file.
func (in Inputs) path(container string, file bergv1.FlagFile) string {
	return rules.WithEntropy(file.Path, hex.EncodeToString(in.secret("entropy", container))[:len(rules.MaxEntropy)])
}

// meta is the metadata that every object inside the namespace shares.
func (in Inputs) meta(name, component string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name:      name,
		Namespace: in.Namespace(),
		Labels: map[string]string{
			bergv1.LabelManagedBy: bergv1.ManagedBy,
			bergv1.LabelComponent: component,
		},
	}
}

// withSource adds the source of the instance to labels, if it has one.
func (in Inputs) withSource(labels map[string]string) map[string]string {
	if in.Source != "" {
		labels = maps.Clone(labels)
		labels[bergv1.LabelSource] = in.Source
	}
	return labels
}

// templateLabels adds the source to the labels of new pods. One that was prepared gets it later, with the owner.
func (in Inputs) templateLabels(labels map[string]string) map[string]string {
	if in.Prepared {
		return labels
	}
	return in.withSource(labels)
}

// podLabels are the labels of a container's pod, and what selects it. A selector never changes, so that of a prepared instance
// has no owner: OwnerLabels are added to its pods later.
func (in Inputs) podLabels(container string) map[string]string {
	labels := map[string]string{
		bergv1.LabelManagedBy: bergv1.ManagedBy,
		bergv1.LabelComponent: bergv1.ComponentPod,
		bergv1.LabelChallenge: naming.LabelValue(in.ChallengeName),
		bergv1.LabelContainer: container,
	}
	if !in.Prepared {
		labels[bergv1.LabelOwnerID] = in.OwnerID
	}
	return labels
}

// OwnerLabels are the labels of the owner on the pods of an instance that was prepared.
func OwnerLabels(instance *bergv1.ChallengeInstance) map[string]string {
	return Inputs{Source: instance.Status.Source}.withSource(map[string]string{bergv1.LabelOwnerID: instance.Spec.OwnerID})
}
