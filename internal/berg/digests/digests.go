// Package digests knows which image instances of a Challenge run under one name. Where nodes pull the image at every start,
// the container that started last has the newest one, and containers with another one are out of date.
//
// It is filled from the pods, so a restart loses only what no pod runs any more.
package digests

import (
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Latest has the newest image of each container of each Challenge.
type Latest struct {
	mu  sync.Mutex
	all map[types.NamespacedName]map[string]Running
}

// Running is the image of a container that runs.
type Running struct {
	// Image is its name, as in the Challenge.
	Image string
	// Digest is as Short returns it.
	Digest  string
	Started time.Time
}

// Note notes what a container of an instance of a Challenge runs. It returns the digest of the newest image under the same
// name, and whether that is another one than before.
func (l *Latest) Note(challenge types.NamespacedName, container string, now Running) (newest string, changed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all = map[types.NamespacedName]map[string]Running{}
	}
	if l.all[challenge] == nil {
		l.all[challenge] = map[string]Running{}
	}
	known, there := l.all[challenge][container]
	switch {
	case !there, now.Started.After(known.Started):
		l.all[challenge][container] = now
		return now.Digest, there && known.Image == now.Image && known.Digest != now.Digest
	case known.Image != now.Image:
		return now.Digest, false
	default:
		return known.Digest, false
	}
}

// Forget drops what is known of a Challenge.
func (l *Latest) Forget(challenge types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.all, challenge)
}

// shortLength of a digest is enough to tell images of one name apart.
const shortLength = 16

// Short returns the beginning of the SHA-256 digest in the imageID of a container's status, "" if there is none.
func Short(imageID string) string {
	_, digest, _ := strings.Cut(imageID, "sha256:")
	return strings.Clone(digest[:min(len(digest), shortLength)])
}
