##@ Development

# Where hand-written Go is. The other modules hold pinned versions only.
GO_MODULES := . test/cluster/components/image test/cluster/components/outside test/conform/monitoring test/conform/dockerfiles tools/sbom

.PHONY: generate
generate: $(BIN)/controller-gen ## Generate deep-copy methods from api/.
	$(BIN)/controller-gen object paths=./api/...

# A family is a folder of api/, of internal/ and of config/.
FAMILIES := $(notdir $(wildcard api/*))

# staticValue is a number with a fraction in the Challenges that run today; the
# warning against such fields cannot be followed any more.
.PHONY: manifests
manifests: $(BIN)/controller-gen $(BIN)/kustomize ## Generate CRDs and RBAC of each family from markers, and name the images.
	for family in $(FAMILIES); do \
		$(BIN)/controller-gen \
			crd:allowDangerousTypes=true rbac:roleName=$$family \
			paths=./api/$$family/... paths=./internal/$$family/... \
			output:crd:artifacts:config=config/$$family/crd/bases output:rbac:dir=config/$$family/rbac; \
		grep -qx -- "- ../$$family" config/default/kustomization.yaml || \
			(cd config/default && $(BIN)/kustomize edit add component ../$$family); \
		for part in samples prometheus; do \
			[[ ! -e config/$$family/$$part ]] || grep -qx -- "- ../$$family/$$part" config/$$part/kustomization.yaml || \
				(cd config/$$part && $(BIN)/kustomize edit add resource ../$$family/$$part); \
		done; \
	done
	hack/project
	hack/scorecard-role
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
lint-fix: $(BIN)/golangci-lint ## Let the linters fix what they can.
	for module in $(GO_MODULES); do (cd $$module && $(BIN)/golangci-lint run --fix --allow-serial-runners --config $(CURDIR)/.golangci.yml ./...); done
