package monitoring

var _ = add(part{healthy: healthyTunnel, alerts: alertsOfTunnel})

func healthyTunnel() []string {
	return []string{
		`tunnel_proxy_failed_total{` + job + `,instance="a"} 2x90`,
		`tunnel_proxy_failed_total{` + job + `,instance="b"} 0x90`,
		`tunnel_proxy_longest_in_phase_seconds{` + job + `,instance="a",phase="Running"} 7200x90`,
		`tunnel_proxy_longest_in_phase_seconds{` + job + `,instance="a",phase="Failed"} 7200x90`,
		`tunnel_proxy_longest_in_phase_seconds{` + job + `,instance="a",phase="Starting"} 20x90`,
		`tunnel_network_longest_in_phase_seconds{` + job + `,instance="a",phase="Running"} 7200x90`,
		`tunnel_network_longest_in_phase_seconds{` + job + `,instance="a",phase="Pending"} 1x90`,
	}
}

func alertsOfTunnel() map[string]alertTest {
	series := func(metric, labels, values string) string {
		return `tunnel_` + metric + `{` + job + `,instance="a"` + labels + `} ` + values
	}
	return map[string]alertTest{
		"TunnelProxyFailed": {
			fires: [][]string{with(healthy(), series("proxy_failed_total", "", "2x80 3x9"))},
			// A fail-over: the counter of the one ends, that of the other begins.
			silent: [][]string{with(healthy(), series("proxy_failed_total", "", "2x80 stale")), with(healthy(), series("proxy_failed_total", "", "2x80 0x9"))},
		},
		"TunnelProxyNotRunning": {
			fires:  [][]string{with(healthy(), series("proxy_longest_in_phase_seconds", `,phase="Pending"`, "0+60x90"))},
			silent: [][]string{with(healthy(), series("proxy_longest_in_phase_seconds", `,phase="Pending"`, "0+60x14 0x75"))},
		},
		"TunnelNetworkNotRunning": {
			fires:  [][]string{with(healthy(), series("network_longest_in_phase_seconds", `,phase="NotFound"`, "0+60x90"))},
			silent: [][]string{with(healthy(), series("network_longest_in_phase_seconds", `,phase="NotFound"`, "0+60x14 0x75"))},
		},
	}
}
