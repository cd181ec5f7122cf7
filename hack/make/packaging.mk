##@ Packaging for the Operator Lifecycle Manager and for Helm

.PHONY: bundle
bundle: generate manifests rendered-config $(BIN)/operator-sdk ## Generate bundle/ and deploy/packages/, the bundles of all packages, and validate them.
	BIN=$(BIN) CONFIG=$(DIST)/config hack/generate-bundle $(VERSION) $(CHANNELS) $(DEFAULT_CHANNEL)

# A bundle with every API group, for administrators who want one package: docs/adr/0051-a-package-for-each-api.md. It is not published.
BUNDLE_ALL = $(DIST)/bundle-all/bundle

.PHONY: bundle-all
bundle-all: rendered-config $(BIN)/operator-sdk ## Generate and validate dist/bundle-all, one package with every API group.
	rm -rf $(DIST)/bundle-all && mkdir -p $(DIST)/bundle-all
	go run ./hack/bundle-all >$(DIST)/config/bundle-all/berg-operator-all.clusterserviceversion.yaml
	set -o pipefail; cd $(DIST)/bundle-all && $(BIN)/kustomize build $(DIST)/config/bundle-all | \
		$(BIN)/operator-sdk generate bundle --quiet --overwrite --version $(VERSION) --output-dir $(BUNDLE_ALL) \
			--package berg-operator-all --channels $(CHANNELS) --default-channel $(DEFAULT_CHANNEL)
	go run ./hack/csv $(BUNDLE_ALL)/manifests/berg-operator-all.clusterserviceversion.yaml $$(awk '$$1 == "kind:" {print $$2}' PROJECT)
	$(BIN)/operator-sdk bundle validate $(BUNDLE_ALL) --select-optional suite=operatorframework
	BUNDLE=$(BUNDLE_ALL) go test -count=1 ./test/conform/bundle

.PHONY: catalog
catalog: $(BIN)/opm ## Render catalog/ from its templates and the bundles, and validate it.
	BIN=$(BIN) hack/generate-catalog $(VERSION) $(BUNDLE_IMG) $(PACKAGE_REGISTRY)

# Where bundles and catalogs are taken from: a release has a copy with digests instead of tags.
BUNDLE_TREE ?= $(CURDIR)

# The packages in addition to berg-operator, whose bundle is bundle/.
PACKAGES := $(notdir $(wildcard deploy/packages/*))

.PHONY: bundle-build
bundle-build: $(PACKAGES:%=bundle-build-%) ## Build the images of all bundles without Docker: dist/images/berg-operator-bundle.tar, ….
	mkdir -p $(DIST)/images
	$(IMAGE_BUILD) --ref $(BUNDLE_IMG) --output $(DIST)/images/berg-operator-bundle.tar --platform linux/$(ARCH) \
		$$(sed -n 's/^LABEL /--label /p' bundle.Dockerfile) \
		$(BUNDLE_TREE)/bundle/manifests:/manifests $(BUNDLE_TREE)/bundle/metadata:/metadata $(BUNDLE_TREE)/bundle/tests/scorecard:/tests/scorecard

.PHONY: $(PACKAGES:%=bundle-build-%)
$(PACKAGES:%=bundle-build-%): bundle-build-%:
	mkdir -p $(DIST)/images
	$(IMAGE_BUILD) --ref $(PACKAGE_REGISTRY)/$*-bundle:v$(VERSION) --output $(DIST)/images/$*-bundle.tar --platform linux/$(ARCH) \
		$$(sed -n 's/^LABEL /--label /p' deploy/packages/$*/bundle.Dockerfile) \
		$(addprefix $(BUNDLE_TREE)/deploy/packages/$*/bundle/,manifests:/manifests metadata:/metadata tests/scorecard:/tests/scorecard)

.PHONY: catalog-build
catalog-build: ## Build the catalog's image without Docker: dist/images/berg-operator-catalog.tar.
	mkdir -p $(DIST)/images
	$(IMAGE_BUILD) --ref $(CATALOG_IMG) --output $(DIST)/images/berg-operator-catalog.tar --platform linux/$(ARCH) \
		$$(sed -n 's/^LABEL /--label /p' catalog/Dockerfile) \
		$(foreach package,berg-operator $(PACKAGES),$(BUNDLE_TREE)/catalog/$(package):/configs/$(package))

.PHONY: scorecard-build
scorecard-build: ## Build the image of our own scorecard test: dist/images/berg-operator-scorecard.tar.
	mkdir -p $(DIST)/images
	GOOS=linux GOARCH=$(ARCH) $(GO_BUILD) -o $(DIST)/linux-$(ARCH)/scorecard ./test/scorecard
	$(call bill,berg-operator-scorecard,scorecard)
	$(IMAGE_BUILD) --ref $(SCORECARD_IMG) --output $(DIST)/images/berg-operator-scorecard.tar --platform linux/$(ARCH) \
		--user 65532:65532 --entrypoint /scorecard $(DIST)/linux-$(ARCH)/scorecard:/scorecard:0555 $(call notices,berg-operator-scorecard)

# The layout that the repositories of OperatorHub's community want. What was there of this version
# is replaced, and other versions stay. COMMUNITY is a clone of such a repository.
COMMUNITY ?= $(DIST)/operatorhub

# The package that operatorhub and scorecard are about, and its bundle.
PACKAGE    ?= berg-operator
BUNDLE_DIR = $(if $(filter berg-operator,$(PACKAGE)),bundle,deploy/packages/$(PACKAGE)/bundle)

.PHONY: operatorhub
operatorhub: ## Lay a bundle out for OperatorHub's community, in COMMUNITY=clone of its repository. PACKAGE=hexactf-operator another one.
	rm -rf $(COMMUNITY)/operators/$(PACKAGE)/$(VERSION)
	mkdir -p $(COMMUNITY)/operators/$(PACKAGE)/$(VERSION)
	cp -r $(addprefix $(BUNDLE_TREE)/$(BUNDLE_DIR)/,manifests metadata tests) $(COMMUNITY)/operators/$(PACKAGE)/$(VERSION)/
	[[ -e $(COMMUNITY)/operators/$(PACKAGE)/ci.yaml ]] || cp config/operatorhub/ci.yaml $(COMMUNITY)/operators/$(PACKAGE)/

.PHONY: chart-package
chart-package: $(BIN)/helm ## Pack the Helm chart: dist/berg-operator-VERSION.tgz.
	$(BIN)/helm package deploy/helm/berg-operator --destination $(DIST)
