package flagexec

import (
	"errors"
	"fmt"
)

// MaxFlagLength is the maximum length of a flag that can be built in, in bytes. It is the maximum
// length of spec.flag of a ChallengeInstance.
const MaxFlagLength = 1024

// Errors of Build. Neither text contains anything of the flag.
var (
	// ErrFlagEmpty is returned for a flag without a single byte.
	ErrFlagEmpty = errors.New("flagexec: the flag is empty; give one of 1 to 1024 bytes")
	// ErrFlagTooLong is returned, wrapped with the length found, for a flag above
	// MaxFlagLength.
	ErrFlagTooLong = errors.New("flagexec: the flag is too long; give one of 1 to 1024 bytes")
)

// attempts bounds the search for an image without exposures. Nine images in ten
// have none, and 2,000 random flags needed three more attempts at most. Only a flag
// that equals a part of the decoder uses all attempts.
const attempts = 64

// Build returns a static x86-64 Linux executable that prints exactly the flag,
// without a newline, to standard output and exits 0, or exits 1 if standard
// output does not take it. The flag has 1 to MaxFlagLength bytes.
//
// Build is a pure function: the same flag and seed give the same bytes, another seed of any length,
// also none, gives another key and other offsets. The seed needs no more secrecy than the result.
func Build(flag string, seed []byte) ([]byte, error) {
	switch {
	case len(flag) == 0:
		return nil, ErrFlagEmpty
	case len(flag) > MaxFlagLength:
		return nil, fmt.Errorf("%w (it has %d)", ErrFlagTooLong, len(flag))
	}
	var best []byte
	bestExposures := 0
	for attempt := range uint32(attempts) {
		image := writeImage(newRandom(flag, seed, attempt), flag)
		found := exposures(image, flag)
		if found == 0 {
			return image, nil
		}
		if best == nil || found < bestExposures {
			best, bestExposures = image, found
		}
	}
	return best, nil
}
