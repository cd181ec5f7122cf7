package kube

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports on 127.0.0.1 of a simulated cluster, as offsets from its base port.
const (
	portAPI = iota
	portEtcd
	portEtcdPeer
	portControllerManager
	portScheduler
	portKwok
	portsPerCluster = 8
)

// Ports come from below the range that Linux assigns to outgoing connections (32768 and up):
// a port that is free now stays free until its server listens on it, also when that server is restarted.
const (
	firstPort = 20000
	lastPort  = 29999
)

// pickPorts returns a base port of which the whole block is free and that no other cluster has been given.
// The search begins anywhere, so that users whose clusters do not know of each other seldom meet.
func pickPorts(taken map[int]bool, free func(port int) bool) (int, error) {
	const blocks = (lastPort - firstPort + 1) / portsPerCluster
	begin := rand.IntN(blocks)
	for i := range blocks {
		base := firstPort + (begin+i)%blocks*portsPerCluster
		if !taken[base] && blockFree(base, free) {
			return base, nil
		}
	}
	return 0, fmt.Errorf("no %d consecutive ports are free on 127.0.0.1 between %d and %d: take a cluster down", portsPerCluster, firstPort, lastPort)
}

func blockFree(base int, free func(port int) bool) bool {
	for port := base; port < base+portsPerCluster; port++ {
		if !free(port) {
			return false
		}
	}
	return true
}

func portFree(port int) bool {
	l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return l.Close() == nil
}
