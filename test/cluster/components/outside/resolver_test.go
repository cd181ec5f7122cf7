package main

import (
	"net/netip"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

func TestAnswer(t *testing.T) {
	names := &resolver{
		self: netip.MustParseAddr("203.0.113.10"), cluster: netip.MustParseAddr("198.18.0.2"),
		domain: "ctf.example.", asked: &journal{},
	}
	for name, want := range map[string][4]byte{
		"example.org.":     {203, 0, 113, 10},
		"not-ctf.example.": {203, 0, 113, 10},
		"ctf.example.":     {198, 18, 0, 2},
		"A.Ctf.Example.":   {198, 18, 0, 2},
	} {
		question := dnsmessage.Message{
			Header:    dnsmessage.Header{ID: 7, RecursionDesired: true},
			Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}},
		}
		packed, err := question.Pack()
		if err != nil {
			t.Fatal(err)
		}
		var reply dnsmessage.Message
		if err := reply.Unpack(names.answer(packed)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if reply.ID != 7 || !reply.Response || len(reply.Answers) != 1 {
			t.Fatalf("%s: %+v", name, reply)
		}
		if a, ok := reply.Answers[0].Body.(*dnsmessage.AResource); !ok || a.A != want {
			t.Errorf("%s: answered %v, want %v", name, reply.Answers[0].Body, want)
		}
		reply.Response = true
		if packed, err = reply.Pack(); err != nil {
			t.Fatal(err)
		}
		if names.answer(packed) != nil {
			t.Errorf("%s: an answer was answered: two servers would never end", name)
		}
	}
	if names.answer([]byte("noise")) != nil {
		t.Error("noise was answered")
	}
}
