// Package attack is what a player with root in an instance tries to reach, and
// what is expected to answer: the matrix of docs/berg/isolation.md. The tests of
// test/e2e try every cell with packets.
package attack

import (
	"fmt"
	"net"
	"strings"
)

// Places are the addresses of one cluster under attack.
type Places struct {
	// Node is the address of the node, DNS the cluster's resolver.
	Node, DNS string
	// API is the address of the API server's Service.
	API string
	// Own and Other are namespaces of instances: the attacker's and another's.
	Own, Other string
	// OwnPod, OwnService, OtherPod, OtherService are addresses in them.
	OwnPod, OwnService, OtherPod, OtherService string
	// OtherNodePort and OtherDatagramPort are the numbers of ports that the other
	// instance opens to all, for TCP and UDP.
	OtherNodePort, OtherDatagramPort string
	// Operator, Visitor and DNSPod are addresses of pods outside of instances.
	Operator, Visitor, DNSPod string
	// Platform and PlatformService are addresses of the platform API.
	Platform, PlatformService string
	// Outside, Metadata and Private are hosts outside the cluster's network.
	Outside, Metadata, Private string
	// Domain holds the names of instances.
	Domain string
}

// Expected says for which instances a way is open.
type Expected int

// Who gets through.
const (
	// NoOne: closed for every Challenge.
	NoOne Expected = iota
	// Outbound are instances with allowOutboundTraffic.
	Outbound
	// Everyone: open for every instance.
	Everybody
)

// Opens tells whether an instance gets through.
func (e Expected) Opens(outbound bool) bool { return e == Everybody || e == Outbound && outbound }

func (e Expected) String() string {
	return map[Expected]string{NoOne: "no", Outbound: "with `allowOutboundTraffic`", Everybody: "yes"}[e]
}

// Row is one way that an attacker may take.
type Row struct {
	// Target is what the documents call it.
	Target string
	// Probe is what the toolbox is asked to try.
	Probe func(Places) string
	// Cilium and Kubernetes are what the two kinds of policy let through, both
	// enforced by Cilium. They differ where the standard policy has no words:
	// docs/adr/0011.
	Cilium, Kubernetes Expected
}

