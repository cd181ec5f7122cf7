##@ Release

.PHONY: next-version
next-version: ## Turn the tree into that of the next version: VERSION=0.2.0, after the present one was published.
	go run ./hack/release $(VERSION)
	$(MAKE) manifests bundle catalog api-docs

# What a release consists of, all in one folder.
RELEASE := $(DIST)/release
# The files that name images, with digests instead of tags.
PINNED := $(DIST)/pinned
# Programs whose image or archive has a list of what is in it, and images that consist of files.
RELEASE_PROGRAMS := berg-operator berg-api berg-gate berg-operator-scorecard
RELEASE_BUNDLES   = berg-operator-bundle $(PACKAGES:%=%-bundle)
RELEASE_IMAGES    = $(RELEASE_PROGRAMS) $(RELEASE_BUNDLES) berg-operator-catalog

# The name of an image of a release: $(call reference,berg-api).
reference = $(or $(REFERENCE_$1),$(PACKAGE_REGISTRY)/$1:v$(VERSION))
REFERENCE_berg-operator           := $(IMG)
REFERENCE_berg-api                := $(API_IMG)
REFERENCE_berg-gate               := $(GATE_IMG)
REFERENCE_berg-operator-scorecard := $(SCORECARD_IMG)
REFERENCE_berg-operator-bundle    := $(BUNDLE_IMG)
REFERENCE_berg-operator-catalog   := $(CATALOG_IMG)

# index prints an image of all platforms and its digest: $(call index,berg-api,options).
index = $(IMAGE_BUILD:build=index) --ref $(call reference,$1) $2 $(foreach platform,$(subst $(comma), ,$(PLATFORMS)),$(RELEASE)/$1-$(subst /,-,$(platform)).tar)

