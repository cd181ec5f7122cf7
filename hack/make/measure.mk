##@ Measurements and chaos

# ARGS go to the program, for example ARGS='--scenarios burst-100 --rounds 1'.
.PHONY: load
load: build ## Compare the operator with a bare client: everything takes more than an hour, ARGS='--scenarios burst-100' minutes.
	hack/with-cluster --profile simulated --name $(TEST_CLUSTER)-load --audit -- go run $(LOAD) $(ARGS)

.PHONY: load-platform
load-platform: build tunnel-proxy ## Compare starts through berg-api with direct ones, measure its reads and memory, and all ports with strangers: some ten minutes.
	$(GO_BUILD) -o $(BIN)/berg-api ./cmd/berg-api
	hack/with-cluster --profile simulated --name $(TEST_CLUSTER)-platform --audit -- go run ./test/measure/platform $(ARGS)

# Traefik as test/cluster builds it for profile network.
TRAEFIK ?= $(firstword $(wildcard $(HOME)/.cache/berg-operator/bin/traefik-*/traefik))
GATE_MEASURE = go run ./test/measure/gate --traefik '$(TRAEFIK)'

.PHONY: load-gate
load-gate: ## Compare berg-gate with Traefik and with clients that need neither: some twenty minutes.
	go run $(CLUSTER) build --profile network
	$(GO_BUILD) -o $(BIN)/berg-gate ./cmd/berg-gate
	hack/with-cluster --profile simulated --name $(TEST_CLUSTER)-gate -- $(MAKE) load-gate-run ARGS='$(ARGS)'

.PHONY: load-gate-run
load-gate-run:
	$(GATE_MEASURE) $(ARGS)

.PHONY: attack-gate
attack-gate: ## Attack berg-gate with confused hosts, half-open connections and floods, and compare what others wait: some ten minutes.
	$(GO_BUILD) -o $(BIN)/berg-gate ./cmd/berg-gate
	hack/with-cluster --profile simulated --name $(TEST_CLUSTER)-gate -- go run ./test/measure/gate --scenarios confusion,hostile --out $(DIST)/attack-gate --check $(ARGS)

# What an attacker reaches at programs that need no real pods. The suites print each row.
.PHONY: attack-programs
attack-programs: ## Attack the receiver of webhooks, the tokens of tunnels, and the gate with Gateways of tenants: some five minutes.
	$(GO_TEST) -count=1 -v -run '^(TestTokens|TestPeersWithoutCertificates|TestAHostileClientProxy.*)$$' ./internal/tunnel/proxy
	hack/with-cluster --profile simulated --name $(TEST_CLUSTER)-programs -- \
		$(GO_TEST) -p 1 -count=1 -timeout 30m ./test/integration/builds ./test/integration/gate -ginkgo.label-filter=attack -ginkgo.v

.PHONY: load-gate-pods
load-gate-pods: build ## Measure, on real pods, the time until the first byte of an instance by its host name; needs root.
	go run $(IMAGES) --output $(DIST)/images web
	$(GO_BUILD) -o $(BIN)/berg-gate ./cmd/berg-gate
	go build -o $(BIN)/measure-gate ./test/measure/gate
	hack/with-cluster --profile node --name $(TEST_CLUSTER)-gate -- $(MAKE) load-gate-pods-run ARGS='$(ARGS)'

# The program runs where the addresses of pods are reached.
.PHONY: load-gate-pods-run
load-gate-pods-run:
	go run $(CLUSTER) load --name $(TEST_CLUSTER)-gate $(DIST)/images/web.tar
	test/conform/gateway/run $(BIN)/measure-gate --scenarios starts --out $(DIST)/gate-pods --image ghcr.io/bergctf/samples/web:v$(VERSION) $(ARGS)

.PHONY: load-pods
load-pods: build ## Measure what the operator adds to the start of real pods; needs root.
	go run $(IMAGES) --output $(DIST)/images web
	hack/with-cluster --profile node --name $(TEST_CLUSTER)-load --audit -- \
		$(MAKE) load-pods-run ARGS='$(ARGS)'

