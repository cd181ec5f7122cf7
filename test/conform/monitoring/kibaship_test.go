package monitoring

var _ = add(part{healthy: healthyKibaship, alerts: alertsOfKibaship})

func healthyKibaship() []string {
	return []string{
		`kibaship_project_max_in_phase_seconds{` + job + `,instance="a",phase="Pending"} 5x90`,
		`kibaship_project_max_in_phase_seconds{` + job + `,instance="a",phase="Ready"} 7000x90`,
		`kibaship_project_max_in_phase_seconds{` + job + `,instance="a",phase="Failed"} 0x90`,
		`kibaship_deployment_max_in_phase_seconds{` + job + `,instance="a",phase="Running"} 300x90`,
		`kibaship_deployment_max_in_phase_seconds{` + job + `,instance="a",phase="Waiting"} 90000x90`,
		// Authors whose builds fail, cancel theirs, or wait too long now and then.
		`kibaship_deployment_runs_ended_total{` + job + `,instance="a",reason="Succeeded"} 0+2x90`,
		`kibaship_deployment_runs_ended_total{` + job + `,instance="a",reason="RunFailed"} 0+1x90`,
		`kibaship_deployment_runs_ended_total{` + job + `,instance="a",reason="RunCancelled"} 0+1x90`,
		`kibaship_deployment_runs_ended_total{` + job + `,instance="a",reason="RunTimedOut"} 0+0.1x90`,
		`kibaship_deployment_runs_ended_total{` + job + `,instance="a",reason="ImagePullFailed"} 0x90`,
		`kibaship_deployment_runs_ended_total{` + job + `,instance="a",reason="PodRefused"} 0x90`,
		`kibaship_project_reconcile_errors_total{` + job + `,instance="a"} 0+0.1x90`,
		`kibaship_project_reconcile_duration_seconds_count{` + job + `,instance="a"} 0+20x90`,
		`kibaship_application_reconcile_errors_total{` + job + `,instance="a"} 0+0.1x90`,
		`kibaship_application_reconcile_duration_seconds_count{` + job + `,instance="a"} 0+20x90`,
		// Two Deployments whose Secrets are missing are reconciled once a minute.
		`kibaship_deployment_reconcile_errors_total{` + job + `,instance="a"} 0+2x90`,
		`kibaship_deployment_reconcile_duration_seconds_count{` + job + `,instance="a"} 0+10x90`,
	}
}

func alertsOfKibaship() map[string]alertTest {
	project := func(phase, values string) string {
		return `kibaship_project_max_in_phase_seconds{` + job + `,instance="a",phase="` + phase + `"} ` + values
	}
	building := func(values string) string {
		return `kibaship_deployment_max_in_phase_seconds{` + job + `,instance="a",phase="Running"} ` + values
	}
	ended := func(reason, values string) string {
		return `kibaship_deployment_runs_ended_total{` + job + `,instance="a",reason="` + reason + `"} ` + values
	}
	errors := func(kind, values string) string {
		return `kibaship_` + kind + `_reconcile_errors_total{` + job + `,instance="a"} ` + values
	}
	return map[string]alertTest{
		"KibashipBuildsFail": {
			fires: [][]string{
				with(healthy(), ended("ImagePullFailed", "0+1x90")),
				with(healthy(), ended("PodRefused", "0+0.5x90")),
				with(healthy(), ended("RunTimedOut", "0+0.5x90")),
			},
			silent: [][]string{
				// A few together, of a user who tries; and authors whose builds fail.
				with(healthy(), ended("PodRefused", "0x20 1 2 3x67"), ended("ImagePullFailed", "0x20 1 2 3x67")),
				with(healthy(), ended("RunFailed", "0+9x90"), ended("RunCancelled", "0+9x90")),
			},
		},
		"KibashipErrors": {
			fires: [][]string{
				with(healthy(), errors("project", "0+5x90")),
				with(healthy(), errors("application", "0+5x90")),
				with(healthy(), errors("deployment", "0+20x90"), `kibaship_deployment_reconcile_duration_seconds_count{`+job+`,instance="a"} 0+30x90`),
			},
			silent: [][]string{
				with(healthy(), errors("project", "0x20 0+20x3 60x66"), errors("application", "0x20 0+20x3 60x66")),
				// Half of all passes, in a quiet cluster.
				with(healthy(), errors("project", "0+0.25x90"), `kibaship_project_reconcile_duration_seconds_count{`+job+`,instance="a"} 0+0.5x90`),
				// Some Deployments whose Secrets are not there.
				with(healthy(), errors("deployment", "0+8x90")),
			},
		},
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
