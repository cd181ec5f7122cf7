package instances

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bergctf/berg-operator/internal/kit/naming"
	"github.com/bergctf/berg-operator/internal/platform/tokens"
)

const (
	// maxNameHead bounds the part of an instance's name that is the Challenge's, so that a list stays readable.
	maxNameHead = 40
	// nameDigits of the owner's ID make the name of an instance unique: 48 bits.
	nameDigits = 12
	// registrationDigits of a hash make the name of a registration unique: 80 bits.
	registrationDigits = 20
)

// OwnerID is spec.ownerId of the instance for a source. The UID of the registration is the key: names stay apart when
// a platform uses the id of a deleted challenge for another one. predecessor is the UID of the instance that ends
// when this one is made, "" if there is none: a restart has a namespace of its own, and does not wait. Two replicas
// that see the same predecessor make the same ID.
func OwnerID(registration types.UID, source string, predecessor types.UID) string {
	mac := hmac.New(sha256.New, []byte(registration))
	mac.Write([]byte(source + "\x00" + string(predecessor)))
	var id uuid.UUID
	copy(id[:], mac.Sum(nil))
	id[6] = id[6]&0x0f | 0x80 // version 8: made by a rule of our own, RFC 9562
	id[8] = id[8]&0x3f | 0x80
	return id.String()
}

// Name is metadata.name of the instance with an owner's ID. It is made of the owner's ID alone, so a second creation of the same
// instance meets the first one.
func Name(challenge, ownerID string) string {
	digits := strings.ReplaceAll(ownerID, "-", "")
	return strings.TrimRight(naming.Within(challenge, maxNameHead), ".-") + "-" + digits[:nameDigits]
}

// RegistrationName is metadata.name of the ConfigMap for an id that a platform sends. The id may be any text. The key of the
// platform's token is part of it: two platforms, or a rehearsal, use the same ids for different challenges.
func RegistrationName(g tokens.Grant, id string) string {
	sum := sha256.Sum256([]byte(g.Endpoint + "\x00" + g.Name + "\x00" + id))
	return "registration-" + hex.EncodeToString(sum[:])[:registrationDigits]
}