.PHONY: load-pods-run
load-pods-run:
	go run $(CLUSTER) load --name $(TEST_CLUSTER)-load $(DIST)/images/web.tar
	go run $(LOAD) --scenarios pods --image ghcr.io/bergctf/samples/web:v$(VERSION) $(ARGS)

.PHONY: load-warm-pods
load-warm-pods: ## Compare prepared instances with new ones on real pods, for each form of flag; needs root.
	$(MAKE) load-pods ARGS='--scenarios warm-pods $(ARGS)'

.PHONY: measure-warm
measure-warm: ## Compare prepared instances with new ones, and count 10,000 claims while leaders are killed (--claims): more than an hour; needs root.
	$(MAKE) load ARGS='--scenarios warm,warm-leaders $(ARGS)'
	$(MAKE) load-warm-pods ARGS='$(ARGS)'

PREPULL_ROUNDS ?= 20

.PHONY: prepull
prepull: image images tunnel-image jail-image ## Measure PREPULL_ROUNDS=20 first starts of images that were pulled in advance from a slow registry; needs root.
	hack/with-cluster --profile node --name $(TEST_CLUSTER)-prepull -- env PREPULL_ROUNDS=$(PREPULL_ROUNDS) \
		$(MAKE) e2e-run E2E_CLUSTER=$(TEST_CLUSTER)-prepull E2E=berg E2E_LABELS=prepull TESTARGS='-v'

CHECK_HEALTH ?= 1h

.PHONY: check-health
check-health: image images tunnel-image jail-image ## Let solvers check the sample challenges for CHECK_HEALTH=1h, through the Gateway: no check may fail; needs root.
	hack/packages node network
	hack/with-cluster --profile network --name $(TEST_CLUSTER)-health -- env CHECK_HEALTH=$(CHECK_HEALTH) \
		$(MAKE) e2e-run E2E_CLUSTER=$(TEST_CLUSTER)-health E2E=berg E2E_LABELS=health E2E_TIMEOUT=3h TESTARGS='-v' SETTINGS='$(SAMPLE_GATEWAY_PORTS)'

.PHONY: load-smoke
load-smoke: ## Count the requests of an instance to the API server.
	$(MAKE) load ARGS='--scenarios smoke --check --compare= --out $(DIST)/load-smoke'

LIVE_PAGE_INSTANCES ?= 5000

.PHONY: measure-live-page
measure-live-page: ## Measure the live page in a browser with LIVE_PAGE_INSTANCES=5000: first paint, changes, memory; needs Chromium.
	hack/packages browser
	hack/with-cluster --profile simulated --name $(TEST_CLUSTER)-live-page -- \
		go run -C test/conform/livepage ./measure --instances $(LIVE_PAGE_INSTANCES) $(ARGS)

.PHONY: live-page-pictures
live-page-pictures: ## Take the pictures of docs/live-page.md: a healthy and a bad event in a browser, in seven minutes; needs Chromium.
	hack/packages browser
	hack/with-cluster --profile simulated --name $(TEST_CLUSTER)-live-page -- go run -C test/conform/livepage ./pictures $(ARGS)

DASHBOARDS_MINUTES ?= 12

.PHONY: record-dashboards
record-dashboards: ## Record for DASHBOARDS_MINUTES=12 what the operator reports while people use all families, for the pictures of dashboards.
	hack/with-cluster --profile simulated --name $(TEST_CLUSTER)-dashboards -- \
		env DASHBOARDS_RECORDING=$(CURDIR)/test/conform/monitoring/testdata/recording.txt DASHBOARDS_MINUTES=$(DASHBOARDS_MINUTES) \
		$(GO_TEST) -count=1 -timeout 3h ./test/measure/dashboards -ginkgo.timeout=3h
	$(MAKE) dashboard-pictures

.PHONY: dashboard-pictures
dashboard-pictures: ## Draw the pictures of dashboards in docs/pictures from the recording; needs no cluster.
	go test -C test/conform/monitoring -count=1 -run '^TestPicturesOfDashboards$$' . -update

# The seed that a failed run prints repeats its lives and faults.
SEED  ?= 0
LIVES ?= 60
STORM ?= 75s

