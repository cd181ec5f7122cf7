// Package gateway runs the conformance tests of the Gateway API against the gate, on the cluster of KUBECONFIG. It is a module of its own,
// because these tests need libraries that the operator does not. make e2e-gate brings up a cluster, and runs it.
package gateway
