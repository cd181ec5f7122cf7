package sealkey

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

func ringOf(t *testing.T, keys ...[]byte) *Ring {
	t.Helper()
	r := &Ring{}
	for _, k := range keys {
		var err error
		if r, err = r.With(k); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func TestWhatIsSealedOpensForItsObjectAlone(t *testing.T) {
	const text, uid = "hunter2", "7c0ffee0-1111-4222-8333-444455556666"
	first, second := NewKey(), NewKey()
	sealed, err := ringOf(t, first).Seal([]byte(text), uid)
	if err != nil || strings.Contains(sealed, text) {
		t.Fatalf("%s, error %v", sealed, err)
	}
	changed := []byte(sealed)
	changed[len(changed)/2] ^= 1
	id, rest, _ := strings.Cut(sealed, ".")
	for name, tc := range map[string]struct {
		ring    *Ring
		sealed  string
		of      string
		opens   bool
		current bool
	}{
		"its key":                      {ringOf(t, first), sealed, uid, true, true},
		"its key, of another process":  {ringOf(t, bytes.Clone(first)), sealed, uid, true, true},
		"another object":               {ringOf(t, first), sealed, "7c0ffee0-1111-4222-8333-444455556667", false, true},
		"no object":                    {ringOf(t, first), sealed, "", false, true},
		"another key":                  {ringOf(t, second), sealed, uid, false, false},
		"another key under its ID":     {ringOf(t, second), ringOf(t, second).keys[0].id + "." + rest, uid, false, true},
		"a key in the place of its":    {ringOf(t, first, second), sealed, uid, true, false},
		"its key once more":            {ringOf(t, first, second, first), sealed, uid, true, true},
		"too many keys since":          {ringOf(t, first, NewKey(), NewKey(), NewKey(), NewKey()), sealed, uid, false, false},
		"no key":                       {&Ring{}, sealed, uid, false, false},
		"a bit that was changed":       {ringOf(t, first), string(changed), uid, false, true},
		"cut off":                      {ringOf(t, first), sealed[:len(sealed)-4], uid, false, true},
		"nothing after the ID":         {ringOf(t, first), id + ".", uid, false, true},
		"nothing":                      {ringOf(t, first), "", uid, false, false},
		"a text that was never sealed": {ringOf(t, first), text, uid, false, false},
	} {
		got, err := tc.ring.Open(tc.sealed, tc.of)
		switch {
		case tc.opens && (err != nil || string(got) != text):
			t.Errorf("%s: %q, error %v", name, got, err)
		case !tc.opens && (!errors.Is(err, ErrNotOpened) || got != nil):
			t.Errorf("%s: %q, error %v", name, got, err)
		}
		if current := tc.ring.IsCurrent(tc.sealed); current != tc.current {
			t.Errorf("%s: current %v", name, current)
		}
	}
}

func TestEveryTextIsSealedDifferently(t *testing.T) {
	r := ringOf(t, NewKey())
	a, errA := r.Seal([]byte("the same"), "uid")
	b, errB := r.Seal([]byte("the same"), "uid")
	if errA != nil || errB != nil || a == b {
		t.Errorf("%s and %s, errors %v and %v: who sees two can tell that they are the same", a, b, errA, errB)
	}
}

func TestOnlyKeysOfTheRightLengthAreTaken(t *testing.T) {
	for _, size := range []int{0, 16, Size - 1, Size + 1} {
		if _, err := (&Ring{}).With(make([]byte, size)); err == nil {
			t.Errorf("%d bytes", size)
		}
	}
	if _, err := (&Ring{}).Seal([]byte("a"), "uid"); err == nil {
		t.Error("a Ring without a key seals")
	}
}

// A caller that changes or drops the slice of a key does not change the Ring.
func TestARingKeepsItsKeys(t *testing.T) {
	secret := NewKey()
	r := ringOf(t, secret)
	sealed, err := r.Seal([]byte("a"), "uid")
	if err != nil {
		t.Fatal(err)
	}
	clear(secret)
	if bytes.Equal(r.Key(), secret) {
		t.Error("the key was changed from outside")
	}
	if _, err := ringOf(t, r.Key()).Open(sealed, "uid"); err != nil {
		t.Error(err)
	}
}
