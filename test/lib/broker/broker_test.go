package broker

import (
	"testing"
)

// The configuration of the broker is complete; its effect is tested where the broker is started.
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
