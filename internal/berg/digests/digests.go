// Package digests knows which image instances of a Challenge run under one name. Where nodes pull the image at every start,
// the container that started last has the newest one, and containers with another one are out of date.
//
// It is filled from the pods, so a restart loses only images that no pod runs any more.
package digests

import (
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	"github.com/bergctf/berg-operator/internal/berg/rules"
)

const (
	// maxChallenges is the maximum number of remembered Challenges. A forgotten one is learned again from the next
	// observed instance.
	maxChallenges = 4096
	// maxContainers is the maximum number of remembered containers of a Challenge. Containers from
	// before an edit go first.
	maxContainers = rules.MaxContainers
)

// Latest has the newest image of each container of each Challenge. It keeps the Challenges whose instances were observed
// last.
type Latest struct {
	mu  sync.Mutex
	all *lru.Cache // elements are map[string]Running, by types.NamespacedName
}

// Running is the image of a container that runs.
type Running struct {
	// Image is its name, as in the Challenge.
	Image string
	// Digest is as Short returns it.
	Digest  string
	Started time.Time
}

// Note notes the image that a container of an instance of a Challenge runs. It returns the digest of the newest image
// under the same name, and whether that has changed. The order in which instances are observed does not matter: the start of the
// container decides.
func (l *Latest) Note(challenge types.NamespacedName, container string, now Running) (newest string, changed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	containers := l.forChallenge(challenge)
	known, there := containers[container]
	switch {
	case !there, now.Started.After(known.Started):
		containers[container] = now
		if len(containers) > maxContainers {
			delete(containers, oldest(containers))
		}
		return now.Digest, there && known.Image == now.Image && known.Digest != now.Digest
	case known.Image != now.Image:
		return now.Digest, false
	default:
		return known.Digest, false
	}
}

// forChallenge returns the digests of a Challenge, which the caller may change.
func (l *Latest) forChallenge(challenge types.NamespacedName) map[string]Running {
	if l.all == nil {
		l.all = lru.New(maxChallenges)
	}
	if known, there := l.all.Get(challenge); there {
		return known.(map[string]Running)
	}
	containers := map[string]Running{}
	l.all.Add(challenge, containers)
	return containers
}

// oldest returns the container that started first.
func oldest(containers map[string]Running) (name string) {
	for each, running := range containers {
		if name == "" || running.Started.Before(containers[name].Started) {
			name = each
		}
	}
	return name
}

// Forget drops the images of a Challenge.
func (l *Latest) Forget(challenge types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all != nil {
		l.all.Remove(challenge)
	}
}

// Len returns the number of Challenges with known images.
func (l *Latest) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		return 0
	}
	return l.all.Len()
}

// shortLength of a digest is enough to distinguish images of one name.
const shortLength = 16

// Short returns the beginning of the SHA-256 digest in the imageID of a container's status, "" if there is none.
func Short(imageID string) string {
	_, digest, _ := strings.Cut(imageID, "sha256:")
	return strings.Clone(digest[:min(len(digest), shortLength)])
}
