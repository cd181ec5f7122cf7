// Package revisions stores the contents that instances were started with: each content in one immutable Secret of the
// operator's namespace, which accounts of players and tenants do not read. Many instances name one Secret.
//
// The name of a Secret ends with a hash of its content and a random salt. A reader of the name, in the status of an
// instance, can neither guess a password of the content by trying nor recognise that two Challenges are alike.
//
// These rules make it safe to end the operator at any time, and to decide by caches that lag behind:
//
//   - A Secret is written before a status names it. A Secret that no status came to name is deleted later.
//   - A process names a Secret of an earlier process only after it has claimed it by a write. A deletion that was decided
//     before that write fails, because it requires the earlier version of the Secret.
//   - A Secret is deleted only if this process named it for no instance during the last graceTime, and if no instance of
//     the API server names it, listed after that. graceTime exceeds the timeout of a reconciliation.
//   - Content is used only if it has the hash in its name, and only Secrets with such a content are deleted.
package revisions

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;patch;delete,namespace=system

const (
	// SecretType is the type of the Secrets.
	SecretType corev1.SecretType = "berg.norelect.ch/challenge-revision" //nolint:gosec // the type of a Secret, no credential
	// NamePrefix begins the name of each Secret.
	NamePrefix = "challenge-revision-"
	// Component is the value of the label bergv1.LabelComponent on them.
	Component = "challenge-revision"
	// annotationClaimed has a random value of the last process that claimed the Secret. The value itself decides nothing:
	// its write changes the version of the Secret, so that a deletion by another process fails.
	annotationClaimed = "berg.norelect.ch/claimed-by"

	keyContent, keySalt = "content", "salt"
)

// graceTime exceeds the timeout of a reconciliation, reconcile.Timeout. A reconciliation that got a name from Ensure has
// therefore written it into a status, or has failed, before the Secret can be deleted.
const graceTime = 10 * time.Minute

// UnreadableError says that the content of an instance's start cannot be read.
type UnreadableError struct {
	Secret types.NamespacedName
	// Altered: a Secret of that name exists, with another content.
	Altered bool
}

func (e *UnreadableError) Error() string {
	if e.Altered {
		return fmt.Sprintf("the Secret %s does not have the content that its name says: another client wrote it", e.Secret)
	}
	return fmt.Sprintf("the Secret %s is missing", e.Secret)
}

// Store stores contents of type T, whose JSON is the same for equal contents.
type Store[T any] struct {
	client    client.Client
	live      client.Reader
	clock     clock.PassiveClock
	namespace string
	// process is the value of annotationClaimed that this process writes.
	process string

	// creating is held while a Secret is created or claimed, so that one content gets one Secret. It is separate from mu,
	// which is never held during a request. A second worker that starts an instance of the same Challenge waits for the first one
	// instead of storing the content twice.
	creating sync.Mutex
	listed   bool

	mu        sync.Mutex
	revisions map[string]*revision[T]
	// byContent has the Secrets that this process may name for another instance. A Secret of an earlier process gets here
	// by a claim only.
	byContent map[contentHash]string
}

type contentHash [sha256.Size]byte

// revision is a Secret whose content has the hash in its name.
type revision[T any] struct {
	secret *corev1.Secret
	hash   contentHash
	// claimed: this process created or claimed it.
	claimed bool
	// used is the time at which this process last named the Secret for an instance; before that, the time at which it found
	// the Secret.
	used time.Time
}

// NewStore returns the Store of a namespace. Only the leader may use it: two processes that create at the same time would
// store a content twice.
func NewStore[T any](c client.Client, live client.Reader, passive clock.PassiveClock, namespace string) *Store[T] {
	return &Store[T]{
		client: c, live: live, clock: passive, namespace: namespace, process: rand.Text(),
		revisions: map[string]*revision[T]{}, byContent: map[contentHash]string{},
	}
}

