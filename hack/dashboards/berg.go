package main

func berg() board {
	return board{
		folder: "berg", uid: "berg-instances", title: "Challenge instances", text: "CTF challenge instances: what runs, what waits and what fails.",
		rows: []row{
			{"At a glance", []panel{
				{
					title: "Running", text: "Instances that players use now.", unit: "short", number: true,
					queries: []query{{sum(of("berg_challengeinstance_active", `phase="Running"`)), "Running"}},
				},
				{
					title: "Starting", text: "Instances that are being created or started.", unit: "short", number: true,
					queries: []query{{sum(of("berg_challengeinstance_active", `phase=~"Creating|Starting"`)), "Starting"}},
				},
				{
					title: "Failed", text: "Instances that need a fix by a person. Run kubectl get ci -A, and read the conditions.", unit: "short", number: true,
					colors: []color{{"green", 0}, {"orange", 1}}, queries: []query{{sum(of("berg_challengeinstance_active", `phase="Failed"`)), "Failed"}},
				},
				{
					title: "Time to Running (p95)", text: "Time from the creation of an instance until all its pods were ready, over 15 minutes.", unit: "s", number: true,
					colors: []color{{"green", 0}, {"orange", 30}, {"red", 60}}, queries: []query{{quantile(0.95, "berg_challengeinstance_time_to_running_seconds"), "p95"}},
				},
				{
					title: "Isolation", text: "1: the last test found network policies enforced. 0: they are ignored, and players reach each other.", unit: "short", number: true,
					colors: []color{{"red", 0}, {"green", 1}}, queries: []query{{"min(" + of("berg_isolation_verified") + ")", "enforced"}},
				},
				{
					title: "Left behind", text: "Namespaces whose instance is gone.", unit: "short", number: true,
					colors: []color{{"green", 0}, {"orange", 1}}, queries: []query{{sum(of("berg_challengeinstance_orphaned_namespaces")), "namespaces"}},
				},
			}},
			{"Instances", append(
				byPhase("berg_challengeinstance", "Instances", "Creating|Starting|Terminating|Failed", "Ten minutes of Starting or Terminating indicate a problem."),
				panel{title: "Starts by Challenge", text: "Instances started each minute, for the ten Challenges with the most starts.", unit: "short", queries: []query{
					{"topk(10, " + sum(rate("berg_challengeinstance_total"), "challenge") + ") * 60", "{{challenge}}"},
				}},
				panel{title: "Time to Running by Challenge", text: "Nine of ten instances were ready within this time. The ten slowest Challenges.", unit: "s", queries: []query{
					{"topk(10, " + quantile(0.9, "berg_challengeinstance_time_to_running_seconds", "challenge") + ")", "{{challenge}}"},
				}},
				panel{title: "Stages of a start", text: "How long each stage took on average. image: the pull; schedule: no node had room.", unit: "s", stacked: true, queries: []query{
					{sum(rate("berg_challengeinstance_start_stage_seconds_sum"), "stage") + " / " + sum(rate("berg_challengeinstance_start_stage_seconds_count"), "stage") + " > 0", "{{stage}}"},
				}},
				panel{title: "Ends", text: "Instances that ended because their time was over, each minute.", unit: "short", queries: []query{
					{perMinute("berg_challengeinstance_timeouts_total"), "expired"},
				}},
				panel{title: "Delay of an end", text: "Time from the expiry of an instance until its deletion, and how overdue the worst live one is.", unit: "s", queries: append(
					quantiles("berg_challengeinstance_expiry_delay_seconds"),
					query{highest(of("berg_challengeinstance_longest_overdue_seconds")), "overdue now"})},
				panel{title: "Lifetime", text: "Median of the instances that have ended.", unit: "s", queries: []query{
					{quantile(0.5, "berg_challengeinstance_duration_seconds"), "median"},
				}},
				panel{title: "Network policies", text: "Kinds of policy that isolate instances.", unit: "short", queries: []query{
					{highest(of("berg_challengeinstance_network_policy"), "kind"), "{{kind}}"},
				}},
			)},
			{"Queue and room", []panel{
				{title: "Waiting by Challenge", text: "Instances that wait because a limit is reached.", unit: "short", stacked: true, queries: []query{
					{"topk(10, " + sum(of("berg_challengeinstance_queue_length"), "challenge") + ")", "{{challenge}}"},
				}},
				{title: "Longest wait", text: "Age of the oldest instance that waits.", unit: "s", queries: []query{
					{highest(of("berg_challengeinstance_queue_head_seconds")), "oldest"},
				}},
				{title: "Room up to the limit", text: "Instances that may start before CHALLENGE_MAX_INSTANCES is reached. No data: there is no limit.", unit: "short", queries: []query{
					{sum(of("berg_challengeinstance_room")), "instances"},
				}},
				{title: "Node ports in use", text: "Of all instances. All Services of the cluster share 2,768, unless --service-node-port-range of the API server says otherwise.", unit: "short", queries: []query{
					{sum(of("berg_challengeinstance_node_ports")), "node ports"},
				}},
				{title: "Room for pods on nodes", text: "Pods that the ready nodes may still run, and by their CPU and memory. From kube-state-metrics; no data without it.", unit: "percentunit", queries: []query{
					{`1 - sum(kube_pod_info{node!=""}) / sum(kube_node_status_allocatable{resource="pods"})`, "pods"},
					{`1 - sum(kube_pod_container_resource_requests{resource="cpu",node!=""}) / sum(kube_node_status_allocatable{resource="cpu"})`, "cpu"},
					{`1 - sum(kube_pod_container_resource_requests{resource="memory",node!=""}) / sum(kube_node_status_allocatable{resource="memory"})`, "memory"},
				}},
			}},
			{"Checks", []panel{
				{title: "Challenges that cannot be solved", text: "Their last check failed. The ChallengeCheck says why.", unit: "short", queries: []query{
					{"min by (challenge) (" + of("berg_challengecheck_solvable") + ") == bool 0", "{{challenge}}"},
				}},
				{title: "Results of checks", text: "Checks that have ended, each minute.", unit: "short", stacked: true, queries: []query{
					{perMinute("berg_challengecheck_results_total", "result"), "{{result}}"},
				}},
				{title: "Duration of checks", text: "Median of the start of the instance and of its solver.", unit: "s", queries: []query{
					{quantile(0.5, "berg_challengecheck_duration_seconds", "stage"), "{{stage}}"},
				}},
				{title: "Most overdue check", text: "How long the check that is most overdue has been due.", unit: "s", queries: []query{
					{highest(of("berg_challengecheck_longest_overdue_seconds")), "overdue"},
				}},
			}},
			{"Images that are pulled ahead", []panel{
				{title: "Pulls", text: "Pulls that have ended, each minute.", unit: "short", stacked: true, queries: []query{
					{perMinute("berg_image_prepull_pulls_total", "result"), "{{result}}"},
				}},
				{title: "Missing images", text: "Images that are missing on nodes because their last pull failed, once for each node and Challenge.", unit: "short", queries: []query{
					{sum(of("berg_image_prepull_failing")), "missing"},
				}},
			}},
			{"Records", []panel{
				{title: "Records", text: "Records that there are.", unit: "short", queries: []query{{sum(of("berg_challengeinstancerecord_stored")), "records"}}},
				{title: "Size of all records", text: "What they took when they were written.", unit: "bytes", queries: []query{{sum(of("berg_challengeinstancerecord_stored_bytes")), "bytes"}}},
				{title: "Written and deleted", text: "Records each minute.", unit: "short", queries: []query{
					{perMinute("berg_challengeinstancerecord_written_total"), "written"},
					{perMinute("berg_challengeinstancerecord_swept_total"), "deleted"},
				}},
				{title: "Refused", text: "Records that could not be written, each minute, by the API server's reason.", unit: "short", stacked: true, queries: []query{
					{perMinute("berg_challengeinstancerecord_refused_total", "reason"), "{{reason}}"},
				}},
				{title: "Incomplete", text: "Each minute: instances that were not looked at because too many ended at the same time, and logs that could not be read in time.", unit: "short", queries: []query{
					{perMinute("berg_challengeinstancerecord_crowded_total"), "not looked at"},
					{perMinute("berg_challengeinstancerecord_logs_missing_total"), "logs missing"},
				}},
				{title: "Time until it was looked at", text: "How long the namespace of an instance that ended waited.", unit: "s", queries: quantiles("berg_challengeinstancerecord_capture_seconds")},
			}},
			{"Platform API", []panel{
				{title: "Requests of platforms", text: "By door and status.", unit: "reqps", stacked: true, queries: []query{
					{"sum by (door, code) (rate(berg_api_requests_total[5m]))", "{{door}} {{code}}"},
				}},
				{title: "Duration of answers (p95)", text: "By door and call.", unit: "s", queries: []query{
					{"histogram_quantile(0.95, sum by (door, call, le) (rate(berg_api_request_duration_seconds_bucket[5m])))", "{{door}} {{call}}"},
				}},
				{title: "Tokens", text: "Tokens that are valid. Each replica has the same ones.", unit: "short", queries: []query{{"max(berg_api_tokens)", "tokens"}}},
			}},
			reconciliations(kind{"berg_challengeinstance", "instances"}, kind{"berg_challenge", "Challenges"}, kind{"berg_challengecheck", "checks"},
				kind{"berg_image_prepull", "images"}, kind{"berg_challengeinstancerecord", "records"}),
		},
	}
}
