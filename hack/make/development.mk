##@ Development

# Modules with hand-written Go. The others only pin versions.
GO_MODULES := . api test/cluster/components/image test/cluster/components/outside test/cluster/components/gitserver test/conform/monitoring test/conform/dockerfiles test/conform/chart test/conform/gateway test/conform/livepage hack/tools/proto hack/tools/sbom

# A family is a folder of api/ that holds versions, of internal/ and of config/.
FAMILIES := $(sort $(patsubst api/%/,%,$(dir $(wildcard api/*/v[0-9]*))))

# The generators of api/client. They have the version of the client-go that api/go.mod requires.
CLIENT_GENERATORS := $(addprefix $(BIN)/,applyconfiguration-gen client-gen informer-gen lister-gen)

# Protobuf files. Their generated Go is in the same folders.
PROTOS := $(wildcard internal/*/*/*.proto)

.PHONY: generate
generate: $(BIN)/controller-gen $(CLIENT_GENERATORS) ## Generate deep-copy methods and clients from api/, Go from protobuf files, and the copies of the settings in plugin and chart.
	$(BIN)/controller-gen object $(FAMILIES:%=paths=./api/%/...)
	hack/generate-clients $(BIN)
	go run -C hack/tools/proto . --root $(CURDIR) $(PROTOS)
	go run ./hack/settings

# Packages with a folder config/<family>/<package>/rbac have a separate role, which administrators bind
# only if they use the feature.
SEPARATE_ROLES := $(patsubst config/%/rbac/,%,$(wildcard config/*/*/rbac/))

# allowDangerousTypes: staticValue is a number with a fraction in existing Challenges, so the field
# must stay, against the advice of controller-gen.
.PHONY: manifests
manifests: $(BIN)/controller-gen $(BIN)/kustomize ## Generate CRDs and RBAC of each family from markers, set the image names, and generate deploy/.
	for family in $(FAMILIES); do \
		$(BIN)/controller-gen \
			crd:allowDangerousTypes=true rbac:roleName=$$family \
			paths=./api/$$family/... \
			$$(go list ./internal/$$family/... | sed 's|^.*/internal/|paths=./internal/|' | grep -vx $(foreach package,$(SEPARATE_ROLES),-e paths=./internal/$(package))) \
			output:crd:artifacts:config=config/$$family/crd/bases output:rbac:dir=config/$$family/rbac; \
		grep -qx -- "- ../$$family" config/default/kustomization.yaml || \
			(cd config/default && $(BIN)/kustomize edit add component ../$$family); \
		for part in samples prometheus grafana; do \
			[[ ! -e config/$$family/$$part ]] || grep -qx -- "- ../$$family/$$part" config/$$part/kustomization.yaml || \
				(cd config/$$part && $(BIN)/kustomize edit add resource ../$$family/$$part); \
		done; \
	done
	for package in $(SEPARATE_ROLES); do \
		$(BIN)/controller-gen rbac:roleName=$${package/\//-} paths=./internal/$$package output:rbac:dir=config/$$package/rbac; \
	done
	hack/project
	hack/scorecard-role
	cd config/manager && $(BIN)/kustomize edit set image controller=$(IMAGE_TAG_BASE):v$(VERSION)
	cd config/berg/nested && $(BIN)/kustomize edit set image controller=$(IMAGE_TAG_BASE):v$(VERSION)
	cd config/kibaship/pushes && $(BIN)/kustomize edit set image controller=$(IMAGE_TAG_BASE):v$(VERSION)
	cd config/berg/api/program && $(BIN)/kustomize edit set image berg-api=$(API_IMG)
	cd config/gate/program && $(BIN)/kustomize edit set image berg-gate=$(GATE_IMG)
	sed -i 's|image: .*|image: $(SCORECARD_IMG)|' config/scorecard/patches/custom.config.yaml
	sed -i 's|image: .*|image: $(CATALOG_IMG)|' config/olm/*.yaml
	sed -i 's|image: .*|image: $(IMAGE_TAG_BASE):v$(VERSION)|' docs/tunnel/by-hand.yaml
	sed -i 's|/berg-operator/blob/[^/]*/docs/runbooks/|/berg-operator/blob/v$(VERSION)/docs/runbooks/|' config/prometheus/rules.yaml config/*/prometheus/rules.yaml
	sed -i 's|scorecard-test:v.*|scorecard-test:$(OPERATOR_SDK_VERSION)|' config/scorecard/patches/basic.config.yaml config/scorecard/patches/olm.config.yaml

	$(MAKE) chart

# Pages whose commands name the version.
VERSIONED_PAGES := README.md docs/olm.md docs/olm-v1.md docs/registries.md docs/clients.md docs/kubectl-berg.md docs/local-clusters.md docs/tunnel/quickstart.md

CHART := deploy/helm/berg-operator

.PHONY: chart
chart: $(BIN)/kustomize ## Generate deploy/, the files to apply and the parts of the Helm chart without values, from config/ and the settings.
	hack/installers $(VERSION)
	go run ./hack/settings
	sed -Ei 's#^(version: |appVersion: v).*#\1$(VERSION)#; s#(/berg-operator/(blob/)?)v[^/]*/#\1v$(VERSION)/#' $(CHART)/Chart.yaml $(CHART)/README.md
	go run ./hack/schemas --config config --output deploy/schemas
	sed -i 's|/berg-operator/v[^/]*/deploy/|/berg-operator/v$(VERSION)/deploy/|' docs/operations.md
	sed -Ei 's#(kubectl-berg_|/berg-operator:|/berg-operator-catalog:|/berg-operator/api@|/berg-operator/releases/tag/|/berg-operator/releases/download/)v[0-9]+\.[0-9]+\.[0-9]+(-[a-z0-9.]+)?#\1v$(VERSION)#g' $(VERSIONED_PAGES)

.PHONY: outdated
outdated: ## Print the direct dependencies that are behind their newest version. It asks the module proxy.
	hack/outdated $(GO_MODULES)

.PHONY: api-docs
api-docs: $(BIN)/crd-ref-docs ## Generate docs/api.md, the reference of all fields.
	mkdir -p docs
	$(BIN)/crd-ref-docs --source-path=api --config=hack/crd-ref-docs.yaml \
		--renderer=markdown --templates-dir=hack/api-docs --output-path=docs/api.md --log-level=ERROR

.PHONY: verify
verify: verify-generated verify-release ## Check that every generated file matches its sources, and that the next release would work.

.PHONY: verify-generated
verify-generated: ## Check that every generated file matches its sources, that each family can be installed alone, and that operator-sdk scaffolds a Kind.
	hack/verify-generated
	hack/verify-families
	hack/verify-scaffold
	$(MAKE) bundle-all

.PHONY: verify-release
verify-release: ## Check, on a copy of the tree, that the next release would work.
	hack/verify-release

.PHONY: fmt
fmt: $(BIN)/golangci-lint ## Format all Go code.
	for module in $(GO_MODULES); do (cd $$module && $(BIN)/golangci-lint fmt --config $(CURDIR)/.golangci.yml); done

.PHONY: lint
lint: $(BIN)/golangci-lint $(BIN)/actionlint ## Run the linters, also of the workflows, and check the format.
	$(BIN)/actionlint $(wildcard .github/workflows/*.yaml)
	for module in $(GO_MODULES); do (cd $$module && $(BIN)/golangci-lint run --allow-serial-runners --config $(CURDIR)/.golangci.yml ./...); done
