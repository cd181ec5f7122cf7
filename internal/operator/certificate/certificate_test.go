package certificate

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"testing"
	"time"
)

var start = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func at(now time.Time) Maker {
	return Maker{Names: []string{"webhook.system.svc", "webhook.system.svc.cluster.local"}, Now: now}
}

func made(t *testing.T, m Maker, data map[string][]byte, published []byte) map[string][]byte {
	t.Helper()
	next, changed, err := m.Next(data, published)
	if err != nil || !changed {
		t.Fatalf("changed %v, error %v", changed, err)
	}
	return next
}

// verifies reports whether an API server that trusts some authorities accepts the certificate.
func verifies(t *testing.T, data map[string][]byte, bundle []byte, now time.Time) bool {
	t.Helper()
	pair, err := Pair(data)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	_, err = leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "webhook.system.svc", CurrentTime: now})
	return err == nil
}

func TestTheFirstOneIsGoodAndStays(t *testing.T) {
	data := made(t, at(start), nil, nil)
	if !verifies(t, data, data[KeyAuthorities], start) {
		t.Error("an API server would not accept it")
	}
	if _, changed, err := at(start.Add(time.Hour)).Next(data, data[KeyAuthorities]); changed || err != nil {
		t.Errorf("an hour later it is issued again, error %v", err)
	}
	when, err := Renewal(data)
	if err != nil || !when.After(start.Add(50*24*time.Hour)) || !when.Before(start.Add(certificateLife)) {
		t.Errorf("renewed at %s, error %v", when, err)
	}
}

func TestACertificateIsRenewedInTime(t *testing.T) {
	data := made(t, at(start), nil, nil)
	later, _ := Renewal(data)
	next := made(t, at(later), data, data[KeyAuthorities])
	if !bytes.Equal(next[KeyAuthorities], data[KeyAuthorities]) {
		t.Error("the authority is another one")
	}
	if bytes.Equal(next[KeyCertificate], data[KeyCertificate]) || !verifies(t, next, data[KeyAuthorities], later.Add(certificateLife/2)) {
		t.Error("the certificate was not renewed")
	}
}

// While the authority is renewed, clients that trust only the old one, or both, get a
// certificate that they accept.
func TestAnAuthorityIsPublishedBeforeItIsUsed(t *testing.T) {
	data := made(t, at(start), nil, nil)
	later := start.Add(authorityLife * 4 / 5)
	for now := start; now.Before(later); { // the certificate is renewed all the time
		now, _ = Renewal(data)
		if now.After(later) {
			break
		}
		next, _, err := at(now).Next(data, data[KeyAuthorities])
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Count(next[KeyAuthorities], []byte("BEGIN")) == 2 {
			both := next
			if !bytes.Equal(both[KeyCertificate], data[KeyCertificate]) || !verifies(t, both, data[KeyAuthorities], now) {
				t.Error("the certificate changed before the new authority was published")
			}
			if _, changed, _ := at(now).Next(both, data[KeyAuthorities]); changed {
				t.Error("it continues before the new authority is published")
			}
			last := made(t, at(now), both, both[KeyAuthorities])
			if verifies(t, last, data[KeyAuthorities], now) || !verifies(t, last, both[KeyAuthorities], now) {
				t.Error("the certificate is not of the new authority")
			}
			return
		}
		data = next
	}
	t.Error("the authority was never renewed")
}

func TestUnreadableAndExpiredCertificatesAreReplaced(t *testing.T) {
	good := made(t, at(start), nil, nil)
	for name, spoil := range map[string]func(map[string][]byte){
		"no authority":      func(d map[string][]byte) { delete(d, KeyAuthorities) },
		"no key":            func(d map[string][]byte) { delete(d, KeyAuthorityKey) },
		"key of another":    func(d map[string][]byte) { d[KeyAuthorityKey] = d[KeyKey] },
		"not a certificate": func(d map[string][]byte) { d[KeyCertificate] = []byte("none") },
		"certificate's key": func(d map[string][]byte) { d[KeyKey] = d[KeyAuthorityKey] },
		"authority not a one": func(d map[string][]byte) {
			d[KeyAuthorities] = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")})
		},
	} {
		t.Run(name, func(t *testing.T) {
			data := map[string][]byte{}
			for k, v := range good {
				data[k] = v
			}
			spoil(data)
			next := made(t, at(start), data, good[KeyAuthorities])
			if !verifies(t, next, next[KeyAuthorities], start) {
				t.Error("the new certificate is not valid")
			}
		})
	}
	ended := start.Add(authorityLife + time.Hour)
	if next := made(t, at(ended), good, good[KeyAuthorities]); !verifies(t, next, next[KeyAuthorities], ended) {
		t.Error("an authority that has ended is not replaced")
	}
	if _, err := Renewal(nil); err == nil {
		t.Error("nothing has no time of renewal")
	}
}

func TestAnotherNameNeedsAnotherCertificate(t *testing.T) {
	data := made(t, at(start), nil, nil)
	m := at(start)
	m.Names = append(m.Names, "other.system.svc")
	next := made(t, m, data, data[KeyAuthorities])
	pair, err := Pair(next)
	if err != nil {
		t.Fatal(err)
	}
	leaf, _ := x509.ParseCertificate(pair.Certificate[0])
	if leaf.VerifyHostname("other.system.svc") != nil {
		t.Error("the certificate is not for the new name")
	}
}