.PHONY: chaos
chaos: ## Run LIVES=60 resources of each API group while everything fails; SEED repeats a run.
	$(MAKE) chaos-berg
	$(MAKE) chaos-hexactf
	$(MAKE) chaos-tunnel
	$(MAKE) chaos-kibaship

.PHONY: chaos-berg
chaos-berg: build ## Run LIVES=60 instances while everything fails for STORM=75s.
	hack/with-cluster --profile simulated --name $(TEST_CLUSTER)-chaos -- \
		go run $(CHAOS) --seed $(SEED) --lives $(LIVES) --storm $(STORM) --logs $(DIST)/chaos

.PHONY: chaos-hexactf
chaos-hexactf: ## Run LIVES=60 HexaCTF challenges while operators are killed and a real Kafka is paused and killed.
	hack/packages kafka
	hack/with-cluster --profile simulated --name $(TEST_CLUSTER)-chaos -- \
		env HEXACTF_LIVES=$(LIVES) HEXACTF_KAFKA=1 $(GO_TEST) -v -count=1 -timeout 2h ./test/integration/hexactf \
		-ginkgo.v -ginkgo.timeout=2h $(if $(filter-out 0,$(SEED)),-ginkgo.seed=$(SEED)) -ginkgo.focus='While operators are killed'

.PHONY: chaos-tunnel
chaos-tunnel: ## Run LIVES=60 pairs of tunnel proxies while operators and proxies are killed and the API server fails.
	hack/with-cluster --profile simulated --name $(TEST_CLUSTER)-chaos -- \
		env TUNNEL_LIVES=$(LIVES) TUNNEL_API_RESTARTS=4 $(GO_TEST) -v -count=1 -timeout 2h ./test/integration/tunnel \
		-ginkgo.v -ginkgo.timeout=2h $(if $(filter-out 0,$(SEED)),-ginkgo.seed=$(SEED)) -ginkgo.focus='An operator that restarts|While operators'

.PHONY: chaos-kibaship
chaos-kibaship: ## Create and delete LIVES=60 KibaShip projects with applications while operators are killed.
	hack/with-cluster --profile simulated --name $(TEST_CLUSTER)-chaos -- \
		env KIBASHIP_LIVES=$(LIVES) $(GO_TEST) -v -count=1 -timeout 2h ./test/integration/kibaship \
		-ginkgo.v -ginkgo.timeout=2h $(if $(filter-out 0,$(SEED)),-ginkgo.seed=$(SEED)) -ginkgo.focus='While operators are killed'

FUZZTIME ?= 5m

.PHONY: fuzz
fuzz: ## Fuzz Challenges from JSON to plan, the flag's program, and files of authors, for FUZZTIME=5m each.
	$(GO_TEST) ./internal/berg/challengeinstance -run '^$$' -fuzz '^FuzzAuthors$$' -fuzztime $(FUZZTIME)
	$(GO_TEST) ./internal/berg/challengeinstance -run '^$$' -fuzz '^FuzzFromJSON$$' -fuzztime $(FUZZTIME)
	$(GO_TEST) ./internal/berg/flagexec -run '^$$' -fuzz '^FuzzBuild$$' -fuzztime $(FUZZTIME)
	$(GO_TEST) ./cmd/kubectl-berg/importer -run '^$$' -fuzz '^FuzzImport$$' -fuzztime $(FUZZTIME)
	$(GO_TEST) ./cmd/kubectl-berg/lint -run '^$$' -fuzz '^FuzzCheck$$' -fuzztime $(FUZZTIME)

# How long, and how many.
QUIET           ?= 10m
QUIET_INSTANCES ?= 500

.PHONY: quiet
quiet: ## Leave QUIET_INSTANCES=500 running instances idle for QUIET=10m: the operator may make no request.
	hack/with-cluster --profile simulated --name $(TEST_CLUSTER)-quiet -- \
		env QUIET=$(QUIET) QUIET_INSTANCES=$(QUIET_INSTANCES) \
		$(GO_TEST) -v -count=1 -timeout 2h ./test/integration/berg/queue -ginkgo.v -ginkgo.timeout=2h -ginkgo.focus='instances that run, while time passes'

EXPIRING ?= 1000