# each_platform calls make with TARGETS for each platform, and puts the IMAGES into the release: $(call each_platform,TARGETS,IMAGES).
define each_platform
	for platform in $(subst $(comma), ,$(PLATFORMS)); do \
		arch=$${platform#*/} && $(MAKE) $1 ARCH=$$arch DIST=$(DIST)/platforms/$$arch BUNDLE_TREE=$(PINNED) && \
		for image in $2; do cp $(DIST)/platforms/$$arch/images/$$image.tar $(RELEASE)/$$image-$${platform//\//-}.tar || exit; done || exit; \
	done
endef

# A file with the digests of images of others, which the bundles name: an image with its tag, a space, and sha256:….
# Without it these images keep their tags.
IMAGE_DIGESTS ?=

# Each platform in a folder of its own: dist/images has what this machine runs. The same sources and the same Go give the
# same bytes, and so the digests by which manifests, chart and bundles name the images are known before these are pushed.
.PHONY: release
release: $(BIN)/helm $(BIN)/operator-sdk ## Make everything that is published, without Docker and without a login: dist/release, with SHA256SUMS.
	rm -rf $(RELEASE) $(PINNED) $(DIST)/plugin && mkdir -p $(RELEASE) $(PINNED)
	$(call each_platform,image api-image gate-image scorecard-build,$(RELEASE_PROGRAMS))
	for platform in $(subst $(comma), ,$(PLATFORMS)); do \
		for program in $(RELEASE_PROGRAMS); do \
			cp $(DIST)/platforms/$${platform#*/}/images/$$program.cdx.json $(RELEASE)/$$program-$${platform//\//-}.cdx.json || exit; \
		done || exit; \
	done
	cp -r bundle catalog deploy $(PINNED)/
	{ $(foreach image,$(RELEASE_PROGRAMS),$(call index,$(image)) &&) true; } >$(PINNED)/programs.txt
	cat $(PINNED)/programs.txt $(IMAGE_DIGESTS) >$(PINNED)/digests.txt
	go run ./hack/pin $(PINNED)/digests.txt $(PINNED)
	for bundle in $(PINNED)/bundle $(PINNED)/deploy/packages/*/bundle; do \
		$(BIN)/operator-sdk bundle validate $$bundle --select-optional suite=operatorframework || exit; \
	done
	$(call each_platform,bundle-build,$(RELEASE_BUNDLES))
	{ $(foreach image,$(RELEASE_BUNDLES),$(call index,$(image)) &&) true; } >$(PINNED)/bundles.txt
	go run ./hack/pin $(PINNED)/bundles.txt $(PINNED)/catalog
	$(call each_platform,catalog-build,berg-operator-catalog)
	{ cat $(PINNED)/programs.txt $(PINNED)/bundles.txt && $(call index,berg-operator-catalog); } >$(RELEASE)/digests.txt
	$(MAKE) plugin-archives
	find $(DIST)/plugin -maxdepth 1 -type f -exec cp {} $(RELEASE)/ \;
	$(MAKE) docs-site
	tar --create --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --directory=$(DIST) docs-site | gzip --no-name >$(RELEASE)/docs-site-$(VERSION).tar.gz
	$(BIN)/helm package $(PINNED)/deploy/helm/berg-operator --destination $(RELEASE)
	cp $(PINNED)/deploy/*.yaml $(RELEASE)/
	cp config/olm/install.yaml $(RELEASE)/olm-berg-operator.yaml
	for package in $(PACKAGES); do cp config/olm/$$package.yaml $(RELEASE)/olm-$$package.yaml || exit; done
	for file in config/olm/v1/*.yaml; do cp $$file $(RELEASE)/olm-v1-$${file##*/} || exit; done
	cd $(RELEASE) && sha256sum * >../SHA256SUMS && mv ../SHA256SUMS .
	@echo "make: $$(ls $(RELEASE) | wc -l) files are in $(RELEASE)"

# Go finds the module in api by a tag of its own.
TAGS := v$(VERSION) api/v$(VERSION)

.PHONY: release-tags
release-tags: ## Tag the present commit with VERSION, for this module and the one in api, and print how to push both.
	@git diff --quiet HEAD || { echo "make: commit your changes first: the tags name a commit" >&2; exit 1; }
	for tag in $(TAGS); do git tag --annotate --message="$$tag" "$$tag"; done
	@echo "make: publish them together: git push --atomic origin $(TAGS)"

# A private key of cosign, whose password is in COSIGN_PASSWORD. Empty: the identity of the build service signs.
KEY ?=

.PHONY: signing-key
signing-key: $(BIN)/cosign ## Make a key that signs releases: cosign.key and cosign.pub.
	$(BIN)/cosign generate-key-pair

.PHONY: sign
sign: $(BIN)/cosign ## Sign the files of the release, and state how they were made: KEY=cosign.key, without a network.
	git diff --quiet HEAD || { echo "make: commit first: the signed statement names the commit" >&2; exit 1; }
	hack/sign files $(RELEASE) $(KEY)

.PHONY: sign-images
sign-images: $(BIN)/cosign ## Sign the images and the chart that publish has pushed, and attach the lists of what is in them: KEY=cosign.key.
	cat $(RELEASE)/digests.txt $(DIST)/chart-digest.txt | hack/sign images $(RELEASE) $(KEY)

.PHONY: verify-signatures
verify-signatures: $(BIN)/cosign ## Check that what sign and sign-images sign is found right by cosign, and other content wrong.
	hack/verify-signatures

.PHONY: foreign-images
foreign-images: ## Print the images of others that the bundles name, for IMAGE_DIGESTS.
	@sed -n '/^  relatedImages:/,/^  [a-z]*:$$/ s/^  - image: //p' bundle/manifests/*.clusterserviceversion.yaml deploy/packages/*/bundle/manifests/*.clusterserviceversion.yaml | \
		grep -vxF $(foreach program,$(RELEASE_PROGRAMS),-e '$(call reference,$(program))') | sort -u

.PHONY: publish
publish: chart-push ## Push the images and the chart of the release, with the login of docker and of helm.
	$(foreach image,$(RELEASE_IMAGES),$(call index,$(image),--push) &&) true

# Where charts are published: an OCI registry.
CHART_REGISTRY ?= $(PACKAGE_REGISTRY)/charts

.PHONY: chart-push
chart-push: $(BIN)/helm ## Push the chart that release has packed to CHART_REGISTRY.
	$(BIN)/helm push $(RELEASE)/berg-operator-$(VERSION).tgz oci://$(CHART_REGISTRY) 2>&1 | tee $(DIST)/chart.log
	awk '/^Pushed:/ { name = $$2 } /^Digest:/ { print name, $$2 }' $(DIST)/chart.log >$(DIST)/chart-digest.txt
