# `make` or `make help` lists the targets. Versions and image names: versions.mk.
include versions.mk

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules --no-print-directory

# One set of flags for everything that compiles, so that image, lint and tests
# share the build cache: the dependencies take minutes. RACE=1 needs cgo.
RACE ?=
export CGO_ENABLED := $(if $(RACE),1,0)
export GOFLAGS := $(strip $(shell go env GOFLAGS) -trimpath)

CONTAINER_TOOL ?= docker
DIST := $(CURDIR)/dist
BIN  := $(CURDIR)/bin

# Findings are cached with the paths of the checkout that they were made in; in
# another one, rules that name paths would not match them.
export GOLANGCI_LINT_CACHE ?= $(BIN)/lint-cache

##@ General

.PHONY: help
help: ## Show this help.
	@awk 'BEGIN { FS = ":.*## "; print "make <target> [VARIABLE=value ...]" } \
		/^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z0-9-]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' Makefile

.PHONY: versions
versions: ## Print every version that this repository pins.
	@hack/versions \
		VERSION='$(VERSION)' IMG='$(IMG)' BUNDLE_IMG='$(BUNDLE_IMG)' CATALOG_IMG='$(CATALOG_IMG)' SCORECARD_IMG='$(SCORECARD_IMG)' \
		CHANNELS='$(CHANNELS)' DEFAULT_CHANNEL='$(DEFAULT_CHANNEL)' PLATFORMS='$(PLATFORMS)'

.PHONY: clean
clean: ## Remove what make built: bin and dist. Clusters and the Go cache stay.
	rm -rf $(BIN) $(DIST)

##@ Development

# Where hand-written Go is. The other modules hold pinned versions only.
GO_MODULES := . test/cluster/components/image test/cluster/components/outside test/monitoring test/dockerfiles tools/sbom

.PHONY: generate
generate: $(BIN)/controller-gen ## Generate deep-copy methods from api/.
	$(BIN)/controller-gen object paths=./api/...