.PHONY: expiring
expiring: ## Let EXPIRING=1000 instances expire in the same second, and compare with a bare client.
	hack/with-cluster --profile simulated --name $(TEST_CLUSTER)-expiring -- \
		env EXPIRING=$(EXPIRING) $(GO_TEST) -v -count=1 -timeout 2h ./test/integration/berg/life -ginkgo.v -ginkgo.timeout=2h -ginkgo.focus='Many instances that expire'

QUEUED ?= 500

.PHONY: queue
queue: ## Let QUEUED=500 instances wait while only a fifth of them may run and the operator is killed.
	hack/with-cluster --profile simulated --name $(TEST_CLUSTER)-queue -- \
		env QUEUED=$(QUEUED) $(GO_TEST) -v -count=1 -timeout 2h ./test/integration/berg/queue -ginkgo.v -ginkgo.timeout=2h -ginkgo.focus='Many instances with room for few'

RECORD_PACE ?= 400

.PHONY: record-pace
record-pace: ## Delete RECORD_PACE=400 instances with records and as many without, alternately: at most 5 % slower (p99).
	hack/with-cluster --profile simulated --name $(TEST_CLUSTER)-pace -- \
		env RECORD_PACE=$(RECORD_PACE) $(GO_TEST) -v -count=1 -timeout 2h ./test/integration/berg/check -ginkgo.v -ginkgo.timeout=2h -ginkgo.focus='The pace of deletions'

PRESSURE ?= 1000

.PHONY: pressure
pressure: ## One instance that always fails among PRESSURE=1000 good ones, as many namespaces that are held, a full etcd, a throttled operator.
	hack/with-cluster --profile simulated --name $(TEST_CLUSTER)-press -- \
		env PRESSURE=$(PRESSURE) $(GO_TEST) -v -count=1 -timeout 3h ./test/integration/operator -ginkgo.v -ginkgo.timeout=3h -ginkgo.focus='Pressure'

CROWD ?= 500

.PHONY: crowd
crowd: ## Create CROWD=500 Environments together, and compare the time with that of their writes alone.
	hack/with-cluster --profile simulated --name $(TEST_CLUSTER)-crowd -- \
		env CROWD=$(CROWD) $(GO_TEST) -v -count=1 -timeout 2h ./test/integration/quix -ginkgo.v -ginkgo.timeout=2h -ginkgo.focus='A crowd of environments'

HEXACTF_CROWD         ?= 100
HEXACTF_ROUNDS        ?= 3
HEXACTF_QUIET         ?= 2000
HEXACTF_QUIET_SECONDS ?= 120
HEXACTF_EXPIRING ?= 1000

.PHONY: hexactf-crowd
hexactf-crowd: ## Create HEXACTF_CROWD=100 HexaCTF challenges together and at half the rate, let HEXACTF_EXPIRING=1000 expire together, and compare with a bare client.
	hack/with-cluster --profile simulated --name $(TEST_CLUSTER)-crowd -- \
		env HEXACTF_TARGETS=1 HEXACTF_CROWD=$(HEXACTF_CROWD) HEXACTF_EXPIRING=$(HEXACTF_EXPIRING) HEXACTF_ROUNDS=$(HEXACTF_ROUNDS) \
		$(GO_TEST) -v -count=1 -timeout 2h ./test/integration/hexactf -ginkgo.v -ginkgo.timeout=2h -ginkgo.focus='A crowd of challenges (runs|expires)'

.PHONY: hexactf-quiet
hexactf-quiet: ## Leave HEXACTF_QUIET=2000 running HexaCTF challenges idle for HEXACTF_QUIET_SECONDS=120: the operator may write nothing.
	hack/with-cluster --profile simulated --name $(TEST_CLUSTER)-crowd -- \
		env HEXACTF_QUIET=$(HEXACTF_QUIET) HEXACTF_QUIET_SECONDS=$(HEXACTF_QUIET_SECONDS) \
		$(GO_TEST) -v -count=1 -timeout 2h ./test/integration/hexactf -ginkgo.v -ginkgo.timeout=2h -ginkgo.focus='A crowd of challenges costs no write'

HEXACTF_LATENCY ?= 200

