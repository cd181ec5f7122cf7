package deployment

import (
	"crypto/sha256"
	"encoding/hex"
)

// hash stands for a text in a name.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])[:8]
}
