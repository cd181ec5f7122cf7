package monitoring

import "strings"

var _ = add(part{healthy: healthyBerg, alerts: alertsOfBerg})

func healthyBerg() []string {
	series := []string{
		`berg_challengeinstance_active{` + job + `,instance="a",phase="Starting"} 2x90`,
		`berg_challengeinstance_max_overdue_seconds{` + job + `,instance="a"} 0.3x90`,
		`berg_challengeinstance_active{` + job + `,instance="a",phase="Running"} 100x90`,
		`berg_challengeinstance_queue_length{` + job + `,instance="a",challenge="web"} 5x90`,
		`berg_challengeinstance_queue_head_seconds{` + job + `,instance="a"} 60x90`,
		`berg_challengeinstance_active{` + job + `,instance="a",phase="Failed"} 0x90`,
		`berg_challengeinstance_orphaned_namespaces{` + job + `,instance="a"} 0x90`,
		`berg_challengeinstance_max_in_phase_seconds{` + job + `,instance="a",phase="Creating"} 0x90`,
		`berg_challengeinstance_max_in_phase_seconds{` + job + `,instance="a",phase="Starting"} 30x90`,
		`berg_challengeinstance_max_in_phase_seconds{` + job + `,instance="a",phase="Running"} 7000x90`,
		`berg_challengeinstance_max_in_phase_seconds{` + job + `,instance="a",phase="Terminating"} 20x90`,
		`berg_challengeinstance_max_in_phase_seconds{` + job + `,instance="a",phase="Failed"} 0x90`,
		`berg_isolation_verified{` + job + `,instance="a"} 1x90`,
		`berg_challengecheck_solvable{` + job + `,instance="a",challenge="web"} 1x90`,
		`berg_challengecheck_max_overdue_seconds{` + job + `,instance="a"} 20x90`,
		`berg_challengeinstancerecord_refused_total{` + job + `,instance="a",reason="Forbidden"} 0x90`,
		`berg_challengeinstance_reconcile_errors_total{` + job + `,instance="a"} 0+1x90`,
		`berg_challengeinstance_reconcile_duration_seconds_count{` + job + `,instance="a"} 0+100x90`,
		`workqueue_depth{` + job + `,instance="a",name="challengeinstance",priority="0"} 3x90`,
		// A standby fills its queue and does not drain it.
		`workqueue_depth{` + job + `,instance="b",name="challengeinstance",priority="0"} 5000x90`,
		// Another program of the cluster has a series of the same name.
		`workqueue_depth{job="other",instance="x",name="challengeinstance"} 9000x90`,
	}
	series = append(series,
		`up{job="berg-api",instance="c"} 1x90`, `up{job="berg-api",instance="d"} 1x90`,
		`berg_api_tokens{job="berg-api",instance="c"} 2x90`,
		`up{job="berg-gate",instance="g",pod="g"} 1x90`, `up{job="berg-gate",instance="h",pod="h"} 1x90`,
		gate("routes", "g", "", "1000x90"), gate("routes", "h", "", "1003x90"), gate("open_connections", "g", "", "800x90"),
		gate("unanswered_total", "g", "", "0+1x90"), gate("refused_connections_total", "g", `,reason="address"`, "0+2x90"),
		// A scan of names is not a limit.
		gate("refused_connections_total", "g", `,reason="name"`, "0+900x90"),
		gate("certificate_expiry_timestamp_seconds", "g", certificate, "5184000x90"),
		apiRequests("200", "0+600x90"), apiRequests("401", "0+0.2x90"), apiRequests("500", "0+1x90"),
	)
	for _, s := range histogram("berg_api_request_duration_seconds", `endpoint="rctf",call="status"`, "0.1", 600) {
		series = append(series, strings.Replace(s, job, `job="berg-api"`, 1))
	}
	series = append(series, histogram("berg_challengeinstance_time_to_running_seconds", `challenge="web"`, "5", 3)...)
	series = append(series, histogram("berg_challengeinstance_expiry_delay_seconds", "", "0.5", 3)...)
	return series
}

const certificate = `,namespace="berg",secret="challenges-tls"`

// gate is a series of a replica of the gate.
func gate(metric, pod, labels, values string) string {
	return `berg_gate_` + metric + `{job="berg-gate",instance="` + pod + `",pod="` + pod + `"` + labels + `} ` + values
}

// apiRequests is the series of the requests that the platform API answered with a status.
func apiRequests(code, values string) string {
	return `berg_api_requests_total{job="berg-api",instance="c",endpoint="rctf",call="status",code="` + code + `"} ` + values
}

