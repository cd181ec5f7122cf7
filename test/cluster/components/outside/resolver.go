package main

import (
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

// resolver answers each question for an address or a text.
type resolver struct {
	self, cluster netip.Addr
	domain        string
	asked         *journal
}

// answer returns the reply to a message, or nothing if that is no question.
func (r *resolver) answer(message []byte) []byte {
	var parser dnsmessage.Parser
	header, err := parser.Start(message)
	if err != nil || header.Response {
		return nil
	}
	question, err := parser.Question()
	if err != nil {
		return nil
	}
	name := strings.ToLower(question.Name.String())
	r.asked.add(name)

	reply := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: header.ID, Response: true, RecursionDesired: header.RecursionDesired, RecursionAvailable: true},
		Questions: []dnsmessage.Question{question},
	}
	resource := dnsmessage.ResourceHeader{Name: question.Name, Type: question.Type, Class: question.Class, TTL: 1}
	switch question.Type {
	case dnsmessage.TypeA:
		address := r.self
		if name == r.domain || strings.HasSuffix(name, "."+r.domain) {
			address = r.cluster
		}
		reply.Answers = []dnsmessage.Resource{{Header: resource, Body: &dnsmessage.AResource{A: address.As4()}}}
	case dnsmessage.TypeTXT:
		reply.Answers = []dnsmessage.Resource{{Header: resource, Body: &dnsmessage.TXTResource{TXT: []string{"from outside"}}}}
	}
	packed, err := reply.Pack()
	if err != nil {
		return nil
	}
	return packed
}

// stream answers the questions of a connection, each after its length (RFC 1035, section 4.2.2).
func (r *resolver) stream(connection net.Conn) {
	for {
		var length [2]byte
		if _, err := io.ReadFull(connection, length[:]); err != nil {
			return
		}
		message := make([]byte, binary.BigEndian.Uint16(length[:]))
		if _, err := io.ReadFull(connection, message); err != nil {
			return
		}
		reply := r.answer(message)
		if reply == nil {
			return
		}
		reply = append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...)
		if _, err := connection.Write(reply); err != nil {
			return
		}
	}
}
