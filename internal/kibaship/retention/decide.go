package retention

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"time"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kibaship/registry"
)

// policy says which images stay although no object names them: the newest ones, and the young ones.
type policy struct {
	count int
	age   time.Duration
}

// newPolicy returns the policy of an Application, completed by the settings.
func newPolicy(spec *kibashipv1.ImageRetention, defaults config.ImageRetention) policy {
	p := policy{defaults.Count, defaults.Age}
	if spec != nil && spec.Count != nil {
		p.count = int(*spec.Count)
	}
	if spec != nil && spec.Age != nil {
		p.age = spec.Age.Duration
	}
	return p
}

// commitTag matches the tag of a commit.
var commitTag = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)

// built reports whether builds of an Application gave an image all of its tags. runs is what the names of its runs begin with. An image that
// a person tagged is that person's.
func built(image registry.Stored, runs string) bool {
	return !slices.ContainsFunc(image.Tags, func(tag string) bool {
		return !commitTag.MatchString(tag) && !strings.HasPrefix(tag, runs)
	})
}

// decide returns the images that are deleted, the oldest first: built ones that are named by nothing, neither among the newest nor young. The
// author of a commit chooses its time, so images of the same time are ordered by digest, and one without a time stays. Each
// condition keeps an image. Deleting needs all of them to be absent.
func decide(images []registry.Stored, named *Names, runs string, keep policy, now time.Time) (old []registry.Stored) {
	order := slices.SortedFunc(slices.Values(images), func(a, b registry.Stored) int {
		return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(a.Digest, b.Digest))
	})
	for index, image := range order {
		switch {
		case index < keep.count, now.Sub(image.Created) < keep.age, image.Created.IsZero(), !built(image, runs), named.has(image):
		default:
			old = append(old, image)
		}
	}
	slices.Reverse(old)
	return old
}
