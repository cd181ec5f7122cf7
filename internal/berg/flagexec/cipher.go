package flagexec

import "math/bits"

// cipher is the key stream of one image and the way it is combined with the
// flag. Go and the emitted machine code work from the same description, so they
// cannot drift apart.
type cipher struct {
	key   uint64
	steps []step
	// shift brings the byte of the state that is used down to the lowest one.
	shift int
	mix   mixing
}

// step is one operation on the state. Each is a bijection on 64 bits, so no
// sequence of them can collapse the state.
type step struct {
	kind stepKind
	// by is a distance in bits.
	by int
	// constant is the summand or the odd factor.
	constant uint64
}

type stepKind byte

const (
	xorShiftLeft stepKind = iota
	xorShiftRight
	rotate
	addConstant
	multiply
)

// mixing is how the program gets a flag byte from an encoded byte.
type mixing byte

const (
	byXor mixing = iota
	byAdding
	bySubtracting
	mixings
)

func newCipher(d *dice) cipher {
	c := cipher{
		key:   d.quad(),
		shift: d.between(24, 56),
		mix:   mixing(d.below(int(mixings))),
	}
	// One of each kind keeps the stream free of short patterns; the order and
	// one repeated step differ from image to image.
	kinds := []stepKind{xorShiftLeft, xorShiftRight, rotate, addConstant, multiply}
	kinds = append(kinds, kinds[d.below(len(kinds))])
	shuffle(d, kinds)
	for _, kind := range kinds {
		s := step{kind: kind, by: d.between(7, 25), constant: d.quad()}
		if kind == multiply {
			s.constant |= 1
		}
		c.steps = append(c.steps, s)
	}
	return c
}

func (c cipher) encode(plain string) []byte {
	encoded := make([]byte, len(plain))
	state := c.key
	for i := range encoded {
		for _, s := range c.steps {
			state = s.apply(state)
		}
		key := byte(state >> c.shift)
		switch c.mix {
		case byXor:
			encoded[i] = plain[i] ^ key
		case byAdding:
			encoded[i] = plain[i] - key
		default:
			encoded[i] = plain[i] + key
		}
	}
	return encoded
}

func (s step) apply(state uint64) uint64 {
	switch s.kind {
	case xorShiftLeft:
		return state ^ state<<s.by
	case xorShiftRight:
		return state ^ state>>s.by
	case rotate:
		return bits.RotateLeft64(state, s.by)
	case addConstant:
		return state + s.constant
	default:
		return state * s.constant
	}
}

// emit appends the machine code of the step; scratch is overwritten.
func (s step) emit(a *assembler, state, scratch register) {
	switch s.kind {
	case xorShiftLeft:
		a.mov(scratch, state)
		a.shl(scratch, s.by)
		a.xor(state, scratch)
	case xorShiftRight:
		a.mov(scratch, state)
		a.shr(scratch, s.by)
		a.xor(state, scratch)
	case rotate:
		a.rol(state, s.by)
	case addConstant:
		a.movImm64(scratch, s.constant)
		a.add(state, scratch)
	default:
		a.movImm64(scratch, s.constant)
		a.imul(state, scratch)
	}
}

// emitMix turns the encoded byte into the flag byte; both are low bytes.
func (c cipher) emitMix(a *assembler, value, key register) {
	switch c.mix {
	case byXor:
		a.xor(value, key)
	case byAdding:
		a.add(value, key)
	default:
		a.sub(value, key)
	}
}