// Read returns the content of a Secret, or an UnreadableError. Content never changes, so a Secret is read once. It is decoded
// each time: the caller builds objects from it, and the client writes the answers of the API server into them.
func (s *Store[T]) Read(ctx context.Context, name string) (*T, error) {
	if known := s.known(name); known != nil {
		return known.decode()
	}
	key := types.NamespacedName{Namespace: s.namespace, Name: name}
	secret := &corev1.Secret{}
	err := s.live.Get(ctx, key, secret)
	// A missing Secret is not remembered: an administrator may restore it from a backup.
	if apierrors.IsNotFound(err) {
		return nil, &UnreadableError{Secret: key}
	}
	if err != nil {
		return nil, fmt.Errorf("read the Secret %s: %w", key, err)
	}
	r := s.open(secret)
	if r == nil {
		return nil, &UnreadableError{Secret: key, Altered: true}
	}
	return s.remember(r).decode()
}

// Ensure makes sure that a content is stored, and returns the name of its Secret. The caller must write the name into a
// status within the present reconciliation: after graceTime a Secret that no instance names may be deleted. A content that
// this process has stored before costs no request.
func (s *Store[T]) Ensure(ctx context.Context, content T) (name string, err error) {
	encoded, err := json.Marshal(content)
	if err != nil {
		return "", fmt.Errorf("encode the Challenge: %w", err)
	}
	hash := contentHash(sha256.Sum256(encoded))
	if name := s.use(hash); name != "" {
		return name, nil
	}
	s.creating.Lock()
	defer s.creating.Unlock()
	if name := s.use(hash); name != "" { // another worker created it
		return name, nil
	}
	// The first content of a process needs the list once: a Secret of an earlier process may have it.
	if !s.listed {
		if _, err := s.list(ctx); err != nil {
			return "", err
		}
		s.listed = true
	}
	claimed, err := s.claim(ctx, hash)
	if err == nil && !claimed {
		err = s.create(ctx, encoded)
	}
	if err != nil {
		return "", err
	}
	return s.use(hash), nil
}

// create stores a content under a new name.
func (s *Store[T]) create(ctx context.Context, encoded []byte) error {
	salt := []byte(rand.Text())
	secret := s.secret(encoded, salt)
	// There is no cache of Secrets that could wait for this write. If the answer is lost, the Secret exists and this process does
	// not know it. It creates another one under another salt, and the first sweep that lists the orphan deletes it after
	// graceTime.
	if err := s.client.Create(ctx, secret, client.DisableReadYourWritesConsistency); err != nil {
		return fmt.Errorf("store the Challenge in the Secret %s/%s: %w", s.namespace, secret.Name, err)
	}
	r := s.open(secret)
	if r == nil {
		return fmt.Errorf("store the Challenge in the Secret %s/%s: an admission webhook changed it", s.namespace, secret.Name)
	}
	r.claimed = true
	s.remember(r)
	return nil
}

// secret returns the Secret of a content.
func (s *Store[T]) secret(encoded, salt []byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.namespace, Name: secretName(encoded, salt),
			Labels: map[string]string{bergv1.LabelManagedBy: bergv1.ManagedBy, bergv1.LabelComponent: Component},
		},
		Type:      SecretType,
		Immutable: ptr.To(true),
		Data:      map[string][]byte{keyContent: encoded, keySalt: salt},
	}
}

