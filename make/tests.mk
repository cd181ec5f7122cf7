##@ Tests

# Where tests are: test/README.md says which goes where. The suites are the folders
# that hold one, so that a new family needs no line here.
CLUSTER     := ./test/cluster
IMAGES      := ./test/samples/images
RIGHTS      := ./test/measure/rights
LOAD        := ./test/measure/load
CHAOS       := ./test/measure/chaos
KAFKA       := ./test/e2e/kafka
# The folders below test/integration that hold tests, such as quix and berg/queue. A target has - instead of /.
INTEGRATION := $(sort $(patsubst test/integration/%/,%,$(dir $(wildcard test/integration/*/*_test.go test/integration/*/*/*_test.go))))

# Names of the clusters that the tests make for themselves.
TEST_CLUSTER     ?= berg-test
E2E_CLUSTER      ?= berg-e2e
OLM_CLUSTER      ?= berg-olm
KIBASHIP_CLUSTER ?= berg-kibaship
NETWORK_CLUSTER  ?= berg-network
# TESTARGS go to go test, for example TESTARGS='-run TestPlan -v'.
TESTARGS ?=
# CHALLENGES_DIR holds other Challenges, one in each file, that are tried too:
# by default those of a folder "challenges" next to this repository.
CHALLENGES_DIR ?= $(abspath $(firstword $(wildcard ../*/challenges)))
export CHALLENGES_DIR
GO_TEST := go test $(if $(RACE),-race) $(TESTARGS)

# Not go run, which does not pass a signal on.
.PHONY: test
test: ## Run everything that a change must pass; as root with the journeys on real pods. ARGS: '--since origin/main', '--plan', '--help'.
	@go build -o $(DIST)/run-ci ./hack/ci
	@$(DIST)/run-ci $(ARGS)

# All packages with tests except the suites, which need a cluster. The test of
# clusters starts some, unless -short is set.
UNIT = go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./... | grep -Ev '/test/(integration/.+|e2e/[^/]+|cluster)$$'

# Go remembers a test that has passed by the files that it read, but not by files outside of its
# module, which the tests of the other modules read.
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
test-kafka: ## Test the sender of messages with a real Kafka, which it starts and stops.
	hack/packages kafka
	$(GO_TEST) -count=1 -timeout 15m $(KAFKA)

# The rules for accessibility, which npm fetches as package-lock.json says: its sums are there, too.
AXE := $(DIST)/axe/node_modules/axe-core/axe.min.js

$(AXE): test/conform/evening/package.json test/conform/evening/package-lock.json
	mkdir -p $(DIST)/axe
	cp $^ $(DIST)/axe
	npm ci --prefix $(DIST)/axe --ignore-scripts --no-audit --no-fund
	touch $@

.PHONY: test-evening
test-evening: ## Open the page of the evening in a browser, and hold it to the rules of axe-core; needs Chromium and npm.
	hack/packages browser axe
	$(MAKE) $(AXE)
	hack/with-cluster --profile simulated --name $(TEST_CLUSTER)-evening -- \
		env EVENING=1 go test -C test/conform/evening -count=1 -timeout 40m $(TESTARGS) .

.PHONY: docs-site
docs-site: ## Build the site of the documentation: dist/docs-site. The first time it downloads Python packages.
	hack/packages site
	hack/docs-site/build $(VERSION) $(DIST)/docs-site

.PHONY: test-docs-site
test-docs-site: docs-site ## Build the site of the documentation, and search in it with a browser; needs Chromium.
	hack/packages browser
	DOCS_SITE=$(DIST)/docs-site DOCS_SITE_VERSION=$(VERSION) go test -C test/conform/evening -count=1 ./site

# The example clients, with the packages that their lock files name.
CLIENTS := $(DIST)/clients
TYPESCRIPT := docs/clients/typescript

$(CLIENTS)/typescript/dist/play.js: $(addprefix $(TYPESCRIPT)/,package.json package-lock.json tsconfig.json play.ts) internal/api/neutral/openapi.json
	mkdir -p $(CLIENTS)/typescript
	cp $(filter $(TYPESCRIPT)/%,$^) $(CLIENTS)/typescript/
	cd $(CLIENTS)/typescript && npm ci --ignore-scripts --no-audit --no-fund && npm run --silent types && npm run --silent build
	touch $@

$(CLIENTS)/python/installed: docs/clients/python/requirements.txt
	python3 -m venv --clear $(CLIENTS)/python
	$(CLIENTS)/python/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement $<
	touch $@

.PHONY: clients
clients: ## Prepare the example clients of docs/clients in TypeScript and Python, for test-integration-api; needs npm and PyPI.
	hack/packages clients
	$(MAKE) $(CLIENTS)/typescript/dist/play.js $(CLIENTS)/python/installed

TEST_INTEGRATION := $(addprefix test-integration-,$(subst /,-,$(INTEGRATION)))

.PHONY: test-integration
test-integration: ## Run the integration tests, two suites in parallel; test-integration-quix runs one suite, test-integration-berg those of its folders.
	$(MAKE) --keep-going --jobs=2 --output-sync=target $(TEST_INTEGRATION)

.PHONY: test-integration-berg
test-integration-berg:
	$(MAKE) --keep-going --jobs=2 --output-sync=target $(filter test-integration-berg-%,$(TEST_INTEGRATION))

.PHONY: $(TEST_INTEGRATION)
$(TEST_INTEGRATION): test-integration-%:
	rm -f $(DIST)/rights/integration-$*.json
	hack/with-cluster --profile simulated --name $(TEST_CLUSTER)-$* --audit -- bash -c \
		'$(GO_TEST) -count=1 -timeout 80m ./test/integration/$(subst -,/,$*) -ginkgo.timeout=80m && \
		go run $(RIGHTS) --collect $(DIST)/rights/integration-$*.json'

test-integration-api: clients

# What was granted and is not used shows only when every suite has run.
USED := $(foreach suite,$(INTEGRATION),$(DIST)/rights/integration-$(subst /,-,$(suite)).json) $(DIST)/rights/e2e.json

.PHONY: rights
rights: ## Compare the rights of the operator with what it used in test-integration and e2e, which must have run before.
	@for file in $(USED); do [[ -e $$file ]] || { \
		echo "make: $$file is missing, which records what the operator used: run 'make test-integration' and 'make e2e' first" >&2; exit 1; }; done
	go run $(RIGHTS) $(USED)
