##@ Journeys on real pods, as root

.PHONY: e2e
e2e: image images ## Run the journeys on real pods; needs root.
	rm -f $(DIST)/rights/e2e.json
	hack/with-cluster --profile node --name $(E2E_CLUSTER) --audit -- bash -c \
		'$(MAKE) e2e-run E2E_CLUSTER=$(E2E_CLUSTER) && go run $(RIGHTS) --collect $(DIST)/rights/e2e.json'

# Which journeys run: those on a real data plane need Cilium and a Gateway, and that of health takes its time.
E2E_LABELS  ?= !network && !health
E2E_TIMEOUT ?= 40m

# What the Gateway of config/berg/samples/prerequisites wants the operator to be told.
SAMPLE_GATEWAY_PORTS := CHALLENGE_HTTP_PORT=443 CHALLENGE_TLS_PORT=8443

# The part of e2e that runs while the cluster is up.
.PHONY: e2e-run
e2e-run:
	go run $(CLUSTER) load --name $(E2E_CLUSTER) $(DIST)/images/*.tar
	$(MAKE) deploy
	$(GO_TEST) -count=1 -timeout $(E2E_TIMEOUT) -p 1 $(JOURNEYS) -ginkgo.timeout=$(E2E_TIMEOUT) -ginkgo.label-filter='$(E2E_LABELS)'

.PHONY: e2e-network
e2e-network: image images tunnel-image ## Attack instances, and visit them, on a real data plane; needs root.
	hack/packages node network resolvers browser kafka
	go run $(IMAGES) --output $(DIST)/images resolvers
	hack/with-cluster --profile network --name $(NETWORK_CLUSTER) -- \
		$(MAKE) e2e-network-run TESTARGS='$(TESTARGS) -v' SETTINGS='$(SAMPLE_GATEWAY_PORTS)'

# The part of e2e-network that runs while the cluster is up. That of tunnels comes last: it lets
# pods of the operator's namespace use the network of the node.
.PHONY: e2e-network-run
e2e-network-run:
	$(MAKE) e2e-run E2E_CLUSTER=$(NETWORK_CLUSTER) E2E_LABELS='network || isolation'
	$(MAKE) e2e-hexactf-run HEXACTF_CLUSTER=$(NETWORK_CLUSTER) HEXACTF_LABELS=network
	$(MAKE) e2e-tunnel-run TUNNEL_CLUSTER=$(NETWORK_CLUSTER) TUNNEL_LABELS=network

# The broker is started beside the node by the journeys themselves.
.PHONY: e2e-hexactf
e2e-hexactf: image test-kafka ## Run the journeys of HexaCTF challenges with a real Kafka; needs root.
	go run $(IMAGES) --output $(DIST)/images web toolbox
	hack/with-cluster --profile node --name $(HEXACTF_CLUSTER) -- $(MAKE) e2e-hexactf-run HEXACTF_CLUSTER=$(HEXACTF_CLUSTER)

# Those of network need policies that are enforced.
HEXACTF_LABELS ?= !network

# The part of e2e-hexactf that runs while the cluster is up.
.PHONY: e2e-hexactf-run
e2e-hexactf-run:
	go run $(CLUSTER) load --name $(HEXACTF_CLUSTER) $(DIST)/images/berg-operator.tar $(DIST)/images/web.tar $(DIST)/images/toolbox.tar
	$(MAKE) deploy
	$(GO_TEST) -count=1 -timeout 40m $(HEXACTF) -ginkgo.label-filter='$(HEXACTF_LABELS)'

# Images of its own, so that it may run beside other journeys.
e2e-helm e2e-helm-run: DIST := $(DIST)/helm

.PHONY: e2e-helm
e2e-helm: image $(BIN)/helm ## Install, upgrade, roll back and remove the operator with a real Helm, and by one file; needs root.
	go run $(IMAGES) --output $(DIST)/images toolbox
	hack/with-cluster --profile node --name $(HELM_CLUSTER) -- $(MAKE) e2e-helm-run HELM_CLUSTER=$(HELM_CLUSTER)

# The part of e2e-helm that runs while the cluster is up.
.PHONY: e2e-helm-run
e2e-helm-run:
	go run $(CLUSTER) load --name $(HELM_CLUSTER) $(DIST)/images/berg-operator.tar $(DIST)/images/toolbox.tar
	HELM=$(BIN)/helm $(GO_TEST) -count=1 -timeout 30m $(HELM)

.PHONY: e2e-kibaship
e2e-kibaship: image ## Build images from repositories with a real Tekton, and attack the builds; needs root.
	hack/packages node tekton
	go test -C test/cluster/components/gitserver $(TESTARGS) ./...
	hack/with-cluster --profile tekton --name $(KIBASHIP_CLUSTER) -- $(MAKE) e2e-kibaship-run KIBASHIP_CLUSTER=$(KIBASHIP_CLUSTER)

# The part of e2e-kibaship that runs while the cluster is up.
.PHONY: e2e-kibaship-run
e2e-kibaship-run:
	go run $(CLUSTER) load --name $(KIBASHIP_CLUSTER) $(DIST)/images/berg-operator.tar
	$(MAKE) deploy
	$(GO_TEST) -count=1 -timeout 40m $(KIBASHIP)

# An image of nothing but the proxy: both ends of a pair run it.
TUNNEL_PROXY_IMAGE := ghcr.io/bergctf/berg-tunnel:v$(VERSION)

.PHONY: tunnel-image
tunnel-image: image
	$(IMAGE_BUILD) --ref $(TUNNEL_PROXY_IMAGE) --output $(DIST)/images/berg-tunnel.tar --platform linux/$(ARCH) \
		--user 65532:65532 --entrypoint /berg-tunnel $(DIST)/linux-$(ARCH)/berg-tunnel:/berg-tunnel:0555

.PHONY: e2e-tunnel
e2e-tunnel: tunnel-image ## Run the journeys of container networks and tunnels on real pods; needs root.
	hack/packages node
	go run $(IMAGES) --output $(DIST)/images toolbox
	rm -f $(TUNNEL_USED)
	hack/with-cluster --profile node --name $(TUNNEL_CLUSTER) --audit -- bash -c \
		'$(MAKE) e2e-tunnel-run TUNNEL_CLUSTER=$(TUNNEL_CLUSTER) && go run $(RIGHTS) --collect $(TUNNEL_USED)'

# Which of them run: what a policy keeps out shows only where one is enforced (profile network).
TUNNEL_LABELS ?= !network

# The part of e2e-tunnel that runs while the cluster is up.
.PHONY: e2e-tunnel-run
e2e-tunnel-run:
	go run $(CLUSTER) load --name $(TUNNEL_CLUSTER) $(DIST)/images/berg-operator.tar $(DIST)/images/berg-tunnel.tar $(DIST)/images/toolbox.tar
	$(MAKE) deploy
	TUNNEL_PROXY_IMAGE=$(TUNNEL_PROXY_IMAGE) $(GO_TEST) -count=1 -timeout 40m $(TUNNEL) -ginkgo.label-filter='$(TUNNEL_LABELS)'

# Former releases of the same tree for the journeys with OLM: the first two are installed and
# upgraded, the third is offered only to be skipped.
OLM_RELEASES := 0.0.7 0.0.8 0.0.9

.PHONY: e2e-olm
e2e-olm: test-releases ## Install, upgrade and remove the operator with a real OLM; needs root.
	go run $(IMAGES) --output $(DIST)/images toolbox
	go test -C test/cluster/components/olm $(TESTARGS) ./...
	hack/with-cluster --profile olm --name $(OLM_CLUSTER) -- \
		$(MAKE) e2e-olm-run OLM_CLUSTER=$(OLM_CLUSTER)

# The part of e2e-olm that runs while the cluster is up.
.PHONY: e2e-olm-run
e2e-olm-run:
	go run $(CLUSTER) load --name $(OLM_CLUSTER) $(DIST)/images/toolbox.tar $(DIST)/olm/*.tar
	RELEASES='$(wordlist 1,2,$(OLM_RELEASES)) $(VERSION)' $(GO_TEST) -count=1 -timeout 30m $(OLM)
	$(MAKE) -o test-releases run-bundle NAME=$(OLM_CLUSTER) BUNDLE_VERSION=$(word 2,$(OLM_RELEASES))
	$(MAKE) -o test-releases run-bundle-upgrade NAME=$(OLM_CLUSTER)
	$(MAKE) bundle-checks NAME=$(OLM_CLUSTER)
	$(MAKE) scorecard NAME=$(OLM_CLUSTER) | tee $(DIST)/scorecard.txt
	grep -q 'Name: example-web-check-is-made' $(DIST)/scorecard.txt
	$(MAKE) cleanup-bundle NAME=$(OLM_CLUSTER)

.PHONY: test-releases
test-releases:
	go build -C test/cluster/components/image -o $(BIN)/image .
	IMAGE=$(BIN)/image hack/test-releases $(DIST)/olm $(VERSION) $(OLM_RELEASES)
