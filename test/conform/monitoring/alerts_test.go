package monitoring

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

const job = `job="berg-operator-controller-manager-metrics"`

// healthy is a cluster on a busy day: two replicas, a hundred instances, a few
// starts and ends each minute, now and then an error. One value a minute, for an
// hour and a half; "0+3x90" rises by three each minute.
func healthy() []string {
	return append(
		[]string{
			`up{` + job + `,instance="a",pod="a"} 1x90`,
			`up{` + job + `,instance="b",pod="b"} 1x90`,
			`process_start_time_seconds{` + job + `,instance="a",pod="a"} 1000x90`,
			`process_start_time_seconds{` + job + `,instance="b",pod="b"} 1000x90`,
			`leader_election_master_status{` + job + `,instance="a",name="berg-operator.berg.norelect.ch"} 1x90`,
			`leader_election_master_status{` + job + `,instance="b",name="berg-operator.berg.norelect.ch"} 0x90`,
			`berg_challengeinstance_active{` + job + `,instance="a",phase="Starting"} 2x90`,
			`berg_challengeinstance_longest_overdue_seconds{` + job + `,instance="a"} 0.3x90`,
			`berg_challengeinstance_active{` + job + `,instance="a",phase="Running"} 100x90`,
			`berg_challengeinstance_active{` + job + `,instance="a",phase="Failed"} 0x90`,
			`berg_challengeinstance_orphaned_namespaces{` + job + `,instance="a"} 0x90`,
			`berg_challengeinstance_longest_in_phase_seconds{` + job + `,instance="a",phase="Creating"} 0x90`,
			`berg_challengeinstance_longest_in_phase_seconds{` + job + `,instance="a",phase="Starting"} 30x90`,
			`berg_challengeinstance_longest_in_phase_seconds{` + job + `,instance="a",phase="Running"} 7000x90`,
			`berg_challengeinstance_longest_in_phase_seconds{` + job + `,instance="a",phase="Terminating"} 20x90`,
			`berg_challengeinstance_longest_in_phase_seconds{` + job + `,instance="a",phase="Failed"} 0x90`,
			`quix_environment_longest_in_phase_seconds{` + job + `,instance="a",phase="InProgress"} 5x90`,
			`quix_environment_longest_in_phase_seconds{` + job + `,instance="a",phase="Ready"} 7000x90`,
			`quix_environment_longest_in_phase_seconds{` + job + `,instance="a",phase="Failed"} 0x90`,
			`quix_environment_longest_in_phase_seconds{` + job + `,instance="a",phase="Deleting"} 20x90`,
			`quix_environment_unbound_total{` + job + `,instance="a"} 3x90`,
			`quix_environment_unbound_total{` + job + `,instance="b"} 0x90`,
			`hexactf_messages_oldest_unsent_seconds{` + job + `,instance="a"} 0.1x90`,
			`hexactf_messages_lost_total{` + job + `,instance="a"} 2x90`,
			`hexactf_messages_lost_total{` + job + `,instance="b"} 0x90`,
			`hexactf_challenge_longest_overdue_seconds{` + job + `,instance="a"} 0.3x90`,
			`hexactf_challenge_longest_in_phase_seconds{` + job + `,instance="a",phase="Running"} 1700x90`,
			`hexactf_challenge_longest_in_phase_seconds{` + job + `,instance="a",phase="Terminating"} 20x90`,
			`hexactf_challenge_longest_in_phase_seconds{` + job + `,instance="a",phase="Error"} 0x90`,
			`berg_isolation_verified{` + job + `,instance="a"} 1x90`,
			`berg_challengeinstance_reconcile_errors_total{` + job + `,instance="a"} 0+1x90`,
			`berg_challengeinstance_reconcile_duration_seconds_count{` + job + `,instance="a"} 0+100x90`,
			`workqueue_depth{` + job + `,instance="a",name="challengeinstance",priority="0"} 3x90`,
			// A standby fills its queue and does not drain it.
			`workqueue_depth{` + job + `,instance="b",name="challengeinstance",priority="0"} 5000x90`,
			`rest_client_requests_total{` + job + `,instance="a",code="200"} 0+500x90`,
			`rest_client_requests_total{` + job + `,instance="a",code="429"} 0+1x90`,
			// Other programs of the cluster have series of the same names.
			`rest_client_requests_total{job="other",instance="x",code="429"} 0+5000x90`,
			`workqueue_depth{job="other",instance="x",name="challengeinstance"} 9000x90`,
		},
		append(
			histogram("berg_challengeinstance_time_to_running_seconds", `challenge="web"`, "5", 3),
			histogram("berg_challengeinstance_expiry_delay_seconds", "", "0.5", 3)...,
		)...,
	)
}

