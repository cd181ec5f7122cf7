package toolbox

import (
	"bytes"
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

func TestProbe(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closedPort := closed.Addr().String()
	closed.Close()
	// It takes datagrams and never answers.
	mute, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	names := refusingResolver(t)

	want := map[string]string{
		"tcp/" + listener.Addr().String():  "reached",
		"tcp/" + closedPort:                "refused",
		"udp/" + mute.LocalAddr().String(): "silent",
		"dns/" + names + "/TXT/a.example.": "REFUSED",
		"dns/" + names + "/MX/a.example.":  "want A or TXT and a name, not MX a.example.",
		"icmp/127.0.0.1":                   "unknown kind of probe",
	}
	args := []string{"-timeout", "200ms", "-times", "1"}
	for what := range want {
		args = append(args, what)
	}
	var out bytes.Buffer
	if err := probe(context.Background(), Streams{Out: &out}, args); err != nil {
		t.Fatal(err)
	}
	lines := 0
	for line := range strings.Lines(out.String()) {
		what, answer, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if answer != want[what] {
			t.Errorf("%s: %q, want %q", what, answer, want[what])
		}
		lines++
	}
	if lines != len(want) {
		t.Errorf("%d answers to %d probes", lines, len(want))
	}
}

func refusingResolver(t *testing.T) (address string) {
	t.Helper()
	socket, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	go func() {
		question := make([]byte, 512)
		for {
			n, sender, err := socket.ReadFrom(question)
			if err != nil {
				return
			}
			var message dnsmessage.Message
			if message.Unpack(question[:n]) != nil {
				continue
			}
			message.Response, message.RCode = true, dnsmessage.RCodeRefused
			if reply, err := message.Pack(); err == nil {
				_, _ = socket.WriteTo(reply, sender)
			}
		}
	}()
	return socket.LocalAddr().String()
}

func TestDatagram(t *testing.T) {
	got := datagram(netip.MustParseAddr("192.0.2.1"), netip.MustParseAddrPort("198.51.100.2:9000"), []byte("hi"))
	want := []byte{
		0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 198, 51, 100, 2,
		0, 9, 0x23, 0x28, 0, 10, 0, 0, 'h', 'i',
	}
	if !bytes.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}
