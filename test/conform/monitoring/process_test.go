package monitoring

var _ = add(part{healthy: healthyProcess, alerts: alertsOfProcess})

func healthyProcess() []string {
	return []string{
		`up{` + job + `,instance="a",pod="a"} 1x90`,
		`up{` + job + `,instance="b",pod="b"} 1x90`,
		`process_start_time_seconds{` + job + `,instance="a",pod="a"} 1000x90`,
		`process_start_time_seconds{` + job + `,instance="b",pod="b"} 1000x90`,
		`leader_election_master_status{` + job + `,instance="a",name="berg-operator.berg.norelect.ch"} 1x90`,
		`leader_election_master_status{` + job + `,instance="b",name="berg-operator.berg.norelect.ch"} 0x90`,
		`rest_client_requests_total{` + job + `,instance="a",code="200"} 0+500x90`,
		`rest_client_requests_total{` + job + `,instance="a",code="429"} 0+1x90`,
		// Another program of the cluster has a series of the same name.
		`rest_client_requests_total{job="other",instance="x",code="429"} 0+5000x90`,
	}
}

func alertsOfProcess() map[string]alertTest {
	const leader = `{` + job + `,instance="a",name="berg-operator.berg.norelect.ch"}`
	starts := `process_start_time_seconds{` + job + `,instance="b",pod="b"} `
	throttled := `rest_client_requests_total{` + job + `,instance="a",code="429"} `
	return map[string]alertTest{
		"BergOperatorDown": {
			fires: [][]string{
				without(healthy(), "up", "process", "leader", "berg_", "workqueue", "rest_client"),
				with(healthy(), `up{`+job+`,instance="a",pod="a"} 1x30 0x60`, `up{`+job+`,instance="b",pod="b"} 0x90`),
			},
			others: []string{"BergOperatorReplicaFailing"},
			silent: [][]string{
				// A roll-out: the old pod's series ends, the new one's begins.
				with(healthy(), `up{`+job+`,instance="a",pod="a"} 1x30 stale`, `up{`+job+`,instance="c",pod="c"} _x31 1x60`),
				with(healthy(), `up{`+job+`,instance="a",pod="a"} 1x30 0x3 1x60`, `up{`+job+`,instance="b",pod="b"} 1x30 0x3 1x60`),
			},
		},
		"BergOperatorNoLeader": {
			fires: [][]string{with(healthy(), `leader_election_master_status`+leader+` 1x30 0x60`)},
			silent: [][]string{
				// A fail-over: for one minute no replica leads.
				with(healthy(), `leader_election_master_status`+leader+` 1x30 0x1 1x60`),
				// Leader election is switched off.
				without(healthy(), "leader_election_master_status"),
			},
		},
		"BergOperatorReplicaFailing": {
			fires: [][]string{
				with(healthy(), `up{`+job+`,instance="b",pod="b"} 1x30 0x60`),
				with(healthy(), starts+"1000x10 2000x5 3000x5 4000x5 5000x5 6000x60"),
			},
			silent: [][]string{
				with(healthy(), starts+"1000x30 2000x60"),
				with(healthy(), `up{`+job+`,instance="b",pod="b"} 1x30 0x5 1x60`),
			},
		},
		"BergAPIServerThrottling": {
			fires:  [][]string{with(healthy(), throttled+"0+100x90")},
			silent: [][]string{with(healthy(), throttled+"0x20 300x70")},
		},
	}
}