func alertsOfBerg() map[string]alertTest {
	oldest := func(phase, values string) string {
		return `berg_challengeinstance_max_in_phase_seconds{` + job + `,instance="a",phase="` + phase + `"} ` + values
	}
	errors := func(values string) string {
		return `berg_challengeinstance_reconcile_errors_total{` + job + `,instance="a"} ` + values
	}
	orphans := `berg_challengeinstance_orphaned_namespaces{` + job + `,instance="a"} `
	verified := `berg_isolation_verified{` + job + `,instance="a"} `
	overdue := `berg_challengeinstance_max_overdue_seconds{` + job + `,instance="a"} `
	depth := `workqueue_depth{` + job + `,instance="a",name="challengeinstance",priority="0"} `
	head := `berg_challengeinstance_queue_head_seconds{` + job + `,instance="a"} `
	return map[string]alertTest{
		"BergInstancesQueued": {
			fires:  [][]string{with(healthy(), head+"0+60x90")},
			silent: [][]string{with(healthy(), head+"0+60x14 0+60x14 0+60x14 0x44")},
		},
		"BergAPIDown": {
			fires: [][]string{with(healthy(), `up{job="berg-api",instance="c"} 1x20 0x70`, `up{job="berg-api",instance="d"} 1x20 0x70`)},
			silent: [][]string{
				with(healthy(), `up{job="berg-api",instance="c"} 1x20 0x70`), // the other one answers
				without(healthy(), `berg_api_tokens`),
			},
		},
		"BergGateDown": {
			fires: [][]string{with(healthy(), `up{job="berg-gate",instance="g",pod="g"} 1x20 0x70`, `up{job="berg-gate",instance="h",pod="h"} 1x20 0x70`)},
			silent: [][]string{
				with(healthy(), `up{job="berg-gate",instance="g",pod="g"} 1x20 0x70`), // the other one answers
				without(healthy(), `up{job="berg-gate"`, "berg_gate_"),                // it is not installed
			},
		},
		"BergGateUnanswered": {
			fires:  [][]string{with(healthy(), gate("unanswered_total", "g", "", "0x20 0+10x70"))},
			silent: [][]string{with(healthy(), gate("unanswered_total", "g", "", "0x20 0+30x2 60x68"))}, // one instance crashed
		},
		"BergGateLimitReached": {
			fires: [][]string{
				with(healthy(), gate("refused_connections_total", "g", `,reason="address"`, "0x20 0+50x70")),
				with(healthy(), gate("refused_connections_total", "g", `,reason="total"`, "0x20 0+50x70")),
			},
			silent: [][]string{with(healthy(), gate("refused_connections_total", "g", `,reason="host"`, "0x20 0+40x2 80x68"))},
		},
		"BergGateCertificateExpiring": {
			fires: [][]string{
				with(healthy(), gate("certificate_expiry_timestamp_seconds", "g", certificate, "86400x90")),
				with(healthy(), gate("certificate_expiry_timestamp_seconds", "g", certificate, "0x90")), // the Secret is missing
			},
			silent: [][]string{with(healthy(), gate("certificate_expiry_timestamp_seconds", "g", certificate, "950400x90"))}, // ten days
		},
		"BergGateReplicasDiffer": {
			fires: [][]string{
				with(healthy(), gate("routes", "h", "", "1000x20 500x70")),
				with(healthy(), gate("routes", "g", "", "0x90"), gate("routes", "h", "", "30x90")),
			},
			silent: [][]string{
				with(healthy(), gate("routes", "h", "", "1000x20 500x5 1000x65")), // it started again
				with(healthy(), gate("routes", "g", "", "3x90"), gate("routes", "h", "", "12x90")),
			},
		},
		"BergAPIErrors": {
			fires: [][]string{with(healthy(), apiRequests("503", "0x20 0+60x70"))},
			silent: [][]string{
				with(healthy(), apiRequests("503", "0x20 0+60x3 180x67")),
				// A quiet night: one of two requests.
				with(healthy(), apiRequests("200", "0+0.2x90"), apiRequests("500", "0+0.2x90")),
			},
		},
		"BergAPITokenRefused": {
			fires: [][]string{
				with(healthy(), `berg_api_tokens{job="berg-api",instance="c"} 2x20 0x70`),
				with(healthy(), apiRequests("401", "0x20 0+10x70")),
			},
			silent: [][]string{with(healthy(), apiRequests("401", "0x20 0+5x2 10x68"))},
		},
		"BergReconcileErrors": {
			fires: [][]string{with(healthy(), errors("0+20x90"))},
			silent: [][]string{
				with(healthy(), errors("0x20 0+50x5 250x65")),
				// In a quiet cluster half of all passes can be one instance.
				with(healthy(), errors("0+0.25x90"), `berg_challengeinstance_reconcile_duration_seconds_count{`+job+`,instance="a"} 0+0.5x90`),
			},
		},
		"BergQueueBacklog": {
			fires: [][]string{
				with(healthy(), depth+"0x20 400x70"),
				with(healthy(), strings.Replace(depth, "challengeinstance", "challengeinstance-deletion", 1)+"0x20 400x70"),
			},
			silent: [][]string{with(healthy(), depth+"0x20 4000x5 0x60")},
		},
		"BergIsolationNotEnforced": {
			fires: [][]string{with(healthy(), verified+"1x60 0x29")},
			silent: [][]string{
				// The check is off.
				without(healthy(), "berg_isolation_verified"),
				// It came to no end.
				with(healthy(), verified+"1x60 stale"),
			},
		},
		"BergExpiryLate": {
			fires: [][]string{
				with(healthy(), histogram("berg_challengeinstance_expiry_delay_seconds", "", "30", 3)...),
				// None ends any more, so none is late.
				with(with(healthy(), histogram("berg_challengeinstance_expiry_delay_seconds", "", "0.5", 0)...), overdue+"0+60x90"),
			},
			silent: [][]string{
				// No expiry at all.
				with(healthy(), histogram("berg_challengeinstance_expiry_delay_seconds", "", "30", 0)...),
				// Now and then one waits for an API server that is away.
				with(healthy(), overdue+"0+60x4 0x20 0+60x4 0x60"),
			},
		},
		"BergInstanceStuckStarting": {
			fires: [][]string{
				with(healthy(), oldest("Starting", "0+60x90")),
				with(healthy(), oldest("Creating", "0+60x90")),
			},
			silent: [][]string{with(healthy(), oldest("Starting", "0+60x9 0+60x9 0+60x9 0x60"))},
		},
		"BergInstanceFailed": {
			fires:  [][]string{with(healthy(), oldest("Failed", "0+60x90"))},
			silent: [][]string{with(healthy(), oldest("Failed", "0+60x14 0x75"))},
		},
		"BergInstanceStuckTerminating": {
			fires:  [][]string{with(healthy(), oldest("Terminating", "0+60x90"))},
			silent: [][]string{with(healthy(), oldest("Terminating", "0+60x9 0+60x9 0x70"))},
		},
		"BergNamespaceOrphaned": {
			fires: [][]string{with(healthy(), orphans+"0x30 2x60")},
			silent: [][]string{
				// The operator deletes them.
				with(healthy(), orphans+"0x30 1x11 0x50"),
			},
		},
		"BergChallengeUnsolvable": {
			fires: [][]string{with(healthy(), `berg_challengecheck_solvable{`+job+`,instance="a",challenge="pwn"} 1x30 0x60`)},
			silent: [][]string{
				// No check is made.
				without(healthy(), "berg_challengecheck_solvable"),
				// It was repaired, and checked immediately.
				with(healthy(), `berg_challengecheck_solvable{`+job+`,instance="a",challenge="pwn"} 1x30 0x9 1x50`),
				// Its check was suspended, or the Challenge deleted: then there is no number.
				with(healthy(), `berg_challengecheck_solvable{`+job+`,instance="a",challenge="pwn"} 1x30 0x9 stale`),
			},
		},
		"BergChallengeChecksLate": {
			fires: [][]string{with(healthy(), `berg_challengecheck_max_overdue_seconds{`+job+`,instance="a"} 0+60x90`)},
			silent: [][]string{
				without(healthy(), "berg_challengecheck_max_overdue_seconds"),
				with(healthy(), `berg_challengecheck_max_overdue_seconds{`+job+`,instance="a"} 0+60x29 0x60`),
			},
		},
		"BergImagePullsFailing": {
			fires: [][]string{with(healthy(), `berg_image_prepull_failing{`+job+`,instance="a"} 0x30 2x60`)},
			silent: [][]string{
				// Nothing is pulled ahead.
				without(healthy(), "berg_image_prepull_failing"),
				// The second attempt succeeded.
				with(healthy(), `berg_image_prepull_failing{`+job+`,instance="a"} 0x30 2x2 0x60`),
			},
		},
		"BergRecordsNotWritten": {
			fires: [][]string{with(healthy(), `berg_challengeinstancerecord_refused_total{`+job+`,instance="a",reason="Forbidden"} 0x10 1x80`)},
			silent: [][]string{
				without(healthy(), "berg_challengeinstancerecord_refused_total"),
				with(healthy(), `berg_challengeinstancerecord_refused_total{`+job+`,instance="a",reason="Forbidden"} 7x90`),
			},
		},
		"BergSlowStarts": {
			fires: [][]string{with(healthy(), histogram("berg_challengeinstance_time_to_running_seconds", `challenge="web"`, "120", 3)...)},
			silent: [][]string{
				// Few starts: one slow image says nothing about all players.
				with(healthy(), histogram("berg_challengeinstance_time_to_running_seconds", `challenge="web"`, "120", 0.2)...),
				// They waited for room.
				with(without(with(healthy(), histogram("berg_challengeinstance_time_to_running_seconds", `challenge="web"`, "120", 3)...), "berg_challengeinstance_queue_head_seconds"), `berg_challengeinstance_queue_head_seconds{`+job+`,instance="a"} 120x90`),
			},
		},
	}
}
