package monitoring

var _ = add(part{healthy: healthyKibaship, alerts: alertsOfKibaship})

func healthyKibaship() []string {
	return []string{
		`kibaship_project_longest_in_phase_seconds{` + job + `,instance="a",phase="Pending"} 5x90`,
		`kibaship_project_longest_in_phase_seconds{` + job + `,instance="a",phase="Ready"} 7000x90`,
		`kibaship_project_longest_in_phase_seconds{` + job + `,instance="a",phase="Failed"} 0x90`,
		`kibaship_deployment_longest_in_phase_seconds{` + job + `,instance="a",phase="Running"} 300x90`,
		`kibaship_deployment_longest_in_phase_seconds{` + job + `,instance="a",phase="Waiting"} 90000x90`,
	}
}

func alertsOfKibaship() map[string]alertTest {
	project := func(phase, values string) string {
		return `kibaship_project_longest_in_phase_seconds{` + job + `,instance="a",phase="` + phase + `"} ` + values
	}
	building := func(values string) string {
		return `kibaship_deployment_longest_in_phase_seconds{` + job + `,instance="a",phase="Running"} ` + values
	}
	return map[string]alertTest{
		"KibashipBuildStuck": {
			fires: [][]string{with(healthy(), building("7000+60x90"))},
			// One that takes as long as it may, and the next one.
			silent: [][]string{with(healthy(), building("1800+60x80 0x9"))},
		},
		"KibashipProjectNotReady": {
			fires: [][]string{
				with(healthy(), project("Failed", "0+60x90")),
				with(healthy(), project("Pending", "0+60x90")),
			},
			silent: [][]string{with(healthy(), project("Failed", "0+60x14 0x75"), project("Pending", "0+60x14 0x75"))},
		},
	}
}