// Matrix returns all rows, in the order of the documents.
func Matrix() []Row {
	const http, echo = "8080", "9000"
	tcp := func(address func(Places) string, port string) func(Places) string {
		return func(p Places) string { return "tcp/" + net.JoinHostPort(address(p), port) }
	}
	udp := func(address func(Places) string, port string) func(Places) string {
		return func(p Places) string { return "udp/" + net.JoinHostPort(address(p), port) }
	}
	dns := func(network string, server func(Places) string, kind string, name func(Places) string) func(Places) string {
		return func(p Places) string {
			return fmt.Sprintf("%s/%s/%s/%s", network, net.JoinHostPort(server(p), "53"), kind, name(p))
		}
	}
	node := func(p Places) string { return p.Node }
	resolver := func(p Places) string { return p.DNS }
	outside := func(p Places) string { return p.Outside }
	constant := func(s string) func(Places) string { return func(Places) string { return s } }

	same := func(target string, probe func(Places) string, e Expected) Row { return Row{target, probe, e, e} }
	onNode := func(target, port string) Row { return same(target, tcp(node, port), NoOne) }

	return []Row{
		same("own instance: a pod, TCP", tcp(func(p Places) string { return p.OwnPod }, http), Everybody),
		same("own instance: a pod, UDP", udp(func(p Places) string { return p.OwnPod }, echo), Everybody),
		same("own instance: a Service, TCP", tcp(func(p Places) string { return p.OwnService }, http), Everybody),
		same("own instance: a Service, UDP", udp(func(p Places) string { return p.OwnService }, echo), Everybody),

		same("other instance: a pod, TCP", tcp(func(p Places) string { return p.OtherPod }, http), NoOne),
		same("other instance: a pod, UDP", udp(func(p Places) string { return p.OtherPod }, echo), NoOne),
		same("other instance: a Service, TCP", tcp(func(p Places) string { return p.OtherService }, http), NoOne),
		same("other instance: a Service, UDP", udp(func(p Places) string { return p.OtherService }, echo), NoOne),
		same("other instance: its NodePort at the node's address, TCP", func(p Places) string { return "tcp/" + net.JoinHostPort(p.Node, p.OtherNodePort) }, NoOne),
		same("other instance: its NodePort at the node's address, UDP", func(p Places) string { return "udp/" + net.JoinHostPort(p.Node, p.OtherDatagramPort) }, NoOne),

		same("API server: its Service", tcp(func(p Places) string { return p.API }, "443"), NoOne),
		onNode("API server: at the node", "6443"),
		onNode("kubelet", "10250"),
		onNode("etcd", "2379"),
		onNode("controller manager", "10257"),
		onNode("scheduler", "10259"),
		onNode("kube-proxy's health", "10256"),
		onNode("registry", "5000"),
		// A standard policy names nodes by address, which Cilium does not take for them.
		{"Gateway at the node, HTTPS", tcp(node, "443"), Everybody, NoOne},
		{"Gateway at the node, TLS", tcp(node, "8443"), Everybody, NoOne},

		same("operator: metrics", tcp(func(p Places) string { return p.Operator }, "8443"), NoOne),
		same("operator: health", tcp(func(p Places) string { return p.Operator }, "8081"), NoOne),
		same("platform API: a pod", tcp(func(p Places) string { return p.Platform }, "8080"), NoOne),
		same("platform API: its metrics", tcp(func(p Places) string { return p.Platform }, "8081"), NoOne),
		same("platform API: its Service", tcp(func(p Places) string { return p.PlatformService }, "80"), NoOne),
		same("any other pod of the cluster", tcp(func(p Places) string { return p.Visitor }, http), NoOne),
		same("DNS server: its metrics and health", tcp(func(p Places) string { return p.DNSPod }, "8181"), NoOne),

		same("DNS: names of the own namespace, UDP", dns("dns", resolver, "A", func(p Places) string { return "box." + p.Own + ".svc.cluster.local." }), Everybody),
		same("DNS: names of the own namespace, TCP", dns("dnstcp", resolver, "A", func(p Places) string { return "box." + p.Own + ".svc.cluster.local." }), Everybody),
		{"DNS: names of another namespace", dns("dns", resolver, "A", func(p Places) string { return "box." + p.Other + ".svc.cluster.local." }), Outbound, Everybody},
		{"DNS: external names", dns("dns", resolver, "A", constant("www.example.org.")), Outbound, Everybody},
		{"DNS: a tunnel by TXT", dns("dns", resolver, "TXT", constant("c2VjcmV0.tunnel.example.org.")), Outbound, Everybody},
		same("DNS: another resolver, UDP", dns("dns", outside, "A", constant("www.example.org.")), Outbound),
		same("DNS: another resolver, TCP", dns("dnstcp", outside, "A", constant("www.example.org.")), Outbound),

		same("internet, TCP", tcp(outside, "80"), Outbound),
		same("internet, UDP", udp(outside, echo), Outbound),
		same("metadata of a cloud", tcp(func(p Places) string { return p.Metadata }, "80"), NoOne),
		same("private network next to the cluster", tcp(func(p Places) string { return p.Private }, "80"), NoOne),
	}
}

// Seizure is one thing of the node that an attacker may try to take without a packet.
type Seizure struct {
	// Target is what the documents call it.
	Target string
	// Attempt is what the toolbox is asked to try.
	Attempt string
}

// Seizures returns what root in a container with sandbox: nested tries, and root in a jail in it. None may succeed.
func Seizures() []Seizure {
	return []Seizure{
		{"read a disk of the node through a device of its own", "device"},
		{"mount a file system of the kernel: devices, debugging, tracing, security", "files"},
		{"write settings of the kernel in /proc/sys and /sys", "sysctl"},
		{"send commands to the kernel: sysrq", "sysrq"},
		{"read the memory of the kernel", "memory"},
		{"read the log of the kernel", "log"},
		{"load a module into the kernel", "module"},
		{"load a program into the kernel: BPF", "program"},
		{"observe a CPU: perf events", "observer"},
		{"read the keys of the kernel", "keys"},
		{"change the clock", "clock"},
	}
}

// SeizureTable is Seizures as Markdown.
func SeizureTable() string {
	var b strings.Builder
	b.WriteString("| as root, to | in a container with `sandbox: nested` | in a jail in it |\n| --- | --- | --- |\n")
	for _, s := range Seizures() {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", s.Target, NoOne, NoOne)
	}
	return b.String()
}

// Table is the matrix as Markdown.
func Table() string {
	var b strings.Builder
	b.WriteString("| from a pod of an instance, as root, to | `NETWORK_POLICY=cilium` | `kubernetes`, enforced by Cilium |\n| --- | --- | --- |\n")
	for _, r := range Matrix() {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", r.Target, r.Cilium, r.Kubernetes)
	}
	return b.String()
}
