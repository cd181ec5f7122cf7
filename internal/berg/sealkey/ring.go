// Package sealkey has the keys with which the operator seals what a status must not show: how it seals, and how it keeps the
// key in a Secret of its own namespace.
package sealkey

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Size is the length of a key in bytes: AES-256.
const Size = 32

// maxKeys is how many keys a Ring keeps.
const maxKeys = 4

// ErrNotOpened says that a text was sealed with another key, for another object, or was changed.
var ErrNotOpened = errors.New("it was sealed with another key, for another object, or was changed")

// Ring has the key that seals, and the former ones, which still open. Its zero value opens nothing and seals nothing.
type Ring struct{ keys []key }

type key struct {
	id     string
	secret []byte
	aead   cipher.AEAD
}

// NewKey returns a random key.
func NewKey() []byte {
	secret := make([]byte, Size)
	_, _ = rand.Read(secret) // it does not fail
	return secret
}

// With returns a Ring that seals with a key, and opens what the earlier keys have sealed, too.
func (r *Ring) With(secret []byte) (*Ring, error) {
	if len(secret) != Size {
		return nil, fmt.Errorf("a key has %d bytes, not %d", Size, len(secret))
	}
	block, err := aes.NewCipher(secret)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(secret)
	first := key{hex.EncodeToString(sum[:4]), bytes.Clone(secret), aead}
	rest := slices.DeleteFunc(slices.Clone(r.keys), func(k key) bool { return bytes.Equal(k.secret, secret) })
	all := append([]key{first}, rest...)
	return &Ring{all[:min(len(all), maxKeys)]}, nil
}

// Key returns the key that seals.
func (r *Ring) Key() []byte { return r.keys[0].secret }

// Seal encrypts a text for one object: of is its UID, and the text opens for no other object. The result is the ID of the
// key and the text in base64, different each time.
func (r *Ring) Seal(text []byte, of string) (string, error) {
	if len(r.keys) == 0 {
		return "", errors.New("there is no key")
	}
	k := r.keys[0]
	return k.id + "." + base64.StdEncoding.EncodeToString(k.aead.Seal(nil, nil, text, []byte(of))), nil
}

// Open returns the text, or ErrNotOpened.
func (r *Ring) Open(sealed, of string) ([]byte, error) {
	id, encoded, _ := strings.Cut(sealed, ".")
	data, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, ErrNotOpened
	}
	for _, k := range r.keys {
		if k.id != id {
			continue
		}
		if text, err := k.aead.Open(nil, nil, data, []byte(of)); err == nil {
			return text, nil
		}
	}
	return nil, ErrNotOpened
}

// IsCurrent reports whether a text was sealed with the key that seals now.
func (r *Ring) IsCurrent(sealed string) bool {
	return len(r.keys) > 0 && strings.HasPrefix(sealed, r.keys[0].id+".")
}
