package instances

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/kit/naming"
	"github.com/bergctf/berg-operator/internal/platform/tokens"
)

// LabelRegistration on a ConfigMap makes it a registration; its value is the endpoint. On an instance it is the name of
// its registration.
const LabelRegistration = "berg.norelect.ch/registration"

// AnnotationRenewedAt on an instance is the time of the last renewal by a player, in RFC 3339.
const AnnotationRenewedAt = "berg.norelect.ch/renewed-at"

// The keys of a registration's ConfigMap.
const (
	keyID       = "id"
	keyScenario = "scenario"
	keyTimeout  = "timeout"
	keyUntil    = "until"
	keyMin      = "min"
	keyMax      = "max"
	// keyToken is the key of the platform's token in the Secret, not the token.
	keyToken = "tokenKey"
	// keyRefused is the time at which a second creation of the same id was refused, in RFC 3339.
	keyRefused = "refusedAt"
)

// dataKeys are all keys.
var dataKeys = []string{keyID, keyScenario, keyTimeout, keyUntil, keyMin, keyMax, keyToken, keyRefused}

// Registration is a challenge as a platform knows it. It is kept as a ConfigMap.
type Registration struct {
	// UID of the ConfigMap; "" before it is created.
	UID types.UID
	// Namespace of the ConfigMap, of its Challenge and of its instances.
	Namespace string
	// Endpoint through which the platform comes, Token the key of its token in the Secret, and ID the id that it uses.
	Endpoint, Token, ID string
	// Scenario is the name of the Challenge, or a reference whose last part without tag is that name.
	Scenario string
	// Timeout of an instance from its start or its last renewal. 0: the operator's default, no renewal.
	Timeout time.Duration
	// Until is the latest end of every instance. Zero: there is no such time. UntilText is that time as the platform sent it.
	Until     time.Time
	UntilText string
	// Min and Max are for the Challenge as spec.warm, which comes first. With a Min above 0 the operator also pulls the images of
	// the Challenge ahead, where IMAGE_PREPULL_LEAD is set.
	Min, Max int64
}

// NewRegistration returns the registration of an id for the owner of a token.
func NewRegistration(g tokens.Grant, id string) Registration {
	return Registration{Namespace: g.Namespace, Endpoint: g.Endpoint, Token: g.Name, ID: id}
}

// Name is metadata.name of the ConfigMap.
func (r Registration) Name() string {
	return RegistrationName(tokens.Grant{Endpoint: r.Endpoint, Name: r.Token}, r.ID)
}

// Challenge is the name of the Challenge: the last part of the scenario without tag and digest.
func (r Registration) Challenge() string { return ChallengeName(r.Scenario) }

// ChallengeName is the name of the Challenge that a scenario stands for.
func ChallengeName(scenario string) string {
	reference, _, _ := strings.Cut(scenario, "@")
	last := path.Base(reference)
	name, _, _ := strings.Cut(last, ":")
	return name
}

// expired reports whether the last time for instances is over, in whole seconds, as spec.until ends them.
func (r Registration) expired(now time.Time) bool {
	end := r.latestEnd()
	return end != nil && !now.Before(end.Time)
}

// errOver is the refusal of a start or a renewal after the last time for instances.
func (r Registration) errOver() error {
	return failPlayers(Refused, "The time for this challenge is over.", "challenge %s ended at %s: change its until", r.ID, r.Until.UTC().Format(time.RFC3339))
}

// timeout is spec.timeout of an instance that was started, or is about to be, and was renewed last: from start to end
// in whole seconds. "": the operator's default. Without a Timeout the instance lives until Until, which spec.until ends exactly.
// A renewal changes the whole length, since the operator counts from the start.
func (r Registration) timeout(start, renewed time.Time) string {
	var lives time.Duration
	switch {
	case r.Timeout > 0:
		lives = renewed.Sub(start) + r.Timeout
	case !r.Until.IsZero():
		lives = max(r.Until.Sub(start), 0) + time.Second
	default:
		return ""
	}
	return secondsText(lives)
}

func secondsText(lives time.Duration) string {
	return strconv.FormatInt(max(int64(lives.Round(time.Second)/time.Second), 1), 10) + "s"
}

// latestEnd is spec.until of an instance, nil for none.
func (r Registration) latestEnd() *metav1.Time {
	if r.Until.IsZero() {
		return nil
	}
	return &metav1.Time{Time: r.Until.Truncate(time.Second)}
}

// configMap is the object that keeps the registration. read must return the same registration from it.
func (r Registration) configMap() *corev1.ConfigMap {
	data := map[string]string{keyID: r.ID, keyToken: r.Token, keyScenario: r.Scenario}
	if r.Timeout > 0 {
		data[keyTimeout] = r.Timeout.String()
	}
	if !r.Until.IsZero() {
		data[keyUntil] = cmp.Or(r.UntilText, r.Until.UTC().Format(time.RFC3339Nano))
	}
	if r.Min != 0 {
		data[keyMin] = strconv.FormatInt(r.Min, 10)
	}
	if r.Max != 0 {
		data[keyMax] = strconv.FormatInt(r.Max, 10)
	}
	labels := map[string]string{LabelRegistration: r.Endpoint, bergv1.LabelManagedBy: bergv1.ManagedByAPI}
	if r.Min > 0 { // players are expected
		labels[bergv1.LabelPrepullChallenge] = naming.LabelValue(r.Challenge())
		labels[bergv1.LabelWarm] = fmt.Sprintf("%d-%d", r.Min, r.Max)
	}
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.Namespace, Name: r.Name(),
			Labels: labels,
		},
		Data: data,
	}
}

// read returns the registration that a ConfigMap keeps. The name of the ConfigMap must follow from the id in it: a
// renamed or copied object is no registration.
func read(object *corev1.ConfigMap) (Registration, error) {
	r := Registration{
		UID: object.UID, Namespace: object.Namespace,
		Endpoint: object.Labels[LabelRegistration], Token: object.Data[keyToken], ID: object.Data[keyID], Scenario: object.Data[keyScenario],
	}
	if object.Name != r.Name() {
		return r, fmt.Errorf("ConfigMap %s is not the registration of its id: delete it", object.Name)
	}
	var err error
	fail := func(key string, cause error) {
		if err == nil && cause != nil {
			err = fmt.Errorf("ConfigMap %s, key %s: %w", object.Name, key, cause)
		}
	}
	if text := object.Data[keyTimeout]; text != "" {
		var parsed error
		r.Timeout, parsed = time.ParseDuration(text)
		fail(keyTimeout, parsed)
	}
	if text := object.Data[keyUntil]; text != "" {
		var parsed error
		r.Until, parsed = time.Parse(time.RFC3339Nano, text)
		r.UntilText = text
		fail(keyUntil, parsed)
	}
	for key, to := range map[string]*int64{keyMin: &r.Min, keyMax: &r.Max} {
		if text := object.Data[key]; text != "" {
			var parsed error
			*to, parsed = strconv.ParseInt(text, 10, 64)
			fail(key, parsed)
		}
	}
	return r, err
}

// RolloutValue is the value of the annotation that lets instances adopt their Challenge after a scenario has another
// tag.
func RolloutValue(scenario string) string {
	sum := sha256.Sum256([]byte(scenario))
	return "scenario-" + hex.EncodeToString(sum[:])[:nameDigits]
}
