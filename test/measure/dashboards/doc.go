// Package dashboards records what the operator reports to Prometheus while people use all of its families: the data of the
// pictures of dashboards in docs. make record-dashboards runs it on a cluster with simulated nodes; without that it is skipped.
package dashboards
