package monitoring

var _ = add(part{healthy: healthyQuix, alerts: alertsOfQuix})

func healthyQuix() []string {
	return []string{
		`quix_environment_max_in_phase_seconds{` + job + `,instance="a",phase="InProgress"} 5x90`,
		`quix_environment_max_in_phase_seconds{` + job + `,instance="a",phase="Ready"} 7000x90`,
		`quix_environment_max_in_phase_seconds{` + job + `,instance="a",phase="Failed"} 0x90`,
		`quix_environment_max_in_phase_seconds{` + job + `,instance="a",phase="Deleting"} 20x90`,
		`quix_environment_unbound_total{` + job + `,instance="a"} 3x90`,
		`quix_environment_unbound_total{` + job + `,instance="b"} 0x90`,
	}
}

func alertsOfQuix() map[string]alertTest {
	environment := func(phase, values string) string {
		return `quix_environment_max_in_phase_seconds{` + job + `,instance="a",phase="` + phase + `"} ` + values
	}
	unbound := `quix_environment_unbound_total{` + job + `,instance="a"} `
	return map[string]alertTest{
		"QuixEnvironmentNotReady": {
			fires: [][]string{
				with(healthy(), environment("Failed", "0+60x90")),
				with(healthy(), environment("InProgress", "0+60x90")),
			},
			silent: [][]string{with(healthy(), environment("Failed", "0+60x14 0x75"), environment("InProgress", "0+60x14 0x75"))},
		},
		"QuixEnvironmentStuckDeleting": {
			fires:  [][]string{with(healthy(), environment("Deleting", "0+60x90"))},
			silent: [][]string{with(healthy(), environment("Deleting", "0+60x9 0+60x9 0x70"))},
		},
		"QuixPlatformUnbound": {
			fires: [][]string{with(healthy(), unbound+"0x80 1x9")},
			// A fail-over: the counter of the one ends, that of the other begins.
			silent: [][]string{with(healthy(), unbound+"3x80 stale"), with(healthy(), unbound+"3x80 0x9")},
		},
	}
}
