package monitoring

var _ = add(part{healthy: healthyHexaCTF, alerts: alertsOfHexaCTF})

func healthyHexaCTF() []string {
	return append([]string{
		`hexactf_messages_oldest_unsent_seconds{` + job + `,instance="a"} 0.1x90`,
		`hexactf_messages_lost_total{` + job + `,instance="a"} 2x90`,
		`hexactf_messages_lost_total{` + job + `,instance="b"} 0x90`,
		`hexactf_challenge_max_overdue_seconds{` + job + `,instance="a"} 0.3x90`,
		`hexactf_challenge_max_in_phase_seconds{` + job + `,instance="a",phase="Running"} 1700x90`,
		`hexactf_challenge_max_in_phase_seconds{` + job + `,instance="a",phase="Terminating"} 20x90`,
		`hexactf_challenge_max_in_phase_seconds{` + job + `,instance="a",phase="Error"} 0x90`,
	}, histogram("hexactf_challenge_expiry_delay_seconds", "", "0.5", 3)...)
}

func alertsOfHexaCTF() map[string]alertTest {
	series := func(metric, labels, values string) string {
		return `hexactf_` + metric + `{` + job + `,instance="a"` + labels + `} ` + values
	}
	oldest := func(state, values string) string {
		return series("challenge_max_in_phase_seconds", `,phase="`+state+`"`, values)
	}
	return map[string]alertTest{
		"HexactfMessagesLost": {
			fires: [][]string{with(healthy(), series("messages_lost_total", "", "2x80 5x9"))},
			// A fail-over: the counter of the one ends, that of the other begins.
			silent: [][]string{with(healthy(), series("messages_lost_total", "", "2x80 stale")), with(healthy(), series("messages_lost_total", "", "2x80 0x9"))},
		},
		"HexactfMessagesUnsent": {
			fires: [][]string{with(healthy(), series("messages_oldest_unsent_seconds", "", "0x80 0+60x9"))},
			// A broker that is restarted.
			silent: [][]string{with(healthy(), series("messages_oldest_unsent_seconds", "", "0x80 60x1 110x1 0x9"))},
		},
		"HexactfExpiryLate": {
			fires: [][]string{
				with(healthy(), series("challenge_max_overdue_seconds", "", "0+60x90")),
				with(healthy(), histogram("hexactf_challenge_expiry_delay_seconds", "", "30", 3)...),
			},
			silent: [][]string{with(healthy(), series("challenge_max_overdue_seconds", "", "0x30 90x3 0x57"))},
		},
		"HexactfChallengeStuckTerminating": {
			fires:  [][]string{with(healthy(), oldest("Terminating", "0+60x90"))},
			silent: [][]string{with(healthy(), oldest("Terminating", "0+60x8 0x82"))},
		},
		"HexactfChallengeError": {
			fires:  [][]string{with(healthy(), oldest("Error", "0+60x90"))},
			silent: [][]string{with(healthy(), oldest("Error", "0+60x14 0x75"))},
		},
	}
}
