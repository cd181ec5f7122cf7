##@ Tests

# Where tests are: test/README.md says which goes where. The suites are the folders
# that hold one, so that a new family needs no line here.
CLUSTER     := ./test/cluster
IMAGES      := ./test/samples/images
DEMO        := ./test/samples/demo
RIGHTS      := ./test/measure/rights
LOAD        := ./test/measure/load
CHAOS       := ./test/measure/chaos
OLM         := ./test/e2e/olm
HELM        := ./test/e2e/helm
folders      = $(sort $(patsubst %/,%,$(dir $(wildcard $(1)/*/*_test.go))))
INTEGRATION := $(notdir $(call folders,test/integration))
KAFKA       := ./test/e2e/kafka
HEXACTF     := ./test/e2e/hexactf
KIBASHIP    := ./test/e2e/kibaship
TUNNEL      := ./test/e2e/tunnel
JOURNEYS    := $(filter-out $(OLM) $(HELM) $(KAFKA) $(HEXACTF) $(KIBASHIP) $(TUNNEL),$(addprefix ./,$(call folders,test/e2e)))

# Names of the clusters that the tests make for themselves.
TEST_CLUSTER    ?= berg-test
E2E_CLUSTER     ?= berg-e2e
OLM_CLUSTER     ?= berg-olm
HELM_CLUSTER    ?= berg-helm
HEXACTF_CLUSTER ?= berg-hexactf
KIBASHIP_CLUSTER ?= berg-kibaship
TUNNEL_CLUSTER  ?= berg-tunnel
NETWORK_CLUSTER ?= berg-network
# TESTARGS go to go test, for example TESTARGS='-run TestPlan -v'.
TESTARGS ?=
# CHALLENGES_DIR holds Challenges of others, one in each file, that are tried too:
# by default those of a folder "challenges" next door.
CHALLENGES_DIR ?= $(abspath $(firstword $(wildcard ../*/challenges)))
export CHALLENGES_DIR
GO_TEST := go test $(if $(RACE),-race) $(TESTARGS)

.PHONY: test
test: test-unit test-cluster test-integration ## Run unit and integration tests; needs no root.

# All packages that hold tests, but the suites, which want a cluster. The test of
# clusters starts some, unless it is told to be short.
UNIT = go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./... | grep -Ev '/test/((integration|e2e)/[^/]+|cluster)$$'

# Go remembers a test that has passed by the files that it read, but by none outside of its
# module, which is what those of the other modules look at.
.PHONY: test-unit
test-unit: ## Run the unit tests; needs no cluster.
	$(GO_TEST) $$($(UNIT))
	$(GO_TEST) -short $(CLUSTER)
	for module in $(filter-out .,$(GO_MODULES)); do go test -C $$module -count=1 $(if $(RACE),-race) $(TESTARGS) ./...; done

.PHONY: stress-tunnel
stress-tunnel: ## Send a GiB each way, and make 10,000 connections, through a pair of tunnel proxies.
	TUNNEL_BYTES=1073741824 TUNNEL_CONNECTIONS=10000 $(GO_TEST) -v -count=1 -timeout 20m -run '^(TestBytesArriveAsTheyWereSent|TestShortConnections)$$' ./internal/tunnel/proxy

# As root it starts real nodes too, where they are built; make e2e builds them.
.PHONY: test-cluster
test-cluster: ## Test that clusters start, and are removed without a trace.
	go run $(CLUSTER) build --profile simulated
	$(GO_TEST) -count=1 -timeout 20m $(CLUSTER)

.PHONY: test-kafka
test-kafka: ## Test the sender of messages at a real Kafka, which it starts and stops.
	hack/packages kafka
	$(GO_TEST) -count=1 -timeout 15m $(KAFKA)

.PHONY: test-integration
test-integration: ## Run the integration tests, two suites at a time; test-integration-berg runs those of one folder.
	$(MAKE) --keep-going --jobs=2 --output-sync=target $(TEST_INTEGRATION)

# Specs wait more than they compute: a suite that takes long runs in several processes,
# each with a simulated cluster and an operator of its own.
PROCESSES := berg=3
processes  = $(or $(patsubst $(1)=%,%,$(filter $(1)=%,$(PROCESSES))),1)
TEST_INTEGRATION := $(INTEGRATION:%=test-integration-%)
.PHONY: $(TEST_INTEGRATION)
$(TEST_INTEGRATION): test-integration-%: $(BIN)/ginkgo
	rm -f $(DIST)/rights/integration-$*.json
	hack/with-cluster --profile simulated --name $(TEST_CLUSTER)-$* --audit --count $(call processes,$*) -- bash -c \
		'$$0 "$$@" && go run $(RIGHTS) --collect $(DIST)/rights/integration-$*.json' \
		$(BIN)/ginkgo run --procs=$(call processes,$*) --timeout=40m $(if $(RACE),--race) ./test/integration/$*

# What was granted and is not used shows only when every suite has run.
# The journeys of tunnels may have a DIST of their own.
TUNNEL_USED := $(CURDIR)/dist/rights/e2e-tunnel.json
USED        := $(INTEGRATION:%=$(DIST)/rights/integration-%.json) $(DIST)/rights/e2e.json $(TUNNEL_USED)

.PHONY: rights
rights: ## Compare the rights of the operator with what it used in test-integration, e2e and e2e-tunnel, which must have run before.
	@for file in $(USED); do [[ -e $$file ]] || { \
		echo "make: $$file is missing, which tells what the operator used: run 'make test-integration', 'make e2e' and 'make e2e-tunnel' first" >&2; exit 1; }; done
	go run $(RIGHTS) $(USED)
