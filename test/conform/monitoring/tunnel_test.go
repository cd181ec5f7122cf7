package monitoring

var _ = add(part{healthy: healthyTunnel, alerts: alertsOfTunnel})

func healthyTunnel() []string {
	return []string{
		`tunnel_proxy_failed_total{` + job + `,instance="a"} 2x90`,
		`tunnel_proxy_failed_total{` + job + `,instance="b"} 0x90`,
		`tunnel_proxy_max_in_phase_seconds{` + job + `,instance="a",phase="Running"} 7200x90`,
		`tunnel_proxy_max_in_phase_seconds{` + job + `,instance="a",phase="Failed"} 7200x90`,
		`tunnel_proxy_max_in_phase_seconds{` + job + `,instance="a",phase="Starting"} 20x90`,
		`tunnel_network_max_in_phase_seconds{` + job + `,instance="a",phase="Running"} 7200x90`,
		`tunnel_network_max_in_phase_seconds{` + job + `,instance="a",phase="Pending"} 1x90`,
		`tunnel_tunnels{` + job + `,instance="a",state="Ready"} 7x90`,
		`tunnel_tunnels{` + job + `,instance="a",state="Failed"} 0x90`,
		`tunnel_tunnels{` + job + `,instance="b",state="Failed"} 0x90`,
		`tunnel_streams_total{` + job + `,instance="a"} 0+60x90`,
		`tunnel_stream_failures_total{` + job + `,instance="a",reason="server_unavailable"} 0+1x90`,
		// Clients that give up, however many.
		`tunnel_stream_failures_total{` + job + `,instance="a",reason="cancelled"} 0+60x90`,
		// The default of 90 days, renewed after 60. That replica b runs no pair is no end.
		`tunnel_certificate_expiry_timestamp_seconds{` + job + `,instance="a"} 2600000x90`,
		`tunnel_certificate_expiry_timestamp_seconds{` + job + `,instance="b"} 0x90`,
		`tunnel_certificate_lifetime_seconds{` + job + `,instance="a"} 7776000x90`,
		`tunnel_certificate_lifetime_seconds{` + job + `,instance="b"} 0x90`,
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
			fires:  [][]string{with(healthy(), series("proxy_max_in_phase_seconds", `,phase="Pending"`, "0+60x90"))},
			silent: [][]string{with(healthy(), series("proxy_max_in_phase_seconds", `,phase="Pending"`, "0+60x14 0x75"))},
		},
		"TunnelFailed": {
			fires: [][]string{with(healthy(), series("tunnels", `,state="Failed"`, "0x60 1x29"))},
			// It was tried again, and has its port.
			silent: [][]string{with(healthy(), series("tunnels", `,state="Failed"`, "0x70 1x10 0x9"))},
		},
		"TunnelStreamsFailing": {
			fires: [][]string{with(healthy(), series("stream_failures_total", `,reason="server_unavailable"`, "0+10x90"))},
			silent: [][]string{
				// Few, though all of them.
				with(healthy(), series("stream_failures_total", `,reason="server_unavailable"`, "0x85 5x5"), series("streams_total", "", "7x90")),
				// One in twelve.
				with(healthy(), series("stream_failures_total", `,reason="server_unavailable"`, "0+5x90")),
			},
		},
		"TunnelCertificateExpiring": {
			fires: [][]string{
				with(healthy(), series("certificate_expiry_timestamp_seconds", "", "600000x90")),
				// Certificates of an hour, of which three minutes are left.
				with(healthy(), series("certificate_expiry_timestamp_seconds", "", "5600x90"), series("certificate_lifetime_seconds", "", "3600x90")),
			},
			silent: [][]string{
				with(healthy(), series("certificate_expiry_timestamp_seconds", "", "6700x90"), series("certificate_lifetime_seconds", "", "3600x90")),
				with(healthy(), series("certificate_expiry_timestamp_seconds", "", "0x90")),
			},
		},
		"TunnelNetworkNotRunning": {
			fires:  [][]string{with(healthy(), series("network_max_in_phase_seconds", `,phase="NotFound"`, "0+60x90"))},
			silent: [][]string{with(healthy(), series("network_max_in_phase_seconds", `,phase="NotFound"`, "0+60x14 0x75"))},
		},
	}
}