# A family is a folder of api/, of internal/ and of config/.
FAMILIES := $(notdir $(wildcard api/*))

# staticValue is a number with a fraction in the Challenges that run today; the
# warning against such fields cannot be heeded any more.
.PHONY: manifests
manifests: $(BIN)/controller-gen $(BIN)/kustomize ## Generate CRDs and RBAC of each family from markers, and name the images.
	for family in $(FAMILIES); do \
		$(BIN)/controller-gen \
			crd:allowDangerousTypes=true rbac:roleName=$$family \
			paths=./api/$$family/... paths=./internal/$$family/... \
			output:crd:artifacts:config=config/$$family/crd/bases output:rbac:dir=config/$$family/rbac; \
		grep -qx -- "- ../$$family" config/default/kustomization.yaml || \
			(cd config/default && $(BIN)/kustomize edit add component ../$$family); \
		grep -qx -- "- ../$$family/samples" config/samples/kustomization.yaml || \
			(cd config/samples && $(BIN)/kustomize edit add resource ../$$family/samples); \
	done
	hack/project
	cd config/manager && $(BIN)/kustomize edit set image controller=$(IMAGE_TAG_BASE):v$(VERSION)
	sed -i 's|image: .*|image: $(SCORECARD_IMG)|' config/scorecard/patches/custom.config.yaml
	sed -i 's|image: .*|image: $(CATALOG_IMG)|' config/olm/install.yaml
	sed -i 's|scorecard-test:v.*|scorecard-test:$(OPERATOR_SDK_VERSION)|' config/scorecard/patches/basic.config.yaml config/scorecard/patches/olm.config.yaml

.PHONY: api-docs
api-docs: $(BIN)/crd-ref-docs ## Generate docs/api.md, the reference of all fields.
	mkdir -p docs
	$(BIN)/crd-ref-docs --source-path=api --config=hack/crd-ref-docs.yaml \
		--renderer=markdown --templates-dir=hack/api-docs --output-path=docs/api.md --log-level=ERROR

.PHONY: verify
verify: ## Fail unless every generated file is what its sources give, and the next release would work.
	hack/verify-generated
	hack/verify-families
	hack/verify-release

.PHONY: fmt
fmt: $(BIN)/golangci-lint ## Format all Go code.
	for module in $(GO_MODULES); do (cd $$module && $(BIN)/golangci-lint fmt --config $(CURDIR)/.golangci.yml); done

.PHONY: vet
vet: ## Run go vet.
	for module in $(GO_MODULES); do go -C $$module vet ./...; done

.PHONY: lint
lint: $(BIN)/golangci-lint ## Run the linters and check the format.
	for module in $(GO_MODULES); do (cd $$module && $(BIN)/golangci-lint run --allow-serial-runners --config $(CURDIR)/.golangci.yml ./...); done

.PHONY: lint-fix
lint-fix: $(BIN)/golangci-lint ## Let the linters mend what they can.
	for module in $(GO_MODULES); do (cd $$module && $(BIN)/golangci-lint run --fix --allow-serial-runners --config $(CURDIR)/.golangci.yml ./...); done

##@ Build

GO_BUILD := go build -buildvcs=false -ldflags='-s -w -X main.version=v$(VERSION)'

.PHONY: build
build: ## Build the operator for this machine into bin/manager.
	$(GO_BUILD) -o $(BIN)/manager ./cmd

.PHONY: run
run: ## Run the operator on this machine against the cluster of KUBECONFIG (make install first).
	POD_NAMESPACE=$${POD_NAMESPACE:-default} go run ./cmd --leader-elect=false --metrics-bind-address=0 $(ARGS)

# ARCH is the architecture of the image that is built without Docker.
ARCH ?= $(shell go env GOARCH)
IMAGE_BUILD := go run -C test/cluster/components/image . build

.PHONY: image
image: ## Build the operator's image without Docker, and list what is in it: dist/images/berg-operator.tar, .cdx.json.
	mkdir -p $(DIST)/images $(DIST)/linux-$(ARCH)
	GOOS=linux GOARCH=$(ARCH) $(GO_BUILD) -o $(DIST)/linux-$(ARCH)/manager ./cmd
	$(IMAGE_BUILD) --ref $(IMG) --output $(DIST)/images/berg-operator.tar --platform linux/$(ARCH) \
		--user 65532:65532 --entrypoint /manager $(DIST)/linux-$(ARCH)/manager:/manager:0555
	go run -C tools/sbom . --name berg-operator --version v$(VERSION) \
		--output $(DIST)/images/berg-operator.cdx.json $(DIST)/linux-$(ARCH)/manager

.PHONY: images
images: ## Build the images of samples and tests without Docker: dist/images/*.tar.
	go run ./test/images --output $(DIST)/images

.PHONY: docker-build
docker-build: ## Build the operator's image with CONTAINER_TOOL (docker or podman).
	$(CONTAINER_TOOL) build --build-arg VERSION=v$(VERSION) -t $(IMG) .

.PHONY: docker-push
docker-push: ## Push the operator's image.
	$(CONTAINER_TOOL) push $(IMG)

.PHONY: docker-buildx
docker-buildx: ## Build and push the operator's image for all PLATFORMS.
	$(CONTAINER_TOOL) buildx build --platform $(PLATFORMS) --build-arg VERSION=v$(VERSION) --push -t $(IMG) .

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

# ARGS go to the program, for example ARGS='--scenarios burst-100 --rounds 1'.
.PHONY: load
load: build ## Measure the operator against a bare client: all takes more than an hour, ARGS='--scenarios burst-100' minutes.
	hack/with-cluster --profile simulated --name $(TEST_CLUSTER)-load --audit -- go run ./test/load $(ARGS)

.PHONY: load-pods
load-pods: build ## Measure what the operator adds to the start of real pods; needs root.
	go run ./test/images --output $(DIST)/images web
	hack/with-cluster --profile node --name $(TEST_CLUSTER)-load --audit -- \
		$(MAKE) load-pods-run ARGS='$(ARGS)'

.PHONY: load-pods-run
load-pods-run:
	go run ./test/cluster load --name $(TEST_CLUSTER)-load $(DIST)/images/web.tar
	go run ./test/load --scenarios pods --image ghcr.io/bergctf/samples/web:v$(VERSION) $(ARGS)

.PHONY: load-smoke
load-smoke: ## Count what an instance costs the API server in requests.
	$(MAKE) load ARGS='--scenarios smoke --check --compare= --out $(DIST)/load-smoke'

# The seed that a failed run prints brings the same lives and faults again.
SEED  ?= 0
LIVES ?= 60
STORM ?= 75s

.PHONY: chaos
chaos: build ## Let LIVES=60 instances live while all fails for STORM=75s; SEED repeats a run.
	hack/with-cluster --profile simulated --name $(TEST_CLUSTER)-chaos -- \
		go run ./test/chaos --seed $(SEED) --lives $(LIVES) --storm $(STORM) --logs $(DIST)/chaos

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
		$(GO_TEST) -v -count=1 -timeout 2h ./test/integration -ginkgo.v -ginkgo.focus='instances that run, while time goes by'

PRESSURE ?= 1000

.PHONY: pressure
pressure: ## One instance that always fails among PRESSURE=1000 good ones, as many namespaces that are held, a full etcd, a throttled operator.
	hack/with-cluster --profile simulated --name $(TEST_CLUSTER)-press -- \
		env PRESSURE=$(PRESSURE) $(GO_TEST) -v -count=1 -timeout 3h ./test/integration -ginkgo.v -ginkgo.focus='Pressure'

CROWD ?= 500

.PHONY: crowd
crowd: ## Create CROWD=500 Environments at once, and tell how much longer it takes than their writes alone.
	hack/with-cluster --profile simulated --name $(TEST_CLUSTER)-crowd -- \
		env CROWD=$(CROWD) $(GO_TEST) -v -count=1 -timeout 2h ./test/integration -ginkgo.v -ginkgo.focus='A crowd of environments'

.PHONY: e2e
e2e: image images ## Run the journeys on real pods; needs root.
	hack/with-cluster --profile node --name $(E2E_CLUSTER) --audit -- bash -c \
		'$(MAKE) e2e-run E2E_CLUSTER=$(E2E_CLUSTER) && go run ./test/rights --collect $(DIST)/rights/e2e.json'

# Which journeys run: those on a real data plane need Cilium and a Gateway.
E2E_LABELS ?= !network

# What the Gateway of config/berg/samples/prerequisites wants the operator to be told.
SAMPLE_GATEWAY_PORTS := CHALLENGE_HTTP_PORT=443 CHALLENGE_TLS_PORT=8443

# The part of e2e that runs while the cluster is up.
.PHONY: e2e-run
e2e-run:
	go run ./test/cluster load --name $(E2E_CLUSTER) $(DIST)/images/*.tar
	$(MAKE) deploy
	$(GO_TEST) -count=1 -timeout 40m ./test/e2e -ginkgo.label-filter='$(E2E_LABELS)'

.PHONY: e2e-network
e2e-network: image images ## Attack instances, and visit them, on a real data plane; needs root.
	hack/packages node network resolvers
	go run ./test/images --output $(DIST)/images resolvers
	hack/with-cluster --profile network --name $(NETWORK_CLUSTER) -- \
		$(MAKE) e2e-run E2E_CLUSTER=$(NETWORK_CLUSTER) E2E_LABELS='network || isolation' TESTARGS='$(TESTARGS) -v' \
			SETTINGS='$(SAMPLE_GATEWAY_PORTS)'

# Former releases of the same tree for test/olm: the first two are installed and
# upgraded, the third is offered only to be skipped.
OLM_RELEASES := 0.0.7 0.0.8 0.0.9

.PHONY: e2e-olm
e2e-olm: test-releases ## Install, upgrade and remove the operator with a real OLM; needs root.
	go run ./test/images --output $(DIST)/images toolbox
	go test -C test/cluster/components/olm $(TESTARGS) ./...
	hack/with-cluster --profile olm --name $(OLM_CLUSTER) -- \
		$(MAKE) e2e-olm-run OLM_CLUSTER=$(OLM_CLUSTER)

# The part of e2e-olm that runs while the cluster is up.
.PHONY: e2e-olm-run
e2e-olm-run:
	go run ./test/cluster load --name $(OLM_CLUSTER) $(DIST)/images/toolbox.tar $(DIST)/olm/*.tar
	RELEASES='$(wordlist 1,2,$(OLM_RELEASES)) $(VERSION)' $(GO_TEST) -count=1 -timeout 30m ./test/olm/...
	$(MAKE) -o test-releases run-bundle NAME=$(OLM_CLUSTER) BUNDLE_VERSION=$(word 2,$(OLM_RELEASES))
	$(MAKE) -o test-releases run-bundle-upgrade NAME=$(OLM_CLUSTER)
	$(MAKE) scorecard NAME=$(OLM_CLUSTER)
	$(MAKE) cleanup-bundle NAME=$(OLM_CLUSTER)

.PHONY: test-releases
test-releases:
	go build -C test/cluster/components/image -o $(BIN)/image .
	IMAGE=$(BIN)/image hack/test-releases $(DIST)/olm $(VERSION) $(OLM_RELEASES)

##@ Clusters and demo

PROFILE ?= simulated
NAME    ?= berg

.PHONY: cluster-up
cluster-up: ## Start a cluster: PROFILE=simulated (no root), node, olm or network (root), NAME=berg.
	go run ./test/cluster up --profile $(PROFILE) --name $(NAME)

.PHONY: cluster-down
cluster-down: ## Remove the cluster NAME.
	go run ./test/cluster down --name $(NAME)

.PHONY: cluster-status
cluster-status: ## Show how the cluster NAME is.
	go run ./test/cluster status --name $(NAME)

.PHONY: demo
demo: ## From nothing to running challenges, step by step. ARGS go to the demo.
	go run ./test/demo $(ARGS)

.PHONY: demo-down
demo-down: ## Remove what the demo made.
	go run ./test/demo down

##@ Deployment, on the cluster of KUBECONFIG

# The cluster runner's own kubectl serves where none is installed.
KUBECTL ?= $(shell command -v kubectl || echo "$$(go run ./test/cluster bin)/kubectl")
KUBECTL_APPLY = $(KUBECTL) apply --server-side --force-conflicts

# A copy of config/ that names IMG: the tracked files stay as they are.
.PHONY: rendered-config
rendered-config: $(BIN)/kustomize
	@rm -rf $(DIST)/config && mkdir -p $(DIST) && cp -r config $(DIST)/config
	@cd $(DIST)/config/manager && $(BIN)/kustomize edit set image controller=$(IMG)

.PHONY: install
install: ## Install the CRDs.
	$(KUBECTL_APPLY) $(addprefix -f ,$(wildcard config/*/crd/bases))

