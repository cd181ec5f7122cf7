// Package monitoring holds the tests of the alerts and the dashboard in config/.
// They use the parsers and the query engine of Prometheus, which are a module of
// their own so that the operator does not depend on them.
package monitoring
