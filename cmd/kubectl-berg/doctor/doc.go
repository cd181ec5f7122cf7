// Package doctor checks whether a cluster can run challenges. Inspect reads a Survey with the permissions of its user.
// The checks are pure: each returns results, which are ok or name a remedy.
//
// Reading:
//
//	surveyor.go        the options, and how a failed read is kept; the operator and its settings, which come first
//	survey.go          Inspect: everything for the checks, concurrently
//	survey_network.go  the Gateway, DNS, and the certificates that players see
//	event.go           Event: everything for an overview of an event, with fewer rights
//	uses.go            how players use instances, from the replicas of the gate
//	doctor.go          Survey and Result
//
// Checks:
//
//	checks.go      Check: all of them, in the order in which things depend on each other
//	apiserver.go   version, clock, CRDs, and the permissions of the user
//	operator.go    the operator, its leader and its version
//	policies.go    the admission policies
//	settings.go    the values that the operator uses, and where each comes from
//	gateway.go     the Gateway API, the Gateway and its listeners
//	network.go     names, certificates, and the kind of network policy
//	health.go      dangers for the event, by package berg/view, and the reads for them
//	images.go      pull secret and images
//	sandboxes.go   the requirements of sandbox: nested
//	capacity.go    nodes, node ports, quotas and instances
//	prepared.go    prepared instances
//
// The generated file has the defaults of all settings.
//
// # What holds
//
// A read that fails is no error of the program: Survey.Unreadable keeps the reason under a name, and each check that needs the
// object shows it as unknown. Only an API server that does not answer ends Inspect. A missing object is not unreadable: its field
// stays nil, and the check decides whether that is a problem.
//
// findOperator runs before all other reads, alone: they take names from the settings. The others run concurrently and write through
// set, each its own fields. A read that needs the result of another one, such as processes and connections, runs after the group
// of that one.
//
// Nothing is written except the reviews of the user's own permissions. Secrets are read only for envFrom of the operator, and
// never for a report.
package doctor
