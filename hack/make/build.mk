##@ Build

GO_BUILD := go build -buildvcs=false -ldflags='-s -w -X main.version=v$(VERSION)'

.PHONY: build
build: ## Build the operator for this machine into bin/manager.
	$(GO_BUILD) -o $(BIN)/manager ./cmd/berg-operator

.PHONY: tunnel-proxy
tunnel-proxy: ## Build berg-tunnel, both ends of a tunnel, for this machine into bin/berg-tunnel.
	$(GO_BUILD) -o $(BIN)/berg-tunnel ./cmd/berg-tunnel

.PHONY: run
run: ## Run the operator on this machine against the cluster of KUBECONFIG (make install first).
	POD_NAMESPACE=$${POD_NAMESPACE:-default} go run ./cmd/berg-operator --leader-elect=false --metrics-bind-address=0 $(ARGS)

# ARCH is the architecture of the image that is built without Docker.
ARCH ?= $(shell go env GOARCH)
IMAGE_BUILD := go run -C test/cluster/components/image . build

# bill writes the list of what is in an image, and the notices of its licences: $(call bill,berg-api,PROGRAM...).
bill = go run -C hack/tools/sbom . --name $1 --version v$(VERSION) --output $(DIST)/images/$1.cdx.json \
	--notices $(DIST)/linux-$(ARCH)/$1.txt $(addprefix $(DIST)/linux-$(ARCH)/,$2)
# notices is the file of these notices in the image.
notices = $(DIST)/linux-$(ARCH)/$1.txt:/NOTICES.txt:0444

.PHONY: image
image: ## Build the operator's image without Docker, and list what is in it: dist/images/berg-operator.tar, .cdx.json.
	mkdir -p $(DIST)/images $(DIST)/linux-$(ARCH)
	GOOS=linux GOARCH=$(ARCH) $(GO_BUILD) -o $(DIST)/linux-$(ARCH)/manager ./cmd/berg-operator
	GOOS=linux GOARCH=$(ARCH) $(GO_BUILD) -o $(DIST)/linux-$(ARCH)/berg-tunnel ./cmd/berg-tunnel
	$(call bill,berg-operator,manager berg-tunnel)
	$(IMAGE_BUILD) --ref $(IMG) --output $(DIST)/images/berg-operator.tar --platform linux/$(ARCH) \
		--user 65532:65532 --entrypoint /manager $(DIST)/linux-$(ARCH)/manager:/manager:0555 \
		$(DIST)/linux-$(ARCH)/berg-tunnel:/berg-tunnel:0555 $(call notices,berg-operator)

.PHONY: api-image
api-image: ## Build the image of the platform API without Docker, and list what is in it: dist/images/berg-api.tar, .cdx.json.
	mkdir -p $(DIST)/images $(DIST)/linux-$(ARCH)
	GOOS=linux GOARCH=$(ARCH) $(GO_BUILD) -o $(DIST)/linux-$(ARCH)/berg-api ./cmd/berg-api
	$(call bill,berg-api,berg-api)
	$(IMAGE_BUILD) --ref $(API_IMG) --output $(DIST)/images/berg-api.tar --platform linux/$(ARCH) \
		--user 65532:65532 --entrypoint /berg-api $(DIST)/linux-$(ARCH)/berg-api:/berg-api:0555 $(call notices,berg-api)

.PHONY: gate-image
gate-image: ## Build the image of the gate without Docker, and list what is in it: dist/images/berg-gate.tar, .cdx.json.
	mkdir -p $(DIST)/images $(DIST)/linux-$(ARCH)
	GOOS=linux GOARCH=$(ARCH) $(GO_BUILD) -o $(DIST)/linux-$(ARCH)/berg-gate ./cmd/berg-gate
	$(call bill,berg-gate,berg-gate)
	$(IMAGE_BUILD) --ref $(GATE_IMG) --output $(DIST)/images/berg-gate.tar --platform linux/$(ARCH) \
		--user 65532:65532 --entrypoint /berg-gate $(DIST)/linux-$(ARCH)/berg-gate:/berg-gate:0555 $(call notices,berg-gate)

.PHONY: images
images: ## Build the images of samples and tests without Docker: dist/images/*.tar.
	go run $(IMAGES) --output $(DIST)/images

.PHONY: docker-build
docker-build: ## Build the operator's image with CONTAINER_TOOL (docker or podman).
	$(CONTAINER_TOOL) build --build-arg VERSION=v$(VERSION) -t $(IMG) .

.PHONY: docker-buildx
docker-buildx: ## Build and push the operator's image for all PLATFORMS.
	$(CONTAINER_TOOL) buildx build --platform $(PLATFORMS) --build-arg VERSION=v$(VERSION) --push -t $(IMG) .
