package kube

import (
	"net"
	"testing"
)

func TestPickPorts(t *testing.T) {
	everything := func(int) bool { return true }
	taken := map[int]bool{}
	for range 200 {
		base, err := pickPorts(taken, everything)
		if err != nil {
			t.Fatal(err)
		}
		if taken[base] {
			t.Fatalf("%d was given twice", base)
		}
		if base < firstPort || base+portsPerCluster-1 > lastPort || (base-firstPort)%portsPerCluster != 0 {
			t.Fatalf("%d is not the beginning of a block", base)
		}
		taken[base] = true
	}

	const only = firstPort + 5*portsPerCluster
	base, err := pickPorts(nil, func(port int) bool { return port >= only && port < only+portsPerCluster })
	if err != nil || base != only {
		t.Errorf("with one free block: got %d, %v, want %d", base, err, only)
	}
	if _, err := pickPorts(nil, func(port int) bool { return port%portsPerCluster != 3 }); err == nil {
		t.Error("no error although no block is free as a whole")
	}
}

func TestPortFree(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if portFree(port) {
		t.Error("a port that is listened on counts as free")
	}
	l.Close()
	if !portFree(port) {
		t.Error("a closed port does not count as free")
	}
}

func TestPickSubnet(t *testing.T) {
	var addresses []net.Addr
	add := func(cidr string) {
		ip, network, err := net.ParseCIDR(cidr)
		if err != nil {
			t.Fatal(err)
		}
		addresses = append(addresses, &net.IPNet{IP: ip, Mask: network.Mask})
	}
	want := func(n int) {
		t.Helper()
		if got, err := pickSubnet(addresses); err != nil || got != n {
			t.Errorf("got %d, %v, want %d", got, err, n)
		}
	}
	add("192.0.2.2/24")
	add("::1/128")
	want(0)
	add("198.18.0.1/30")
	want(1)
	add("198.18.1.77/32")
	want(2)
	add("198.18.2.1/23")
	want(4)
	add("198.18.0.9/16")
	if _, err := pickSubnet(addresses); err == nil {
		t.Error("no error although the whole range is in use")
	}
}

func TestNamesOutsideTheStateDirectory(t *testing.T) {
	a, b := "/home/a/clusters/berg", "/home/b/clusters/berg"
	if nodeID(a, "berg") == nodeID(b, "berg") || LinkName(a) == LinkName(b) {
		t.Error("clusters of one name in two places are not distinguished")
	}
	if n := len(LinkName(a)); n > 15 {
		t.Errorf("a link's name has %d characters, Linux takes 15", n)
	}
}