.PHONY: hexactf-latency
hexactf-latency: ## Measure how long messages of HEXACTF_LATENCY=200 challenges take to a real Kafka, and compare with a bare client.
	hack/packages kafka
	hack/with-cluster --profile simulated --name $(TEST_CLUSTER)-latency -- \
		env HEXACTF_LATENCY=$(HEXACTF_LATENCY) $(GO_TEST) -v -count=1 -timeout 30m ./test/integration/hexactf -ginkgo.v -ginkgo.timeout=30m -ginkgo.focus='A message to a real Kafka'
	HEXACTF_TARGETS=1 $(GO_TEST) -v -count=1 -timeout 15m -run '^TestLatencyComparedWithABareClient$$' $(KAFKA)

KAFKA_PAUSE ?= 10m

.PHONY: hexactf-pause
hexactf-pause: ## Pause a real Kafka for KAFKA_PAUSE=10m while HexaCTF challenges start, run and expire: all messages arrive, in order.
	hack/packages kafka
	hack/with-cluster --profile simulated --name $(TEST_CLUSTER)-chaos -- \
		env KAFKA_PAUSE=$(KAFKA_PAUSE) HEXACTF_KAFKA=1 $(GO_TEST) -v -count=1 -timeout 2h ./test/integration/hexactf \
		-ginkgo.v -ginkgo.timeout=2h -ginkgo.focus='While the broker is paused'

# What berg-tunnel is compared with. Go modules are pinned in test/measure/tunnel/tools, OpenSSH is
# Debian's, and rathole comes from Rust's package registry, if cargo is installed.
TUNNEL_LOAD     := ./test/measure/tunnel
TUNNEL_TOOLS    := $(DIST)/tunnel
TUNNEL_PEERS    := $(addprefix $(TUNNEL_TOOLS)/,chisel frps frpc)
RATHOLE_VERSION := 0.5.0
RATHOLE_LIMIT   := 15m

$(TUNNEL_TOOLS)/chisel: PEER := github.com/jpillora/chisel
$(TUNNEL_TOOLS)/frps: PEER := github.com/fatedier/frp/cmd/frps
$(TUNNEL_TOOLS)/frpc: PEER := github.com/fatedier/frp/cmd/frpc
$(TUNNEL_PEERS): test/measure/tunnel/tools/go.mod test/measure/tunnel/tools/go.sum
	go build -C test/measure/tunnel/tools -ldflags='-s -w' -o $@ $(PEER)

# Not with --locked: one of the versions in its lock file does not compile any more. The compiled files
# stay, so that another attempt continues where this one stopped.
$(TUNNEL_TOOLS)/rathole:
	@if ! command -v cargo >/dev/null; then \
		echo "make: cargo is not installed: rathole is left out" >&2; \
	else \
		CARGO_TARGET_DIR=$(TUNNEL_TOOLS)/cargo/target timeout $(RATHOLE_LIMIT) cargo install --quiet --root $(TUNNEL_TOOLS)/cargo \
			--no-default-features --features server,client,noise rathole@$(RATHOLE_VERSION) && \
		ln -sf cargo/bin/rathole $@ || echo "make: rathole was not built within $(RATHOLE_LIMIT): it is left out" >&2; \
	fi

# ARGS go to the program, for example ARGS='--rounds 1 --duration 1s --only berg-tunnel,chisel'.
.PHONY: load-tunnel
load-tunnel: tunnel-proxy $(TUNNEL_PEERS) $(TUNNEL_TOOLS)/rathole ## Compare berg-tunnel with ssh -R, chisel, frp, rathole and bare relays; with a KUBECONFIG of profile node, kubectl port-forward too.
	hack/packages tunnel
	go build -o $(TUNNEL_TOOLS)/bench $(TUNNEL_LOAD)
	$(TUNNEL_TOOLS)/bench --berg-tunnel $(BIN)/berg-tunnel --tools $(TUNNEL_TOOLS) --kubectl kubectl --out $(TUNNEL_TOOLS) $(ARGS)

.PHONY: load-tunnel-pods
load-tunnel-pods: ## The same with kubectl port-forward to a real pod; needs root.
	go run $(IMAGES) --output $(DIST)/images web
	hack/with-cluster --profile node --name $(TEST_CLUSTER)-tunnel -- bash -c \
		'go run $(CLUSTER) load --name $(TEST_CLUSTER)-tunnel $(DIST)/images/web.tar && \
		$(MAKE) load-tunnel ARGS="--pod-image ghcr.io/bergctf/samples/web:v$(VERSION) $(ARGS)"'