// claim lets this process name a Secret of an earlier process with the same content, and reports whether one exists. The
// patch requires the version that was read: either it comes first, and a deletion decided by the earlier process fails, or
// the deletion comes first, and a new Secret is created.
func (s *Store[T]) claim(ctx context.Context, hash contentHash) (bool, error) {
	found := s.unclaimed(hash)
	if found == nil {
		return false, nil
	}
	secret := found.secret.DeepCopy()
	metav1.SetMetaDataAnnotation(&secret.ObjectMeta, annotationClaimed, s.process)
	err := s.client.Patch(ctx, secret, client.MergeFromWithOptions(found.secret, client.MergeFromWithOptimisticLock{}), client.DisableReadYourWritesConsistency)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		// The version is out of date: the Secret is being deleted, or another client has changed it.
		s.forget(found.secret.Name)
		return false, nil // another process deletes it
	}
	if err != nil {
		return false, fmt.Errorf("claim the Secret %s/%s: %w", s.namespace, secret.Name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// The patch has returned the new version. A sweep may have retired the revision during the request, so it is added
	// again.
	found.secret, found.claimed, found.used = secret, true, s.clock.Now()
	s.revisions[secret.Name], s.byContent[hash] = found, secret.Name
	return true, nil
}

// list reads all Secrets of the Store, and remembers the Secrets that are new to this process. It leaves out Secrets of
// other clients that only have the labels.
func (s *Store[T]) list(ctx context.Context) (map[string]*corev1.Secret, error) {
	var secrets corev1.SecretList
	if err := s.live.List(ctx, &secrets, client.InNamespace(s.namespace),
		client.MatchingLabels{bergv1.LabelManagedBy: bergv1.ManagedBy, bergv1.LabelComponent: Component}); err != nil {
		return nil, fmt.Errorf("list the stored Challenges: %w", err)
	}
	all := make(map[string]*corev1.Secret, len(secrets.Items))
	for n := range secrets.Items {
		secret := &secrets.Items[n]
		if r := s.open(secret); r != nil {
			s.remember(r)
			all[secret.Name] = secret
		}
	}
	return all, nil
}

// open returns the revision in a Secret, nil if the content does not have the hash in the name. A caller gets only content
// that the operator has stored, even if another client may write Secrets.
func (s *Store[T]) open(secret *corev1.Secret) *revision[T] {
	encoded := secret.Data[keyContent]
	if secret.Type != SecretType || secret.Namespace != s.namespace || secret.Name != secretName(encoded, secret.Data[keySalt]) {
		return nil
	}
	return &revision[T]{secret: secret, hash: sha256.Sum256(encoded), used: s.clock.Now()}
}

func (r *revision[T]) decode() (*T, error) {
	content := new(T)
	if err := json.Unmarshal(r.secret.Data[keyContent], content); err != nil {
		return nil, fmt.Errorf("decode the Secret %s/%s: %w", r.secret.Namespace, r.secret.Name, err)
	}
	return content, nil
}

// remember returns the known revision of that name, or else stores the given one and returns it. A known revision keeps its
// time of use.
func (s *Store[T]) remember(r *revision[T]) *revision[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.revisions[r.secret.Name]; known != nil {
		return known
	}
	s.revisions[r.secret.Name] = r
	if r.claimed {
		s.byContent[r.hash] = r.secret.Name
	}
	return r
}

func (s *Store[T]) known(name string) *revision[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revisions[name]
}

// unclaimed returns a revision of an earlier process with the content, nil if none exists.
func (s *Store[T]) unclaimed(hash contentHash) *revision[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.revisions {
		if !r.claimed && r.hash == hash {
			return r
		}
	}
	return nil
}

// use returns the name of the Secret of a content that this process may name, "" if none exists. It renews the time of use
// under the same lock, so that a sweep cannot retire the Secret between the two.
func (s *Store[T]) use(hash contentHash) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := s.byContent[hash]
	if name != "" {
		s.revisions[name].used = s.clock.Now()
	}
	return name
}

// forget makes sure that this process names the Secret for no further instance.
func (s *Store[T]) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.revisions[name]; r != nil && s.byContent[r.hash] == name {
		delete(s.byContent, r.hash)
	}
	delete(s.revisions, name)
}

func secretName(encoded, salt []byte) string {
	mac := hmac.New(sha256.New, salt)
	mac.Write(encoded)
	return NamePrefix + hex.EncodeToString(mac.Sum(nil))
}
