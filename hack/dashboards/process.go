package main

// process is about the program, with any families.
func process() board {
	return board{
		uid: "berg-operator", title: "berg-operator", text: "The operator itself: replicas, work queues, requests to the API server, memory.",
		rows: []row{
			{"At a glance", []panel{
				{
					title: "Ready replicas", text: "Replicas of the operator that answer.", unit: "short", number: true,
					colors: []color{{"red", 0}, {"green", 1}}, queries: []query{{sum(of("up")), "replicas"}},
				},
				{
					title: "Leaders", text: "Exactly one replica must lead. No data means that leader election is turned off.", unit: "short", number: true,
					colors: []color{{"red", 0}, {"green", 1}, {"red", 2}}, queries: []query{{sum(of("leader_election_master_status")), "leaders"}},
				},
				{
					title: "Panics", text: "Bugs in the operator since its replicas started: please report them.", unit: "short", number: true,
					colors: []color{{"green", 0}, {"red", 1}}, queries: []query{{sum(of("controller_runtime_reconcile_panics_total")), "panics"}},
				},
				{
					title: "Youngest replica", text: "Time since a replica has started.", unit: "s", number: true,
					queries: []query{{"time() - " + highest(of("process_start_time_seconds")), "age"}},
				},
				{
					title: "Refused requests", text: "Requests that the API server throttled, per second.", unit: "reqps", number: true,
					colors: []color{{"green", 0}, {"orange", 1}}, queries: []query{{sum(rate("rest_client_requests_total", `code="429"`)) + " or 0 * " + sum(rate("rest_client_requests_total")), "throttled"}},
				},
				{
					title: "Versions", text: "More than one: an upgrade is under way.", unit: "short", number: true,
					colors: []color{{"green", 0}, {"orange", 2}}, queries: []query{{"count(count by (version) (" + of("berg_operator_build_info") + "))", "versions"}},
				},
			}},
			{"Work", []panel{
				{title: "Work queues of the leader", text: "Objects that wait to be reconciled. A queue that stays long means that the operator or the API server is too slow.", unit: "short", queries: []query{
					{"sum by (name) (" + of("workqueue_depth") + " * on (job, instance) group_left () (" + of("leader_election_master_status") + " == 1))", "{{name}}"},
				}},
				{title: "Busy workers", text: "Objects that are being reconciled.", unit: "short", queries: []query{
					{sum(of("controller_runtime_active_workers"), "controller"), "{{controller}}"},
				}},
				{title: "Workers of a controller", text: "Above this number objects wait.", unit: "short", queries: []query{
					{highest(of("controller_runtime_max_concurrent_reconciles"), "controller"), "{{controller}}"},
				}},
			}},
			{"Process", []panel{
				{title: "Requests to the API server", text: "By status. 429: the API server throttles the operator. <error>: no answer.", unit: "reqps", stacked: true, queries: []query{
					{sum(rate("rest_client_requests_total"), "code"), "{{code}}"},
				}},
				{title: "Memory", text: "Of each replica.", unit: "bytes", queries: []query{{of("process_resident_memory_bytes"), "{{pod}}"}}},
				{title: "CPU", text: "How many CPUs each replica uses.", unit: "short", queries: []query{{rate("process_cpu_seconds_total"), "{{pod}}"}}},
			}},
		},
	}
}
