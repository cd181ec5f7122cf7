package main

func quix() board {
	return board{
		folder: "quix", uid: "quix-environments", title: "Environments", text: "Environments of quix.io and the work on them.",
		rows: []row{
			{"Environments", append(
				byPhase("quix_environment", "Environments", "InProgress|Deleting|Failed", "Ten minutes of InProgress or Deleting indicate a problem."),
				panel{title: "Time to Ready", text: "Of Environments that were ready at the first attempt.", unit: "s", queries: quantiles("quix_environment_time_to_ready_seconds")},
				panel{title: "New Environments", text: "Environments whose creation began, each minute.", unit: "short", queries: []query{
					{perMinute("quix_environment_total"), "created"},
				}},
				panel{title: "Bindings taken away", text: "RoleBindings that were deleted because of their ClusterRole, since the replicas started.", unit: "short", queries: []query{
					{sum(of("quix_environment_unbound_total")), "deleted"},
				}},
			)},
			reconciliations(kind{"quix_environment", "Environments"}),
		},
	}
}

func hexactf() board {
	return board{
		folder: "hexactf", uid: "hexactf-challenges", title: "HexaCTF challenges", text: "Challenges of HexaCTF and the messages about them.",
		rows: []row{
			{"Challenges", append(
				byPhase("hexactf_challenge", "Challenges", "None|Creating|Terminating|Error", "Ten minutes of Creating or Terminating indicate a problem."),
				panel{title: "Time to Running", text: "From the creation of a Challenge.", unit: "s", queries: quantiles("hexactf_challenge_time_to_running_seconds")},
				panel{title: "Starts and ends", text: "Each minute.", unit: "short", queries: []query{
					{perMinute("hexactf_challenge_total"), "started"},
					{perMinute("hexactf_challenge_expired_total"), "expired"},
				}},
				panel{title: "Delay of an end", text: "Time from the expiry of a Challenge until its deletion, and how overdue the worst live one is.", unit: "s", queries: append(
					quantiles("hexactf_challenge_expiry_delay_seconds"),
					query{highest(of("hexactf_challenge_longest_overdue_seconds")), "overdue now"})},
				panel{title: "Lifetime", text: "Of Challenges that have ended.", unit: "s", queries: quantiles("hexactf_challenge_duration_seconds")},
			)},
			{"Messages", []panel{
				{title: "Messages", text: "Each minute: acknowledged by the broker, and failed attempts.", unit: "short", queries: []query{
					{perMinute("hexactf_messages_sent_total"), "sent"},
					{perMinute("hexactf_message_failures_total"), "failed attempts"},
				}},
				{title: "Delay of a message", text: "From the change until the acknowledgement, and the age of the oldest that is not acknowledged.", unit: "s", queries: append(
					quantiles("hexactf_message_delay_seconds"),
					query{highest(of("hexactf_messages_oldest_unsent_seconds")), "oldest unsent"})},
				{title: "Unsent and lost", text: "Messages that are not acknowledged, and those that were given up since the replicas started.", unit: "short", queries: []query{
					{sum(of("hexactf_messages_unsent")), "unsent"},
					{sum(of("hexactf_messages_lost_total")), "lost"},
				}},
			}},
			reconciliations(kind{"hexactf_challenge", "Challenges"}),
		},
	}
}

func tunnel() board {
	return board{
		folder: "tunnel", uid: "tunnels", title: "Container networks and tunnels", text: "Container networks, their pairs of proxies, and what the tunnels carry.",
		rows: []row{
			{"Networks and proxies", append(append(
				byPhase("tunnel_network", "Networks", "Pending|FailedToStart|NotFound", "A minute of Pending indicates a problem."),
				byPhase("tunnel_proxy", "Pairs of proxies", "Pending|BuildingImage|Starting|Failed", "Failed is final.")...),
				panel{title: "Time to Running", text: "Nine of ten took at most this time.", unit: "s", queries: []query{
					{quantile(0.9, "tunnel_network_time_to_running_seconds"), "networks"},
					{quantile(0.9, "tunnel_proxy_time_to_running_seconds"), "pairs"},
				}},
				panel{title: "Pairs that were started", text: "Each minute, and those that failed.", unit: "short", queries: []query{
					{perMinute("tunnel_proxy_total"), "started"},
					{perMinute("tunnel_proxy_failed_total"), "failed"},
				}},
			)},
			{"Tunnels", []panel{
				{title: "Tunnels", text: "Of running pairs.", unit: "short", stacked: true, queries: []query{{sum(of("tunnel_tunnels"), "state"), "{{state}}"}}},
				{title: "Preparations", text: "Each minute: tunnels that became Ready, and failures.", unit: "short", queries: []query{
					{perMinute("tunnel_prepared_total"), "prepared"},
					{perMinute("tunnel_prepare_failures_total"), "failed"},
				}},
				{title: "Open streams", text: "Over all pairs.", unit: "short", queries: []query{{sum(of("tunnel_streams_active")), "streams"}}},
				{title: "New streams", text: "Connections of clients each second, and those that failed by their reason.", unit: "cps", queries: []query{
					{sum(rate("tunnel_streams_total")), "connected"},
					{sum(rate("tunnel_stream_failures_total"), "reason"), "{{reason}}"},
				}},
				{title: "Traffic", text: "Payload by direction.", unit: "Bps", queries: []query{{sum(rate("tunnel_bytes_total"), "direction"), "{{direction}}"}}},
				{title: "Certificates", text: "Time until the first certificate of a running proxy expires. They are renewed when a third of their lifetime is left.", unit: "s", queries: []query{
					{"min(" + of("tunnel_certificate_expiry_timestamp_seconds") + " > 0) - time()", "first to expire"},
					{highest(of("tunnel_certificate_lifetime_seconds")) + " / 3", "renewed at"},
				}},
			}},
			reconciliations(kind{"tunnel_network", "networks"}, kind{"tunnel_proxy", "pairs"}),
		},
	}
}

func kibaship() board {
	const hint = "Ten minutes of Pending indicate a problem."
	return board{
		folder: "kibaship", uid: "kibaship-projects", title: "KibaShip projects", text: "Projects, Applications and Deployments of KibaShip, and their builds.",
		rows: []row{
			{"Projects and Applications", append(append(
				byPhase("kibaship_project", "Projects", "Pending|Failed", hint),
				panel{title: "Time to Ready", text: "Of Projects that were ready at the first attempt.", unit: "s", queries: quantiles("kibaship_project_time_to_ready_seconds")}),
				byPhase("kibaship_application", "Applications", "Pending|Failed|Deleting", hint)...)},
			{"Builds", append(
				byPhase("kibaship_deployment", "Deployments", "Initializing|Running", "Running: a build that lasts so long."),
				panel{title: "Builds that ended", text: "PipelineRuns each minute, by the reason of their condition Succeeded.", unit: "short", stacked: true, queries: []query{
					{perMinute("kibaship_deployment_runs_ended_total", "reason"), "{{reason}}"},
				}},
				panel{title: "Builds that began", text: "PipelineRuns each minute.", unit: "short", queries: []query{
					{perMinute("kibaship_deployment_runs_started_total"), "started"},
				}},
				panel{title: "Duration of a build", text: "Of those that succeeded.", unit: "s", queries: quantiles("kibaship_deployment_run_duration_seconds")},
			)},
			reconciliations(kind{"kibaship_project", "Projects"}, kind{"kibaship_application", "Applications"}, kind{"kibaship_deployment", "Deployments"}),
		},
	}
}
