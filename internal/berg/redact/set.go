package redact

import (
	"unicode/utf8"
)

// Set finds many flags in long texts. Flags of one event begin alike: the common beginning is looked for first.
type Set struct {
	// groups are those whose beginning may be written with a byte.
	groups [256][]*group
}

// group are the patterns of flags that begin alike.
type group struct {
	beginning Pattern
	flags     []Pattern
}

// NewSet returns the Set of flags. It leaves out what is too short to be distinguished from ordinary words.
func NewSet(flags ...string) *Set {
	byBeginning, seen := map[string]*group{}, map[string]bool{}
	s := &Set{}
	for _, flag := range flags {
		p := NewPattern(flag)
		if p.Empty() || seen[flag] {
			continue
		}
		seen[flag] = true
		beginning := flagPrefix(flag)
		g := byBeginning[beginning]
		if g == nil {
			g = &group{beginning: NewPattern(beginning)}
			byBeginning[beginning] = g
			for b, may := range g.beginning.begins {
				if may {
					s.groups[b] = append(s.groups[b], g)
				}
			}
		}
		g.flags = append(g.flags, p)
	}
	return s
}

// flagPrefix returns the first characters of a flag, enough for a pattern.
func flagPrefix(flag string) string {
	end := minRedacted
	for end < len(flag) && !utf8.RuneStart(flag[end]) {
		end++
	}
	return flag[:end]
}

// Remove removes the flags from a text, as Remove does with their patterns.
func (s *Set) Remove(text string) string {
	return remove(text, func(rest string) (length int) {
		for _, g := range s.groups[rest[0]] {
			if matched, _ := g.beginning.At(rest); matched > 0 {
				length = max(length, lengthAt(rest, g.flags))
			}
		}
		return length
	})
}

// RemoveCut removes the flags from a text of which the end may be cut off, and from its end what may be the beginning of a
// flag: at least as many characters as a flag must have.
func (s *Set) RemoveCut(text string) string {
	text = s.Remove(text)
	for i := range text {
		if len(text)-i < minRedacted {
			break
		}
		for _, g := range s.groups[text[i]] {
			for _, p := range g.flags {
				if n, open := p.At(text[i:]); n == 0 && open {
					return text[:i] + Mark
				}
			}
		}
	}
	return text
}
