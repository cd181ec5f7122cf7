package flagexec

import (
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
)

// random is the source of the key, the padding and the addresses of one image. The stream is
// ChaCha8, whose output is specified, and only its raw words are used: the derived methods of
// math/rand may change between Go releases, and with them every image.
type random struct {
	source *rand.ChaCha8
}

// newRandom depends on the flag as well as on the seed: two flags under one seed
// would otherwise share a key stream, and xor of the two files would cancel it.
func newRandom(flag string, seed []byte, attempt uint32) random {
	material := append([]byte("berg flag executable\x00"), 0, 0, 0, 0)
	binary.BigEndian.PutUint32(material[len(material)-4:], attempt)
	material = binary.BigEndian.AppendUint64(material, uint64(len(seed)))
	material = append(material, seed...)
	material = append(material, flag...)
	return random{source: rand.NewChaCha8(sha256.Sum256(material))}
}

// between returns a number in [low, high].
func (r random) between(low, high int) int {
	return low + int(r.source.Uint64()%uint64(high-low+1))
}

// padding returns n bytes that strings(1) takes for the end of a run.
func (r random) padding(n int) []byte {
	pad := make([]byte, n)
	for i := range pad {
		pad[i] = byte(r.source.Uint64())
		for printable(pad[i]) {
			pad[i] = byte(r.source.Uint64())
		}
	}
	return pad
}

// key returns a key made of bytes that are not printable, since it lies in the code.
func (r random) key() uint64 { return binary.LittleEndian.Uint64(r.padding(8)) }
