##@ Measurements and chaos

# ARGS go to the program, for example ARGS='--scenarios burst-100 --rounds 1'.
.PHONY: load
load: build ## Measure the operator against a bare client: all takes more than an hour, ARGS='--scenarios burst-100' minutes.
	hack/with-cluster --profile simulated --name $(TEST_CLUSTER)-load --audit -- go run $(LOAD) $(ARGS)

.PHONY: load-pods
load-pods: build ## Measure what the operator adds to the start of real pods; needs root.
	go run $(IMAGES) --output $(DIST)/images web
	hack/with-cluster --profile node --name $(TEST_CLUSTER)-load --audit -- \
		$(MAKE) load-pods-run ARGS='$(ARGS)'

.PHONY: load-pods-run
load-pods-run:
	go run $(CLUSTER) load --name $(TEST_CLUSTER)-load $(DIST)/images/web.tar
	go run $(LOAD) --scenarios pods --image ghcr.io/bergctf/samples/web:v$(VERSION) $(ARGS)

.PHONY: load-smoke
load-smoke: ## Count what an instance costs the API server in requests.
	$(MAKE) load ARGS='--scenarios smoke --check --compare= --out $(DIST)/load-smoke'

# The seed that a failed run prints brings the same lives and faults again.
SEED  ?= 0
LIVES ?= 60
STORM ?= 75s

.PHONY: chaos
chaos: ## Let LIVES=60 of each family live while everything fails; SEED repeats a run.
	$(MAKE) chaos-berg
	$(MAKE) chaos-hexactf

.PHONY: chaos-berg
chaos-berg: build ## Let LIVES=60 instances live while everything fails for STORM=75s.
	hack/with-cluster --profile simulated --name $(TEST_CLUSTER)-chaos -- \
		go run $(CHAOS) --seed $(SEED) --lives $(LIVES) --storm $(STORM) --logs $(DIST)/chaos

.PHONY: chaos-hexactf
chaos-hexactf: ## Let LIVES=60 HexaCTF challenges live while operators are killed and a real Kafka is paused and killed.
	hack/packages kafka
	hack/with-cluster --profile simulated --name $(TEST_CLUSTER)-chaos -- \
		env HEXACTF_LIVES=$(LIVES) HEXACTF_KAFKA=1 $(GO_TEST) -v -count=1 -timeout 2h ./test/integration/hexactf \
		-ginkgo.v $(if $(filter-out 0,$(SEED)),-ginkgo.seed=$(SEED)) -ginkgo.focus='While operators are killed'

FUZZTIME ?= 5m

.PHONY: fuzz
fuzz: ## Fuzz Challenges from JSON to plan, and the flag's program, for FUZZTIME=5m each.
	$(GO_TEST) ./internal/berg/challengeinstance -run '^$$' -fuzz '^FuzzAuthors$$' -fuzztime $(FUZZTIME)
	$(GO_TEST) ./internal/berg/challengeinstance -run '^$$' -fuzz '^FuzzFromJSON$$' -fuzztime $(FUZZTIME)
	$(GO_TEST) ./internal/berg/flagexec -run '^$$' -fuzz '^FuzzBuild$$' -fuzztime $(FUZZTIME)

# How long, and how many.
QUIET           ?= 10m
QUIET_INSTANCES ?= 500

.PHONY: quiet
quiet: ## Leave QUIET_INSTANCES=500 running instances alone for QUIET=10m: no request may be made.
	hack/with-cluster --profile simulated --name $(TEST_CLUSTER)-quiet -- \
		env QUIET=$(QUIET) QUIET_INSTANCES=$(QUIET_INSTANCES) \
		$(GO_TEST) -v -count=1 -timeout 2h ./test/integration/berg -ginkgo.v -ginkgo.focus='instances that run, while time passes'

PRESSURE ?= 1000

.PHONY: pressure
pressure: ## One instance that always fails among PRESSURE=1000 good ones, as many namespaces that are held, a full etcd, a throttled operator.
	hack/with-cluster --profile simulated --name $(TEST_CLUSTER)-press -- \
		env PRESSURE=$(PRESSURE) $(GO_TEST) -v -count=1 -timeout 3h ./test/integration/operator -ginkgo.v -ginkgo.focus='Pressure'

CROWD ?= 500

.PHONY: crowd
crowd: ## Create CROWD=500 Environments at once, and tell how much longer it takes than their writes alone.
	hack/with-cluster --profile simulated --name $(TEST_CLUSTER)-crowd -- \
		env CROWD=$(CROWD) $(GO_TEST) -v -count=1 -timeout 2h ./test/integration/quix -ginkgo.v -ginkgo.focus='A crowd of environments'

HEXACTF_CROWD         ?= 100
HEXACTF_ROUNDS        ?= 3
HEXACTF_QUIET         ?= 2000
HEXACTF_QUIET_SECONDS ?= 120

.PHONY: hexactf-crowd
hexactf-crowd: ## Create HEXACTF_CROWD=100 HexaCTF challenges at once and at half the rate, and let them expire together, beside a bare client.
	hack/with-cluster --profile simulated --name $(TEST_CLUSTER)-crowd -- \
		env HEXACTF_CROWD=$(HEXACTF_CROWD) HEXACTF_ROUNDS=$(HEXACTF_ROUNDS) \
		$(GO_TEST) -v -count=1 -timeout 2h ./test/integration/hexactf -ginkgo.v -ginkgo.focus='A crowd of challenges (runs|expires)'

.PHONY: hexactf-quiet
hexactf-quiet: ## Leave HEXACTF_QUIET=2000 running HexaCTF challenges alone for HEXACTF_QUIET_SECONDS=120: nothing may be written.
	hack/with-cluster --profile simulated --name $(TEST_CLUSTER)-crowd -- \
		env HEXACTF_QUIET=$(HEXACTF_QUIET) HEXACTF_QUIET_SECONDS=$(HEXACTF_QUIET_SECONDS) \
		$(GO_TEST) -v -count=1 -timeout 2h ./test/integration/hexactf -ginkgo.v -ginkgo.focus='A crowd of challenges is left alone'

HEXACTF_LATENCY ?= 200

.PHONY: hexactf-latency
hexactf-latency: ## How long messages of HEXACTF_LATENCY=200 challenges take to a real Kafka, beside those of a bare client.
	hack/packages kafka
	hack/with-cluster --profile simulated --name $(TEST_CLUSTER)-latency -- \
		env HEXACTF_LATENCY=$(HEXACTF_LATENCY) $(GO_TEST) -v -count=1 -timeout 30m ./test/integration/hexactf -ginkgo.v -ginkgo.focus='A message to a real Kafka'
