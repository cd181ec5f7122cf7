package doctor

import (
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
)

// Check runs the checks in the order in which things depend on each other.
func Check(s Survey) []Result {
	var results []Result
	for _, check := range []func(Survey) []Result{
		server, clockSkew, crds, rights, operator, policiesInForce, versions, settings, gatewayAPI, gateway, names, certificates, policy, health, images, sandboxes, capacity, quotas, instances, PreparedInstances,
	} {
		results = append(results, check(s)...)
	}
	return oneLine(results)
}

// Worst returns the highest level of results. No results are ok.
func Worst(results []Result) console.Level {
	worst := console.OK
	for _, l := range results {
		if l.Level.Order() < worst.Order() {
			worst = l.Level
		}
	}
	return worst
}
