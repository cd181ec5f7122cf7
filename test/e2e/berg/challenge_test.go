package berg

import (
	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/journey"
)

func newPort(name string, number int32, portType bergv1.PortType) bergv1.Port {
	return bergv1.Port{Name: name, Port: number, Type: portType}
}

// everyPort is a toolbox container with a port of each type; number 9000 is open
// for TCP and UDP.
func everyPort() bergv1.Container {
	udp := newPort("echo-datagrams", 9000, bergv1.PublicPort)
	udp.Protocol = "udp"
	c := journey.Toolbox("box",
		newPort("web", 8080, bergv1.PublicHTTPRoute),
		newPort("secure", 8443, bergv1.PublicTLSRoute),
		newPort("echo", 9000, bergv1.PublicPort),
		udp,
		newPort("inside", 8081, bergv1.InternalPort),
	)
	c.Environment = map[string]bergv1.EnvironmentValue{
		"TOOLBOX_HTTP": bergv1.StringValue(":8080"),
		"TOOLBOX_TCP":  bergv1.StringValue(":9000"),
		"TOOLBOX_UDP":  bergv1.StringValue(":9000"),
	}
	c.DynamicFlag = &bergv1.DynamicFlag{Content: &bergv1.FlagFile{Path: "/flag.txt"}}
	return c
}
