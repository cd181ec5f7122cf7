##@ Release

.PHONY: next-version
next-version: ## Turn the tree into that of the next version: VERSION=0.2.0, after the present one was published.
	go run ./hack/release $(VERSION)
	$(MAKE) manifests bundle catalog api-docs

# What a release consists of, all in one folder.
RELEASE := $(DIST)/release
# Programs whose image or archive has a list of what is in it, and images that consist of files.
RELEASE_PROGRAMS := berg-operator berg-api berg-operator-scorecard
RELEASE_FILES     = berg-operator-bundle $(PACKAGES:%=%-bundle) berg-operator-catalog

# Each platform in a folder of its own: dist/images has what this machine runs. The same sources and the same Go give the
# same bytes.
.PHONY: release
release: $(BIN)/helm ## Make everything that is published, without Docker and without a network: dist/release, with SHA256SUMS.
	rm -rf $(RELEASE) $(DIST)/plugin && mkdir -p $(RELEASE)
	for platform in $(subst $(comma), ,$(PLATFORMS)); do \
		arch=$${platform#*/} && \
		$(MAKE) image api-image scorecard-build bundle-build catalog-build ARCH=$$arch DIST=$(DIST)/platforms/$$arch && \
		for image in $(RELEASE_PROGRAMS) $(RELEASE_FILES); do \
			cp $(DIST)/platforms/$$arch/images/$$image.tar $(RELEASE)/$$image-$${platform//\//-}.tar || exit; \
		done && \
		for program in $(RELEASE_PROGRAMS); do \
			cp $(DIST)/platforms/$$arch/images/$$program.cdx.json $(RELEASE)/$$program-$${platform//\//-}.cdx.json || exit; \
		done || exit; \
	done
	$(MAKE) plugin-archives
	find $(DIST)/plugin -maxdepth 1 -type f -exec cp {} $(RELEASE)/ \;
	$(BIN)/helm package deploy/helm/berg-operator --destination $(RELEASE)
	cp deploy/*.yaml $(RELEASE)/
	cd $(RELEASE) && sha256sum * >../SHA256SUMS && mv ../SHA256SUMS .
	@echo "make: $$(ls $(RELEASE) | wc -l) files are in $(RELEASE)"

# Go finds the module in api by a tag of its own.
TAGS := v$(VERSION) api/v$(VERSION)

.PHONY: release-tags
release-tags: ## Tag the present commit with VERSION, for this module and the one in api, and print how to push both.
	@git diff --quiet HEAD || { echo "make: commit your changes first: the tags name a commit" >&2; exit 1; }
	for tag in $(TAGS); do git tag --annotate --message="$$tag" "$$tag"; done
	@echo "make: publish them together: git push --atomic origin $(TAGS)"

# Where charts are published: an OCI registry.
CHART_REGISTRY ?= $(PACKAGE_REGISTRY)/charts

.PHONY: chart-push
chart-push: $(BIN)/helm ## Push the chart that release has packed to CHART_REGISTRY.
	$(BIN)/helm push $(RELEASE)/berg-operator-$(VERSION).tgz oci://$(CHART_REGISTRY)

.PHONY: published-images
published-images: ## Print everything that is pushed to a registry, for signatures.
	@printf '%s\n' $(IMG) $(API_IMG) $(SCORECARD_IMG) $(CATALOG_IMG) $(BUNDLE_IMG) \
		$(PACKAGES:%=$(PACKAGE_REGISTRY)/%-bundle:v$(VERSION)) $(CHART_REGISTRY)/berg-operator:$(VERSION)
