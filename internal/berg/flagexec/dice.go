package flagexec

import (
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
)

// dice makes every free decision of one image. The stream is ChaCha8, whose
// output is specified, and only its raw words are used: the derived methods of
// math/rand may change between Go releases, and with them every image.
type dice struct {
	source *rand.ChaCha8
}

// newDice depends on the flag as well as on the seed: two flags under one seed
// would otherwise share a key stream, and xor of the two files would cancel it.
func newDice(flag string, seed []byte, attempt uint32) *dice {
	material := append([]byte("berg flag executable\x00"), 0, 0, 0, 0)
	binary.BigEndian.PutUint32(material[len(material)-4:], attempt)
	material = binary.BigEndian.AppendUint64(material, uint64(len(seed)))
	material = append(material, seed...)
	material = append(material, flag...)
	return &dice{source: rand.NewChaCha8(sha256.Sum256(material))}
}

// below returns a number in [0, n).
func (d *dice) below(n int) int {
	return int(d.source.Uint64() % uint64(n))
}

// between returns a number in [low, high].
func (d *dice) between(low, high int) int {
	return low + d.below(high-low+1)
}

// dull returns a byte that strings(1) takes for the end of a run.
func (d *dice) dull() byte {
	for {
		if b := byte(d.source.Uint64()); !printable(b) {
			return b
		}
	}
}

// padding returns n dull bytes.
func (d *dice) padding(n int) []byte {
	pad := make([]byte, n)
	for i := range pad {
		pad[i] = d.dull()
	}
	return pad
}

// word returns a number of 31 bits, so that it is the same with and without
// sign extension, made of dull bytes.
func (d *dice) word() uint32 {
	return binary.LittleEndian.Uint32(d.padding(4)) & 0x1fffffff
}

// quad returns a number of 64 bits made of dull bytes.
func (d *dice) quad() uint64 {
	return binary.LittleEndian.Uint64(d.padding(8))
}

func shuffle[T any](d *dice, items []T) {
	for i := len(items) - 1; i > 0; i-- {
		j := d.below(i + 1)
		items[i], items[j] = items[j], items[i]
	}
}
