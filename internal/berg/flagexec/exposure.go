package flagexec

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// pieceLength is the number of bytes from which something counts as found by a
// search. Four is where strings(1) starts; four differences between neighbours
// are a piece of five bytes under a constant key, and shorter ones occur in
// any file by chance.
const pieceLength = 4

// printable reports whether strings(1) takes a byte for a character of a text.
func printable(b byte) bool { return b == '\t' || b >= 0x20 && b <= 0x7e }

// exposures counts the positions in the image that a simple search would report: printable runs,
// pieces of the flag, and pieces of the flag under one xor or add key, each also backwards.
//
// The headers are only searched for printable runs. Their bytes follow from the
// format, with every flag, and long runs of zeros in them equal any run of
// one repeated character under some key.
func exposures(image []byte, flag string) int {
	forwards, body := []byte(flag), image[headersSize:]
	backwards := slices.Clone(forwards)
	slices.Reverse(backwards)

	found := printableRuns(image)
	if len(flag) > 1 && len(flag) < pieceLength {
		found += bytes.Count(body, forwards) + bytes.Count(body, backwards)
	}
	found += shared(body, forwards, backwards)
	// The differences of neighbours are the same under every constant key, so
	// one search of them replaces 256.
	for _, difference := range []func(a, b byte) byte{
		func(a, b byte) byte { return a ^ b },
		func(a, b byte) byte { return a - b },
	} {
		found += shared(
			neighbours(body, difference),
			neighbours(forwards, difference),
			neighbours(backwards, difference),
		)
	}
	return found
}

func printableRuns(image []byte) int {
	runs, length := 0, 0
	for _, b := range image {
		if !printable(b) {
			length = 0
			continue
		}
		if length++; length == pieceLength {
			runs++
		}
	}
	return runs
}

func neighbours(b []byte, difference func(a, b byte) byte) []byte {
	out := make([]byte, 0, len(b))
	for i := 1; i < len(b); i++ {
		out = append(out, difference(b[i-1], b[i]))
	}
	return out
}

// shared counts the positions in body that hold a piece of one of the texts. Pieces of zeros do not
// count: as differences they are a run of one repeated character, which equals every other such run
// under some key.
func shared(body []byte, texts ...[]byte) int {
	wanted := map[uint32]struct{}{}
	for _, text := range texts {
		for i := 0; i+pieceLength <= len(text); i++ {
			wanted[binary.BigEndian.Uint32(text[i:])] = struct{}{}
		}
	}
	delete(wanted, 0)
	found := 0
	for i := 0; i+pieceLength <= len(body); i++ {
		if _, hit := wanted[binary.BigEndian.Uint32(body[i:])]; hit {
			found++
		}
	}
	return found
}