// histogram are the series of a histogram that gets a number of observations
// each minute, all just below a bound.
func histogram(name, labels, bound string, perMinute float64) []string {
	if labels != "" {
		labels = "," + labels
	}
	series := []string{fmt.Sprintf(`%s_count{%s,instance="a"%s} 0+%gx90`, name, job, labels, perMinute)}
	reached := false
	for _, le := range []string{"0.1", "0.5", "1", "5", "10", "30", "60", "120", "300", "600", "+Inf"} {
		reached = reached || le == bound
		step := 0.0
		if reached {
			step = perMinute
		}
		series = append(series, fmt.Sprintf(`%s_bucket{%s,instance="a"%s,le="%s"} 0+%gx90`, name, job, labels, le, step))
	}
	return series
}

// with returns series in which those of some names are replaced.
func with(series []string, replacements ...string) []string {
	replaced := map[string]bool{}
	for _, r := range replacements {
		replaced[identity(r)] = true
	}
	out := replacements
	for _, s := range series {
		if !replaced[identity(s)] {
			out = append(out, s)
		}
	}
	return out
}

func without(series []string, names ...string) []string {
	var out []string
	for _, s := range series {
		gone := false
		for _, n := range names {
			gone = gone || strings.HasPrefix(s, n)
		}
		if !gone {
			out = append(out, s)
		}
	}
	return out
}

// identity is the name and the labels of a series.
func identity(s string) string { return s[:strings.Index(s, "}")+1] }

func TestNoAlertOnAHealthyDay(t *testing.T) {
	if got := firing(t, healthy(), 90*time.Minute); len(got) > 0 {
		t.Errorf("alerts fire: %v", got)
	}
}

