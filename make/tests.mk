##@ Tests

# Names of the clusters that the tests make for themselves.
TEST_CLUSTER    ?= berg-test
E2E_CLUSTER     ?= berg-e2e
OLM_CLUSTER     ?= berg-olm
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

.PHONY: test-unit
test-unit: ## Run the unit tests; needs no cluster.
	$(GO_TEST) ./api/... ./internal/... ./cmd/... ./hack/... \
		./test/images/... ./test/demo/... ./test/docs/... \
		./test/scorecard/... ./test/compatibility/... ./test/load/... ./test/e2e/attack/... ./test/chaos/... ./test/rights/...
	$(GO_TEST) -short ./test/cluster/...
	go test -C test/cluster/components/image $(if $(RACE),-race) $(TESTARGS) ./...
	go test -C test/cluster/components/outside $(if $(RACE),-race) $(TESTARGS) ./...
	go test -C tools/sbom $(if $(RACE),-race) $(TESTARGS) ./...
	go test -C test/monitoring $(if $(RACE),-race) $(TESTARGS) ./...
	go test -C test/dockerfiles $(if $(RACE),-race) $(TESTARGS) ./...

# As root it starts real nodes too, where they are built; make e2e builds them.
.PHONY: test-cluster
test-cluster: ## Test that clusters come, and go without a trace.
	go run ./test/cluster build --profile simulated
	$(GO_TEST) -count=1 -timeout 20m ./test/cluster/

.PHONY: test-integration
test-integration: ## Run the integration tests, halves of them on two simulated clusters side by side.
	rm -rf $(DIST)/rights
	go test -c -o $(DIST)/integration.test $(if $(RACE),-race) ./test/integration
	$(MAKE) --no-print-directory --keep-going --jobs=2 --output-sync=target test-integration-1 test-integration-2

# The first half are the files named here, the second all others. They take about as
# long as each other, and mostly wait.
FIRST_HALF := (availability|deletion|kill|metrics|neighbours|networkpolicy|optional|owners|restarts|secrecy)_test.go
test-integration-1: HALF = -ginkgo.focus-file='$(FIRST_HALF)'
test-integration-2: HALF = -ginkgo.skip-file='$(FIRST_HALF)'

.PHONY: test-integration-1 test-integration-2
test-integration-1 test-integration-2: test-integration-%:
	hack/with-cluster --profile simulated --name $(TEST_CLUSTER)-$* --audit -- bash -c \
		'(cd test/integration && $$0 "$$@") && go run ./test/rights --collect $(DIST)/rights/integration-$*.json' \
		$(DIST)/integration.test -test.timeout 40m $(HALF)

.PHONY: rights
rights: ## Compare the rights of the operator with what it used in test-integration and e2e, which must have run before.
	@compgen -G '$(DIST)/rights/*.json' >/dev/null || { \
		echo "make: nothing tells what the operator used: run 'make test-integration' and 'make e2e' first" >&2; exit 1; }
	go run ./test/rights $(DIST)/rights/*.json
