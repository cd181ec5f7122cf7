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

.PHONY: test
test: ## Run everything that a change must pass; as root with the journeys on real pods. ARGS: '--since origin/main', '--plan', '--help'.
	@hack/ci/run $(ARGS)

# All packages with tests except the suites, which need a cluster. The test of
# clusters starts some, unless -short is set.
UNIT = go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./... | grep -Ev '/test/(integration/.+|e2e/[^/]+|cluster)$$'

# Go remembers a test that has passed, and runs it again when the code or a file of its module has changed. These modules test files
# of the others.
TESTED_OUTSIDE := test/conform/chart test/conform/dockerfiles test/conform/monitoring

# The linter runs all of vet.
UNIT_TEST := $(GO_TEST) -vet=off

.PHONY: test-unit
test-unit: ## Run the unit tests; needs no cluster.
	$(UNIT_TEST) $$($(UNIT))
	$(UNIT_TEST) -short $(CLUSTER)
	for module in $(filter-out . $(TESTED_OUTSIDE),$(GO_MODULES)); do (cd $$module && $(UNIT_TEST) ./...); done
	for module in $(TESTED_OUTSIDE); do (cd $$module && $(UNIT_TEST) -count=1 ./...); done

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

$(AXE): test/conform/livepage/package.json test/conform/livepage/package-lock.json
	mkdir -p $(DIST)/axe
	cp $^ $(DIST)/axe
	npm ci --prefix $(DIST)/axe --ignore-scripts --no-audit --no-fund
	touch $@

.PHONY: test-live-page
test-live-page: ## Open the live page in a browser, and hold it to the rules of axe-core; needs Chromium and npm.
	hack/packages browser axe
	$(MAKE) $(AXE)
	hack/with-cluster --profile simulated --name $(TEST_CLUSTER)-live-page -- \
		env LIVE_PAGE=1 go test -C test/conform/livepage -count=1 -timeout 40m $(TESTARGS) .

.PHONY: docs-site
docs-site: ## Build the site of the documentation: dist/docs-site. The first time it downloads Python packages.
	hack/packages site
	hack/docs-site/build $(VERSION) $(DIST)/docs-site

.PHONY: test-docs-site
test-docs-site: docs-site ## Build the site of the documentation, and search in it with a browser; needs Chromium.
	hack/packages browser
	DOCS_SITE=$(DIST)/docs-site DOCS_SITE_VERSION=$(VERSION) go test -C test/conform/livepage -count=1 ./site

# The example clients, with the packages that their lock files name.
CLIENTS := $(DIST)/clients
TYPESCRIPT := docs/clients/typescript

$(CLIENTS)/typescript/dist/play.js: $(addprefix $(TYPESCRIPT)/,package.json package-lock.json tsconfig.json play.ts) internal/platform/neutral/openapi.json
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

# The audit log, by which make rights finds out which rights the operator uses. Empty: without.
AUDIT ?= --audit

.PHONY: test-integration
test-integration: $(if $(filter api,$(INTEGRATION)),clients) ## Run the integration tests, all on one cluster; INTEGRATION='quix berg/queue' chooses suites, make -k continues after one that failed.
	rm -f $(foreach suite,$(INTEGRATION),$(call used,$(suite)))
	hack/with-cluster --profile simulated --name $(TEST_CLUSTER) $(AUDIT) -- $(MAKE) --jobs=1 $(INTEGRATION:%=run-integration/%)

# test-integration-quix runs one suite, test-integration-berg those in the folder berg.
TEST_INTEGRATION := $(addprefix test-integration-,$(subst /,-,$(INTEGRATION)))
.PHONY: test-integration-berg $(TEST_INTEGRATION)
test-integration-berg $(TEST_INTEGRATION): test-integration-%:
	$(MAKE) test-integration INTEGRATION='$(filter $(subst -,/,$*) $(subst -,/,$*)/%,$(INTEGRATION))'

# The older versions of Kubernetes that docs/compatibility.md promises: a module for each in test/cluster/components.
OLDER_VERSIONS := $(patsubst test/cluster/components/kubernetes-%/,%,$(wildcard test/cluster/components/kubernetes-*/))

# Where the reports of specs go, for test-versions. Empty: there are none.
REPORTS ?=
# Which specs of the integration suites run: a filter of labels. Empty: all.
LABELS ?=
SPEC_FLAGS = $(if $(LABELS),-ginkgo.label-filter='$(LABELS)') $(if $(REPORTS),-ginkgo.junit-report=$(REPORTS)/$(subst /,-,$1).xml)

.PHONY: test-versions $(OLDER_VERSIONS:%=test-version-%)
test-versions: $(OLDER_VERSIONS:%=test-version-%) ## Run CRDs, admission policies, doctor and the journey of players on each older version of Kubernetes, and write it into docs/compatibility.md; needs root.

# test-version-1.33 runs one. The specs have the label versions.
$(OLDER_VERSIONS:%=test-version-%): export BERG_CLUSTER_KUBERNETES = $(@:test-version-%=%)
$(OLDER_VERSIONS:%=test-version-%): export REPORTS = $(DIST)/versions/$(@:test-version-%=%)
$(OLDER_VERSIONS:%=test-version-%): test-version-%:
	rm -rf $(REPORTS)
	$(MAKE) test-integration INTEGRATION='berg/docs berg/life hexactf kibaship operator plugin quix tunnel' LABELS=versions AUDIT= TEST_CLUSTER=$(TEST_CLUSTER)-$(subst .,-,$*)
	$(MAKE) e2e E2E=berg E2E_LABELS='versions && !network' AUDIT= E2E_CLUSTER=$(E2E_CLUSTER)-$(subst .,-,$*)
	hack/versions-row $* $(REPORTS)

# Which rights the operator used in a suite, and in those before it on the same cluster.
used = $(DIST)/rights/integration-$(subst /,-,$1).json

.PHONY: $(INTEGRATION:%=run-integration/%)
$(INTEGRATION:%=run-integration/%): run-integration/%:
	$(GO_TEST) -count=1 -timeout 80m ./test/integration/$* -ginkgo.timeout=80m $(call SPEC_FLAGS,integration/$*)
	$(if $(AUDIT),go run $(RIGHTS) --collect $(call used,$*))

# What was granted and is not used shows only when every suite has run.
USED = $(foreach suite,$(INTEGRATION),$(call used,$(suite))) $(DIST)/rights/e2e.json

.PHONY: rights
rights: stolen-token ## Try what a stolen token can do, and compare the rights of the operator with what it used in test-integration and e2e, which must have run before.
	@for file in $(USED); do [[ -e $$file ]] || { \
		echo "make: $$file is missing, which records what the operator used: run 'make test-integration' and 'make e2e' first" >&2; exit 1; }; done
	go run $(RIGHTS) $(USED)

.PHONY: stolen-token
stolen-token: ## Try with the token of each installation what an attacker could do, and compare it with docs/security.md.
	hack/with-cluster --profile simulated --name $(TEST_CLUSTER)-rights -- go run $(RIGHTS) --attack docs/security.md