KIBASHIP_CROWD         ?= 200
KIBASHIP_APPLICATIONS  ?= 500
KIBASHIP_ROUNDS        ?= 1
KIBASHIP_ADMISSIONS    ?= 1000
# The minimum ratio to the rate of the bare client, and the maximum duration of an admission request.
KIBASHIP_TARGET        ?= 0.85
KIBASHIP_P99           ?= 20ms
KIBASHIP_QUIET         ?= 1000
KIBASHIP_QUIET_SECONDS ?= 120

.PHONY: kibaship-crowd
kibaship-crowd: ## Create KIBASHIP_CROWD=200 KibaShip projects and KIBASHIP_APPLICATIONS=500 applications together, and compare with a bare client; measure admission.
	hack/with-cluster --profile simulated --name $(TEST_CLUSTER)-crowd -- \
		env KIBASHIP_CROWD=$(KIBASHIP_CROWD) KIBASHIP_APPLICATIONS=$(KIBASHIP_APPLICATIONS) \
		KIBASHIP_ROUNDS=$(KIBASHIP_ROUNDS) KIBASHIP_ADMISSIONS=$(KIBASHIP_ADMISSIONS) \
		KIBASHIP_TARGET=$(KIBASHIP_TARGET) KIBASHIP_P99=$(KIBASHIP_P99) \
		$(GO_TEST) -v -count=1 -timeout 2h ./test/integration/kibaship -ginkgo.v -ginkgo.timeout=2h -ginkgo.focus='A crowd of projects is made|Admission takes'

.PHONY: kibaship-quiet
kibaship-quiet: ## Leave KIBASHIP_QUIET=1000 KibaShip projects idle for KIBASHIP_QUIET_SECONDS=120: the operator may write nothing.
	hack/with-cluster --profile simulated --name $(TEST_CLUSTER)-crowd -- \
		env KIBASHIP_QUIET=$(KIBASHIP_QUIET) KIBASHIP_QUIET_SECONDS=$(KIBASHIP_QUIET_SECONDS) \
		$(GO_TEST) -v -count=1 -timeout 2h ./test/integration/kibaship -ginkgo.v -ginkgo.timeout=2h -ginkgo.focus='A crowd of projects is left alone'

PUSH_APPLICATIONS ?= 1000
PUSH_ROUNDS       ?= 5

.PHONY: kibaship-pushes
kibaship-pushes: ## Measure webhooks among forged ones, pushes while a provider hangs, and the CPU time of PUSH_APPLICATIONS=1000 KibaShip applications that are asked about every minute: some six minutes.
	hack/with-cluster --profile simulated --name $(TEST_CLUSTER)-pushes -- \
		env PUSH_TARGETS=1 PUSH_APPLICATIONS=$(PUSH_APPLICATIONS) \
		$(GO_TEST) -v -count=1 -timeout 1h ./test/integration/builds -ginkgo.v -ginkgo.timeout=1h -ginkgo.focus='What pushes cost'

.PHONY: kibaship-push-pods
kibaship-push-pods: image ## Measure PUSH_ROUNDS=5 pushes from a webhook to the image, and the same runs by a bare client, with a real Tekton; needs root.
	hack/packages node tekton
	hack/with-cluster --profile tekton --name $(KIBASHIP_CLUSTER) -- $(MAKE) kibaship-push-pods-run PUSH_ROUNDS=$(PUSH_ROUNDS)

.PHONY: kibaship-push-pods-run
kibaship-push-pods-run:
	go run $(CLUSTER) load --name $(KIBASHIP_CLUSTER) $(DIST)/images/berg-operator.tar
	$(MAKE) deploy ROLLOUT_TIMEOUT=10m
	env PUSH_ROUNDS=$(PUSH_ROUNDS) $(GO_TEST) -v -count=1 -timeout 1h ./test/e2e/kibaship -ginkgo.v -ginkgo.timeout=1h -ginkgo.focus='A push is announced'
