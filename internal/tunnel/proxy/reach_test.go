package proxy

import (
	"net"
	"testing"
	"time"

	"github.com/bergctf/berg-operator/internal/tunnel/control"
)

// A port that is in use is only a wish: the tunnel has a random one, which all that is told of it names.
func TestAPortThatIsInUseIsReplaced(t *testing.T) {
	p := start(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	wanted := int32(taken.Addr().(*net.TCPAddr).Port)
	request := &control.TunnelRequest{Name: "one", ServerPort: int32(serve(t, echo)), ClientProxyAddress: "127.0.0.1", ClientProxyPort: wanted}
	spec, err := p.PrepareTunnel(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	if spec.GetClientProxyPort() == wanted || spec.GetRequestedClientProxyPort() != wanted {
		t.Errorf("%v: want another port than %d", spec, wanted)
	}
	if err := once(Endpoint{"127.0.0.1", int(spec.GetClientProxyPort())}.String()); err != nil {
		t.Error(err)
	}
	again, err := p.PrepareTunnel(t.Context(), request)
	if err != nil || again.GetClientProxyPort() != spec.GetClientProxyPort() || again.GetTunnelRef().GetTunnelId() != spec.GetTunnelRef().GetTunnelId() {
		t.Errorf("the same request: %v, %v", again, err)
	}
}

// The list says of each server whether it answers, without a client, and follows it.
func TestServersAreChecked(t *testing.T) {
	p := start(t, func(o *options) { o.server.CheckInterval = 20 * time.Millisecond })
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := listener.Addr().(*net.TCPAddr)
	p.prepare("one", at.Port)
	answers := func(want bool) func() bool {
		return func() bool {
			all := p.list().GetTunnels()
			return len(all) == 1 && all[0].GetServerChecked() && (all[0].GetServerError() == "") == want
		}
	}
	within(t, "the server answers", answers(true))
	_ = listener.Close()
	within(t, "the server is away", answers(false))
	if listener, err = net.ListenTCP("tcp", at); err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	within(t, "the server is back", answers(true))
}

// A client that finds no server is enough to know that it is away.
func TestAServerIsCheckedWhenAClientConnects(t *testing.T) {
	p := start(t, func(o *options) { o.server.DialTimeout = 100 * time.Millisecond })
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := free.Addr().(*net.TCPAddr).Port
	_ = free.Close()
	_, address := p.prepare("one", port)
	if all := p.list().GetTunnels(); all[0].GetServerChecked() {
		t.Errorf("checked before a client connects, without an interval: %v", all)
	}
	if err := once(address); err == nil {
		t.Error("there is a server")
	}
	within(t, "the server is away", func() bool { return p.list().GetTunnels()[0].GetServerError() != "" })
}
