package broker

import (
	"testing"
)

// What the broker is told is complete; what it does with that, the tests see that start it.
func TestProperties(t *testing.T) {
	b := &Broker{opts: Options{Dir: t.TempDir(), Address: "127.0.0.1"}}
	if err := b.prepare(); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, address := range []string{b.Plaintext, b.Login, b.PlainLogin, b.Certificates} {
		if seen[address] {
			t.Errorf("two listeners at %s", address)
		}
		seen[address] = true
	}
}