.PHONY: uninstall
uninstall: end-instances ## End all instances and environments, remove the CRDs and every Challenge.
	$(KUBECTL) delete --ignore-not-found $(addprefix -f ,$(wildcard config/*/crd/bases))

.PHONY: deploy
deploy: rendered-config ## Install CRDs and operator (IMG), with SETTINGS='NAME=value ...', and wait until it works.
	$(BIN)/kustomize build $(DIST)/config/default | $(KUBECTL_APPLY) -f -
	$(if $(SETTINGS),$(KUBECTL) -n berg-operator-system set env deployment/berg-operator-controller-manager $(SETTINGS))
	$(KUBECTL) -n berg-operator-system rollout status deployment/berg-operator-controller-manager --timeout=180s

.PHONY: undeploy
undeploy: rendered-config end-instances ## End all instances and environments, remove operator and CRDs.
	$(BIN)/kustomize build $(DIST)/config/default | $(KUBECTL) delete --ignore-not-found -f -

# While the operator still runs: afterwards nothing would take the finalizers off.
.PHONY: end-instances
end-instances:
	@for kind in challengeinstances.berg.norelect.ch environments.quix.io; do \
		if $(KUBECTL) get customresourcedefinition $$kind --ignore-not-found -o name | grep -q .; then \
			$(KUBECTL) delete $$kind --all --all-namespaces --timeout=180s || { \
				echo "make: some $$kind do not end: is the operator running? Start it with 'make deploy' and try again" >&2; exit 1; }; \
		fi; \
	done

.PHONY: build-installer
build-installer: rendered-config ## Write everything to install into one file: dist/install.yaml.
	$(BIN)/kustomize build $(DIST)/config/default >$(DIST)/install.yaml

##@ Packaging for the Operator Lifecycle Manager

.PHONY: bundle
bundle: generate manifests rendered-config $(BIN)/operator-sdk ## Generate bundle/ and bundle.Dockerfile, and validate them.
	BIN=$(BIN) CONFIG=$(DIST)/config hack/generate-bundle $(VERSION) $(CHANNELS) $(DEFAULT_CHANNEL)

.PHONY: catalog
catalog: $(BIN)/opm ## Render catalog/ from its template and bundle/, and validate it.
	BIN=$(BIN) hack/generate-catalog $(VERSION) $(BUNDLE_IMG)

.PHONY: release
release: ## Make the tree that of the next version: VERSION=0.2.0, after the present one was published.
	go run ./hack/release $(VERSION)
	$(MAKE) manifests bundle catalog api-docs

.PHONY: bundle-build
bundle-build: ## Build the bundle's image without Docker: dist/images/berg-operator-bundle.tar.
	mkdir -p $(DIST)/images
	$(IMAGE_BUILD) --ref $(BUNDLE_IMG) --output $(DIST)/images/berg-operator-bundle.tar --platform linux/$(ARCH) \
		$$(sed -n 's/^LABEL /--label /p' bundle.Dockerfile) \
		$(CURDIR)/bundle/manifests:/manifests $(CURDIR)/bundle/metadata:/metadata $(CURDIR)/bundle/tests/scorecard:/tests/scorecard

.PHONY: catalog-build
catalog-build: ## Build the catalog's image without Docker: dist/images/berg-operator-catalog.tar.
	mkdir -p $(DIST)/images
	$(IMAGE_BUILD) --ref $(CATALOG_IMG) --output $(DIST)/images/berg-operator-catalog.tar --platform linux/$(ARCH) \
		$$(sed -n 's/^LABEL /--label /p' catalog.Dockerfile) \
		$(CURDIR)/catalog/berg-operator:/configs/berg-operator

.PHONY: scorecard-build
scorecard-build: ## Build the image of our own scorecard test: dist/images/berg-operator-scorecard.tar.
	mkdir -p $(DIST)/images
	GOOS=linux GOARCH=$(ARCH) $(GO_BUILD) -o $(DIST)/linux-$(ARCH)/scorecard ./test/scorecard
	$(IMAGE_BUILD) --ref $(SCORECARD_IMG) --output $(DIST)/images/berg-operator-scorecard.tar --platform linux/$(ARCH) \
		--user 65532:65532 --entrypoint /scorecard $(DIST)/linux-$(ARCH)/scorecard:/scorecard:0555

.PHONY: bundle-push
bundle-push: ## Build and push the bundle's image for all PLATFORMS with CONTAINER_TOOL.
	$(CONTAINER_TOOL) buildx build --platform $(PLATFORMS) --push -f bundle.Dockerfile -t $(BUNDLE_IMG) .

.PHONY: scorecard-push
scorecard-push: ## Build and push the image of our own scorecard test for all PLATFORMS with CONTAINER_TOOL.
	$(CONTAINER_TOOL) buildx build --platform $(PLATFORMS) --push -f scorecard.Dockerfile -t $(SCORECARD_IMG) .

.PHONY: catalog-push
catalog-push: ## Build and push the catalog's image for all PLATFORMS with CONTAINER_TOOL.
	$(CONTAINER_TOOL) buildx build --platform $(PLATFORMS) --push -f catalog.Dockerfile -t $(CATALOG_IMG) .

##@ operator-sdk, on the cluster NAME of PROFILE=olm

BUNDLE_NAMESPACE := berg-operator-system
# BUNDLE_VERSION is $(VERSION) or one of $(OLM_RELEASES).
BUNDLE_VERSION ?= $(VERSION)
BUNDLE = $(IMAGE_TAG_BASE)-bundle:v$(BUNDLE_VERSION)
OPERATOR_SDK = BIN=$(BIN) hack/operator-sdk $(NAME)
CLUSTER_KUBECTL = go run ./test/cluster kubectl --name $(NAME)

.PHONY: run-bundle
run-bundle: $(BIN)/operator-sdk load-bundle ## Install the operator with operator-sdk: BUNDLE_VERSION=0.0.8 a former version.
	$(CLUSTER_KUBECTL) create namespace $(BUNDLE_NAMESPACE) --dry-run=client -o yaml | $(CLUSTER_KUBECTL) apply -f -
	$(OPERATOR_SDK) run bundle @$(BUNDLE) --namespace $(BUNDLE_NAMESPACE) --timeout 5m \
		--index-image @$(OPM_IMG) --decompression-image @$(BUSYBOX_IMG) --image-pull-policy IfNotPresent

.PHONY: run-bundle-upgrade
run-bundle-upgrade: $(BIN)/operator-sdk load-bundle ## Upgrade what run-bundle has installed.
	$(OPERATOR_SDK) run bundle-upgrade @$(BUNDLE) --namespace $(BUNDLE_NAMESPACE) --timeout 5m --image-pull-policy IfNotPresent

.PHONY: cleanup-bundle
cleanup-bundle: $(BIN)/operator-sdk ## Remove what run-bundle has installed, and the CRDs with every Challenge.
	$(MAKE) end-instances KUBECTL='$(CLUSTER_KUBECTL)'
	$(OPERATOR_SDK) cleanup berg-operator --namespace $(BUNDLE_NAMESPACE) --delete-all --timeout 5m
	$(CLUSTER_KUBECTL) delete namespace $(BUNDLE_NAMESPACE) --ignore-not-found
	$(CLUSTER_KUBECTL) delete clusterroles,priorityclasses --selector app.kubernetes.io/name=berg-operator
	$(CLUSTER_KUBECTL) delete operators.operators.coreos.com berg-operator.$(BUNDLE_NAMESPACE) --ignore-not-found

.PHONY: scorecard
scorecard: $(BIN)/operator-sdk scorecard-build sdk-scorecard-build ## Run the tests of the bundle in pods; the operator must be installed.
	go run ./test/images --output $(DIST)/images $(SAMPLES)
	go run ./test/cluster load --name $(NAME) $(DIST)/images/berg-operator-scorecard.tar $(DIST)/images/sdk-scorecard.tar \
		$(SAMPLES:%=$(DIST)/images/%.tar)
	$(CLUSTER_KUBECTL) create namespace berg-scorecard --dry-run=client -o yaml | $(CLUSTER_KUBECTL) apply -f -
	$(CLUSTER_KUBECTL) apply -k $(CURDIR)/config/scorecard/rbac
	$(OPERATOR_SDK) scorecard $(CURDIR)/bundle --namespace berg-scorecard --service-account scorecard --wait-time 8m \
		--pod-security restricted --untar-image $(BUSYBOX_IMG) --storage-image $(BUSYBOX_IMG) | \
		awk '/^\tLog:/ { noise = 1 } /^-----/ { noise = 0 } !noise' # without the definitions, printed whole
	$(CLUSTER_KUBECTL) delete -k $(CURDIR)/config/scorecard/rbac
	$(CLUSTER_KUBECTL) delete namespace berg-scorecard

# Images of the challenges that the examples of the bundle run.
SAMPLES := pwn shop-bot shop-database shop-web web

# The image that bundle/tests/scorecard names for the tests of operator-sdk itself.
.PHONY: sdk-scorecard-build
sdk-scorecard-build:
	GOOS=linux GOARCH=$(ARCH) go build -C tools/operator-sdk -tags=containers_image_openpgp -ldflags='-s -w' \
		-o $(DIST)/linux-$(ARCH)/scorecard-test github.com/operator-framework/operator-sdk/images/scorecard-test
	$(IMAGE_BUILD) --ref quay.io/operator-framework/scorecard-test:$(OPERATOR_SDK_VERSION) --platform linux/$(ARCH) \
		--output $(DIST)/images/sdk-scorecard.tar $(DIST)/linux-$(ARCH)/scorecard-test:/usr/local/bin/scorecard-test:0555

.PHONY: load-bundle
load-bundle: test-releases
	go run ./test/cluster load --name $(NAME) $(DIST)/olm/operator-$(BUNDLE_VERSION).tar $(DIST)/olm/bundle-$(BUNDLE_VERSION).tar

##@ Tools

.PHONY: tools
tools: $(BIN)/controller-gen $(BIN)/kustomize $(BIN)/golangci-lint $(BIN)/crd-ref-docs $(BIN)/operator-sdk $(BIN)/opm ## Build all pinned tools into bin/.

# go tool builds too, but links anew at each call: minutes for the larger ones.
$(BIN)/controller-gen: tools/go.mod tools/go.sum
	go build -C tools -ldflags='-s -w' -o $@ sigs.k8s.io/controller-tools/cmd/controller-gen

$(BIN)/kustomize: tools/go.mod tools/go.sum
	go build -C tools -ldflags='-s -w' -o $@ sigs.k8s.io/kustomize/kustomize/v5

$(BIN)/golangci-lint: tools/go.mod tools/go.sum
	go build -C tools -ldflags='-s -w' -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

$(BIN)/crd-ref-docs: tools/go.mod tools/go.sum
	go build -C tools -ldflags='-s -w' -o $@ github.com/elastic/crd-ref-docs

# The generated bundle names the version that the linker sets here.
OPERATOR_SDK_VERSION = $(shell go list -C tools/operator-sdk -m -f '{{.Version}}' github.com/operator-framework/operator-sdk)
OPERATOR_SDK_VAR := -X github.com/operator-framework/operator-sdk/internal/version.

$(BIN)/operator-sdk: tools/operator-sdk/go.mod tools/operator-sdk/go.sum
	version=$(OPERATOR_SDK_VERSION); go build -C tools/operator-sdk -tags=containers_image_openpgp -o $@ \
		-ldflags="-s -w $(OPERATOR_SDK_VAR)Version=$$version $(OPERATOR_SDK_VAR)ImageVersion=$$version $(OPERATOR_SDK_VAR)GitVersion=$$version $(OPERATOR_SDK_VAR)KubernetesVersion=$(OPERATOR_SDK_KUBERNETES_VERSION)" \
		github.com/operator-framework/operator-sdk/cmd/operator-sdk

$(BIN)/opm: tools/opm/go.mod tools/opm/go.sum
	go build -C tools/opm -tags=json1,containers_image_openpgp -ldflags='-s -w' -o $@ \
		github.com/operator-framework/operator-registry/cmd/opm