func TestAlerts(t *testing.T) {
	const leader = `{` + job + `,instance="a",name="berg-operator.berg.norelect.ch"}`
	longest := func(phase, values string) string {
		return `berg_challengeinstance_longest_in_phase_seconds{` + job + `,instance="a",phase="` + phase + `"} ` + values
	}
	environment := func(phase, values string) string {
		return `quix_environment_longest_in_phase_seconds{` + job + `,instance="a",phase="` + phase + `"} ` + values
	}
	hexactf := func(metric, labels, values string) string {
		return `hexactf_` + metric + `{` + job + `,instance="a"` + labels + `} ` + values
	}
	unbound := `quix_environment_unbound_total{` + job + `,instance="a"} `
	errors := func(values string) string {
		return `berg_challengeinstance_reconcile_errors_total{` + job + `,instance="a"} ` + values
	}
	orphans := `berg_challengeinstance_orphaned_namespaces{` + job + `,instance="a"} `
	verified := `berg_isolation_verified{` + job + `,instance="a"} `
	overdue := `berg_challengeinstance_longest_overdue_seconds{` + job + `,instance="a"} `
	starts := `process_start_time_seconds{` + job + `,instance="b",pod="b"} `
	depth := `workqueue_depth{` + job + `,instance="a",name="challengeinstance",priority="0"} `
	throttled := `rest_client_requests_total{` + job + `,instance="a",code="429"} `

	tests := map[string]struct {
		fires  [][]string // each must raise the alert
		silent [][]string // none may raise any alert
		others []string   // alerts that rightly come along
	}{
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
				// A fail-over: for one minute nobody leads.
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
		"BergAPIServerThrottling": {
			fires:  [][]string{with(healthy(), throttled+"0+100x90")},
			silent: [][]string{with(healthy(), throttled+"0x20 300x70")},
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
				with(healthy(), longest("Starting", "0+60x90")),
				with(healthy(), longest("Creating", "0+60x90")),
			},
			silent: [][]string{with(healthy(), longest("Starting", "0+60x9 0+60x9 0+60x9 0x60"))},
		},
		"BergInstanceFailed": {
			fires:  [][]string{with(healthy(), longest("Failed", "0+60x90"))},
			silent: [][]string{with(healthy(), longest("Failed", "0+60x14 0x75"))},
		},
		"BergInstanceStuckTerminating": {
			fires:  [][]string{with(healthy(), longest("Terminating", "0+60x90"))},
			silent: [][]string{with(healthy(), longest("Terminating", "0+60x9 0+60x9 0x70"))},
		},
		"BergNamespaceOrphaned": {
			fires: [][]string{with(healthy(), orphans+"0x30 2x60")},
			silent: [][]string{
				// The operator deletes them.
				with(healthy(), orphans+"0x30 1x11 0x50"),
			},
		},
		"BergSlowStarts": {
			fires: [][]string{with(healthy(), histogram("berg_challengeinstance_time_to_running_seconds", `challenge="web"`, "120", 3)...)},
			silent: [][]string{
				// Few starts: one slow image says nothing about all players.
				with(healthy(), histogram("berg_challengeinstance_time_to_running_seconds", `challenge="web"`, "120", 0.2)...),
			},
		},
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
		"HexactfMessagesLost": {
			fires: [][]string{with(healthy(), hexactf("messages_lost_total", "", "2x80 5x9"))},
			// A fail-over, as above.
			silent: [][]string{with(healthy(), hexactf("messages_lost_total", "", "2x80 stale")), with(healthy(), hexactf("messages_lost_total", "", "2x80 0x9"))},
		},
		"HexactfMessagesUnsent": {
			fires: [][]string{with(healthy(), hexactf("messages_oldest_unsent_seconds", "", "0x80 0+60x9"))},
			// A broker that is started anew.
			silent: [][]string{with(healthy(), hexactf("messages_oldest_unsent_seconds", "", "0x80 60x1 110x1 0x9"))},
		},
		"HexactfExpiryLate": {
			fires: [][]string{
				with(healthy(), hexactf("challenge_longest_overdue_seconds", "", "0+60x90")),
				with(healthy(), histogram("hexactf_challenge_expiry_delay_seconds", "", "30", 3)...),
			},
			silent: [][]string{with(healthy(), hexactf("challenge_longest_overdue_seconds", "", "0x30 90x3 0x57"))},
		},
		"HexactfChallengeStuckTerminating": {
			fires:  [][]string{with(healthy(), hexactf("challenge_longest_in_phase_seconds", `,phase="Terminating"`, "0+60x90"))},
			silent: [][]string{with(healthy(), hexactf("challenge_longest_in_phase_seconds", `,phase="Terminating"`, "0+60x8 0x82"))},
		},
		"HexactfChallengeError": {
			fires:  [][]string{with(healthy(), hexactf("challenge_longest_in_phase_seconds", `,phase="Error"`, "0+60x90"))},
			silent: [][]string{with(healthy(), hexactf("challenge_longest_in_phase_seconds", `,phase="Error"`, "0+60x14 0x75"))},
		},
	}
	for _, r := range rules(t) {
		if _, tested := tests[r.Alert]; !tested {
			t.Errorf("alert %s has no test", r.Alert)
		}
	}
	for alert, test := range tests {
		t.Run(alert, func(t *testing.T) {
			if len(test.fires) == 0 || len(test.silent) == 0 {
				t.Fatal("needs series that fire and series that do not")
			}
			for i, series := range test.fires {
				got := firing(t, series, 90*time.Minute)
				if !got[alert] {
					t.Errorf("case %d: does not fire; these do: %v", i, got)
				}
				delete(got, alert)
				for _, o := range test.others {
					delete(got, o)
				}
				if len(got) > 0 {
					t.Errorf("case %d: these fire too: %v", i, got)
				}
			}
			for i, series := range test.silent {
				if got := firing(t, series, 90*time.Minute); len(got) > 0 {
					t.Errorf("silent case %d: these fire: %v", i, got)
				}
			}
		})
	}
}
