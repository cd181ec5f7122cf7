package toolbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// What a probe found. Reached and refused both mean that a packet came there and
// one came back.
const (
	probeReached = "reached"
	probeRefused = "refused"
	probeSilent  = "silent"
)

// probe [-timeout D] [-times N] WHAT...: tries all concurrently, up to N times each
// until something answers, and prints one line each: WHAT, a tab, and reached,
// refused, silent, an answer of DNS such as NXDOMAIN, or an error. WHAT is one of
//
//	tcp/HOST:PORT                connects
//	udp/HOST:PORT                sends a datagram and waits for one
//	dns/HOST:PORT/TYPE/NAME      asks over UDP for type A or TXT
//	dnstcp/HOST:PORT/TYPE/NAME   the same over TCP
func probe(ctx context.Context, streams Streams, args []string) error {
	flags := newFlagSet()
	timeout := flags.Duration("timeout", 2*time.Second, "")
	times := flags.Int("times", 2, "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() == 0 {
		return errors.New("want WHAT, one or more")
	}
	answers := make([]string, flags.NArg())
	var all sync.WaitGroup
	for i, what := range flags.Args() {
		all.Go(func() {
			for range *times {
				attempt, cancel := context.WithTimeout(ctx, *timeout)
				answers[i] = probeOnce(attempt, what)
				cancel()
				if answers[i] != probeSilent {
					return
				}
			}
		})
	}
	all.Wait()
	for i, what := range flags.Args() {
		if _, err := fmt.Fprintf(streams.Out, "%s\t%s\n", what, answers[i]); err != nil {
			return err
		}
	}
	return nil
}

func probeOnce(ctx context.Context, what string) string {
	network, rest, _ := strings.Cut(what, "/")
	var answer string
	var err error
	switch network {
	case "tcp":
		answer, err = probeReached, connects(ctx, rest)
	case "udp":
		answer, err = probeReached, exchange(ctx, rest)
	case "dns", "dnstcp":
		server, question, _ := strings.Cut(rest, "/")
		kind, name, _ := strings.Cut(question, "/")
		answer, err = ask(ctx, map[string]string{"dns": "udp", "dnstcp": "tcp"}[network], server, kind, name)
	default:
		return "unknown kind of probe"
	}
	var timeout net.Error
	switch {
	case err == nil:
		return answer
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET):
		return probeRefused
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, os.ErrDeadlineExceeded), ctx.Err() != nil:
		return probeSilent
	default:
		return strings.ReplaceAll(err.Error(), "\n", " ")
	}
}

func connects(ctx context.Context, address string) error {
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return connection.Close()
}

func exchange(ctx context.Context, address string) error {
	_, err := roundTrip(ctx, "udp", address, []byte("probe\n"))
	return err
}

// ask returns the answer's code, as in RFC 1035: NOERROR, NXDOMAIN, REFUSED.
func ask(ctx context.Context, network, server, kind, name string) (string, error) {
	types := map[string]dnsmessage.Type{"A": dnsmessage.TypeA, "TXT": dnsmessage.TypeTXT}
	asked, err := dnsmessage.NewName(name)
	if err != nil || types[kind] == 0 {
		return "", fmt.Errorf("want A or TXT and a name, not %s %s", kind, name)
	}
	question := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 1, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: asked, Type: types[kind], Class: dnsmessage.ClassINET}},
	}
	packed, err := question.Pack()
	if err != nil {
		return "", err
	}
	if network == "tcp" {
		packed = slices.Concat([]byte{byte(len(packed) >> 8), byte(len(packed))}, packed)
	}
	reply, err := roundTrip(ctx, network, server, packed)
	if err != nil {
		return "", err
	}
	if network == "tcp" {
		reply = reply[min(2, len(reply)):]
	}
	var parser dnsmessage.Parser
	header, err := parser.Start(reply)
	if err != nil {
		return "", err
	}
	switch header.RCode {
	case dnsmessage.RCodeSuccess:
		return "NOERROR", nil
	case dnsmessage.RCodeNameError:
		return "NXDOMAIN", nil
	case dnsmessage.RCodeRefused:
		return "REFUSED", nil
	default:
		return header.RCode.String(), nil
	}
}

func roundTrip(ctx context.Context, network, address string, message []byte) ([]byte, error) {
	connection, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := connection.SetDeadline(deadline); err != nil {
			return nil, err
		}
	}
	if _, err := connection.Write(message); err != nil {
		return nil, err
	}
	reply := make([]byte, 1<<16)
	n, err := connection.Read(reply)
	return reply[:n], err
}

// spoof SOURCE HOST:PORT: sends standard input as a datagram that claims to come
// from SOURCE, port 9. It takes CAP_NET_RAW and tells only that it was sent.
func spoof(_ context.Context, streams Streams, args []string) error {
	if len(args) != 2 {
		return errors.New("want SOURCE HOST:PORT")
	}
	source, err := netip.ParseAddr(args[0])
	if err != nil {
		return err
	}
	target, err := netip.ParseAddrPort(args[1])
	if err != nil {
		return err
	}
	payload := make([]byte, 512)
	n, err := streams.In.Read(payload)
	if err != nil {
		return fmt.Errorf("read standard input: %w", err)
	}
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_RAW, syscall.IPPROTO_RAW)
	if err != nil {
		return fmt.Errorf("open a raw socket: %w", err)
	}
	defer syscall.Close(socket)
	return syscall.Sendto(socket, datagram(source, target, payload[:n]), 0, &syscall.SockaddrInet4{Addr: target.Addr().As4()})
}

// datagram is an IPv4 packet (RFC 791) with a UDP datagram (RFC 768) in it. The
// kernel fills in length and checksum of the packet; that of the datagram is
// optional, 0.
func datagram(source netip.Addr, target netip.AddrPort, payload []byte) []byte {
	const (
		headers  = 20 + 8
		anywhere = 9 // the discard service
	)
	length := 8 + len(payload)
	packet := make([]byte, headers, headers+len(payload))
	packet[0], packet[8], packet[9] = 0x45, 64, syscall.IPPROTO_UDP
	copy(packet[12:], source.AsSlice())
	copy(packet[16:], target.Addr().AsSlice())
	packet[21] = anywhere
	packet[22], packet[23] = byte(target.Port()>>8), byte(target.Port())
	packet[24], packet[25] = byte(length>>8), byte(length)
	return append(packet, payload...)
}
