// Package flags makes the flags of instances from the flag and the format in a Challenge.
package flags

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"strings"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// The values of dynamicFlagMode.
const (
	modeSuffix  bergv1.DynamicFlagMode = "suffix"
	modeLeetify bergv1.DynamicFlagMode = "leetify"
)

// suffixBytes are 12 hexadecimal digits, as the platform of the Berg authors appends.
const suffixBytes = 6

// wholeBytes is the random part of a flag for which the author wrote a format alone: 128 bits.
const wholeBytes = 16

// placeholder in flagFormat is replaced by the text of the flag.
const placeholder = "..."

// defaultFormat is used for a Challenge that needs a flag and has neither flag nor flagFormat.
const defaultFormat = "flag{" + placeholder + "}"

// digits are the letters that leetify swaps, with their digits.
var digits = map[rune]rune{'a': '4', 'e': '3', 'g': '9', 'i': '1', 'l': '1', 'o': '0', 'r': '2', 's': '5', 't': '7'}

// Needed reports whether an instance of a Challenge needs a flag of its own: whether a container has a
// dynamicFlag.
func Needed(c *bergv1.Challenge) bool {
	for _, container := range c.Spec.Containers {
		if container.DynamicFlag != nil {
			return true
		}
	}
	return false
}

// Make returns a flag for one instance of a Challenge. It is the flag of the Challenge itself where no
// dynamicFlagMode is set, and a random one in the flagFormat where the Challenge has no flag. It is different at each call,
// except where no random part is wanted. The caller stores it.
func Make(c *bergv1.Challenge) (string, error) { return from(rand.Reader, c) }

// from makes no flag of its own where the Challenge has one and no mode: all players share that one.
func from(random io.Reader, c *bergv1.Challenge) (string, error) {
	if c.Spec.Flag == "" {
		return whole(random, c.Spec.FlagFormat)
	}
	switch c.Spec.DynamicFlagMode {
	case modeSuffix:
		return suffix(random, c.Spec.Flag)
	case modeLeetify:
		return leetify(random, c.Spec.Flag)
	default:
		return c.Spec.Flag, nil
	}
}

// suffix appends an underscore and random digits, inside the closing brace if there is one.
func suffix(random io.Reader, flag string) (string, error) {
	text, err := hexadecimal(random, suffixBytes)
	if err != nil {
		return "", err
	}
	if inside, ok := strings.CutSuffix(flag, "}"); ok {
		return inside + "_" + text + "}", nil
	}
	return flag + "_" + text, nil
}

// leetify swaps letters for their digits, each with probability one half. It changes only the text inside the braces,
// because the text before them is the prefix of the event.
func leetify(random io.Reader, flag string) (string, error) {
	begin, end := 0, len(flag)
	if open := strings.Index(flag, "{"); open >= 0 && strings.HasSuffix(flag, "}") {
		begin, end = open+1, len(flag)-1
	}
	var out strings.Builder
	out.WriteString(flag[:begin])
	coin := make([]byte, 1)
	for _, letter := range flag[begin:end] {
		digit, swaps := digits[letter]
		if swaps {
			if _, err := io.ReadFull(random, coin); err != nil {
				return "", fmt.Errorf("read random bytes: %w", err)
			}
			if coin[0]&1 == 1 {
				letter = digit
			}
		}
		out.WriteRune(letter)
	}
	out.WriteString(flag[end:])
	return out.String(), nil
}

// whole makes a flag of random digits in a format such as flag{...}.
func whole(random io.Reader, format string) (string, error) {
	text, err := hexadecimal(random, wholeBytes)
	if err != nil {
		return "", err
	}
	if format == "" {
		format = defaultFormat
	}
	if strings.Contains(format, placeholder) {
		return strings.Replace(format, placeholder, text, 1), nil
	}
	if before, ok := strings.CutSuffix(format, "{}"); ok {
		return before + "{" + text + "}", nil
	}
	return strings.Replace(defaultFormat, placeholder, text, 1), nil
}

func hexadecimal(random io.Reader, size int) (string, error) {
	bytes := make([]byte, size)
	if _, err := io.ReadFull(random, bytes); err != nil {
		return "", fmt.Errorf("read random bytes: %w", err)
	}
	return hex.EncodeToString(bytes), nil
}
