// Package naming makes names that fit into the limits of Kubernetes.
package naming

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// MaxLabelValue is the maximum length of a label value in Kubernetes, in bytes.
const MaxLabelValue = 63

// hashDigits is enough for the names of one cluster to be distinct: 40 bits.
const hashDigits = 10

// LabelValue returns s if it fits into a label value, else its beginning
// followed by a dash and a hash of the whole, 63 bytes long at most.
func LabelValue(s string) string { return Within(s, MaxLabelValue) }

// Within returns s if it has at most maxBytes bytes, else its beginning followed by a dash
// and a hash of the whole. maxBytes must be at least 12.
func Within(s string, maxBytes int) string {
	if len(s) <= maxBytes {
		return s
	}
	return withHash(s, s, maxBytes)
}

// Hashed returns s, or its beginning, followed by a dash and a hash of s and of distinction, so that the
// same s has another name elsewhere. maxBytes must be at least 12. The hash includes the distinction behind a slash, which no
// name of Kubernetes contains: two pairs never give the same text.
func Hashed(s, distinction string, maxBytes int) string {
	return withHash(s, s+"/"+distinction, maxBytes)
}

func withHash(s, hashed string, maxBytes int) string {
	sum := sha256.Sum256([]byte(hashed))
	head := strings.TrimRight(s[:min(len(s), maxBytes-hashDigits-1)], "-._")
	return head + "-" + hex.EncodeToString(sum[:])[:hashDigits]
}

// Sentence returns an error of Kubernetes about a name without its regular expression.
func Sentence(problem string) string {
	start, end := strings.Index(problem, " (e.g. "), strings.LastIndex(problem, "')")
	if start < 0 || end < start {
		return problem
	}
	return problem[:start] + problem[end+len("')"):]
}
