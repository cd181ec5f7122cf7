##@ Development

# Where hand-written Go is. The other modules hold pinned versions only.
GO_MODULES := . test/cluster/components/image test/cluster/components/outside test/conform/monitoring test/conform/dockerfiles tools/sbom

.PHONY: generate
generate: $(BIN)/controller-gen ## Generate deep-copy methods from api/.
	$(BIN)/controller-gen object paths=./api/...

# staticValue is a number with a fraction in the Challenges that run today; the
# warning against such fields cannot be heeded any more.
.PHONY: manifests
manifests: $(BIN)/controller-gen $(BIN)/kustomize ## Generate CRDs and RBAC from markers, and name the images.
	$(BIN)/controller-gen \
		crd:allowDangerousTypes=true rbac:roleName=manager-role \
		paths=./api/... paths=./internal/... \
		output:crd:artifacts:config=config/crd/bases output:rbac:dir=config/rbac
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
