// Package naming makes names that fit where Kubernetes bounds them.
package naming

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// MaxLabelValue is the longest label value that Kubernetes accepts, in bytes.
const MaxLabelValue = 63

// hashDigits is enough that two names of one cluster do not meet: 40 bits.
const hashDigits = 10

// LabelValue returns s if it fits into a label value, else its beginning
// followed by a dash and a hash of the whole, 63 bytes long at most.
func LabelValue(s string) string { return Within(s, MaxLabelValue) }

// Within returns s if it has no more than longest bytes, else its beginning followed by a
// dash and a hash of the whole. longest must leave room for these, as 12 does.
func Within(s string, longest int) string {
	if len(s) <= longest {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	head := strings.TrimRight(s[:longest-hashDigits-1], "-._")
	return head + "-" + hex.EncodeToString(sum[:])[:hashDigits]
}
