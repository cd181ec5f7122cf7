##@ Journeys on real pods, as root

# The suites that share one cluster of profile node, in the order in which they run. Helm's comes last: it wants
# a cluster without the operator. E2E='quix helm' chooses some.
SUITES_APART := kafka kibaship olm
SUITES_LAST  := hexactf tunnel helm
SUITES       := $(filter-out $(SUITES_APART) $(SUITES_LAST),$(patsubst test/e2e/%/,%,$(sort $(dir $(wildcard test/e2e/*/*_test.go))))) $(SUITES_LAST)
E2E          ?= $(SUITES)

.PHONY: e2e
e2e: image images tunnel-image $(if $(filter api,$(E2E)),api-image) $(if $(filter berg,$(E2E)),jail-image) $(if $(filter helm,$(E2E)),gate-image $(BIN)/helm) ## Run the journeys on real pods, all on one cluster; needs root. E2E='quix helm' chooses suites, hexactf with a real Kafka.
	hack/packages node $(if $(filter hexactf,$(E2E)),kafka)
	rm -f $(DIST)/rights/e2e.json
	hack/with-cluster --profile node --name $(E2E_CLUSTER) $(AUDIT) -- $(MAKE) e2e-run E2E_CLUSTER=$(E2E_CLUSTER)

# Which journeys run: the label network wants Cilium and a Gateway, the journey with the label health takes an hour, and e2e-gate runs
# those with the label gate.
E2E_LABELS  ?= !network && !health && !gate
E2E_TIMEOUT ?= 80m

# What the Gateway of config/berg/samples/prerequisites requires as settings of the operator.
SAMPLE_GATEWAY_PORTS := CHALLENGE_HTTP_PORT=443 CHALLENGE_TLS_PORT=8443

# An image of the proxy only: both ends of a pair run it.
TUNNEL_PROXY_IMAGE := ghcr.io/bergctf/berg-tunnel:v$(VERSION)

# The images that the cluster gets, files of dist/images.
E2E_IMAGES = berg-operator berg-tunnel $(if $(filter api,$(E2E)),berg-api) $(if $(filter helm,$(E2E)),berg-gate) $(if $(filter berg,$(E2E)),jail) toolbox $(SAMPLES)

# The part of e2e that runs while the cluster is up. Each suite starts with the operator as config/default has it.
# Only when all have run do they show which rights the operator uses: make rights reads e2e.json.
.PHONY: e2e-run
e2e-run: WITH_OPERATOR = $(filter-out helm,$(E2E))
e2e-run:
	go run $(CLUSTER) load --name $(E2E_CLUSTER) $(E2E_IMAGES:%=$(DIST)/images/%.tar)
	for suite in $(WITH_OPERATOR); do $(MAKE) deploy ROLLOUT_TIMEOUT=10m && $(MAKE) e2e-run-$$suite; done
	$(if $(AUDIT),$(if $(filter-out helm $(E2E),$(SUITES)),,go run $(RIGHTS) --collect $(DIST)/rights/e2e.json))
	$(if $(filter helm,$(E2E)),$(if $(WITH_OPERATOR),$(MAKE) e2e-undeploy && )$(MAKE) e2e-run-helm)

.PHONY: $(SUITES:%=e2e-run-%) e2e-run-kibaship
$(SUITES:%=e2e-run-%) e2e-run-kibaship: e2e-run-%:
	TUNNEL_PROXY_IMAGE=$(TUNNEL_PROXY_IMAGE) HELM=$(BIN)/helm $(GO_TEST) -count=1 -timeout $(E2E_TIMEOUT) ./test/e2e/$* \
		-ginkgo.timeout=$(E2E_TIMEOUT) -ginkgo.label-filter='$(E2E_LABELS)' $(call SPEC_FLAGS,e2e/$*)

# The journeys of tunnels have installed config/tunnel/host, as an administrator does.
.PHONY: e2e-undeploy
e2e-undeploy: undeploy
	$(KUBECTL) delete --ignore-not-found -k config/tunnel/host

.PHONY: tunnel-image
tunnel-image: image
	$(IMAGE_BUILD) --ref $(TUNNEL_PROXY_IMAGE) --output $(DIST)/images/berg-tunnel.tar --platform linux/$(ARCH) \
		--user 65532:65532 --entrypoint /berg-tunnel $(DIST)/linux-$(ARCH)/berg-tunnel:/berg-tunnel:0555

.PHONY: jail-image
jail-image:
	hack/packages jails
	go run $(IMAGES) --output $(DIST)/images jail

.PHONY: resolver-images
resolver-images:
	hack/packages resolvers
	go run $(IMAGES) --output $(DIST)/images resolvers

# The suites that have journeys with these labels. That of tunnels comes last: it lets pods of the operator's
# namespace use the network of the node.
NETWORK_LABELS = network || isolation

.PHONY: attack
attack: NETWORK_LABELS = attack
attack: KIBASHIP_LABELS = attack && !network
attack: e2e-network attack-gate attack-programs e2e-kibaship ## Try every line of the attack matrix with packets, print what came of each, and attack the gate, webhooks, tunnels and builds; needs root.

# Cilium's agent is a process there, and no DaemonSet that NETWORK_POLICY=auto sees.
.PHONY: e2e-network
e2e-network: E2E = berg hexactf kibaship tunnel
e2e-network: image images tunnel-image api-image jail-image resolver-images ## Attack instances, and visit them, on a real data plane; needs root.
	hack/packages node network browser kafka
	hack/with-cluster --profile network --name $(NETWORK_CLUSTER) -- \
		$(MAKE) e2e-run E2E_CLUSTER=$(NETWORK_CLUSTER) E2E='$(E2E)' E2E_LABELS='$(NETWORK_LABELS)' \
		E2E_IMAGES='$(E2E_IMAGES) berg-api resolvers' TESTARGS='$(TESTARGS) -v' SETTINGS='$(SAMPLE_GATEWAY_PORTS) NETWORK_POLICY=cilium'

# Which journeys run: those that need no data plane, which e2e-network has.
KIBASHIP_LABELS ?= !network

.PHONY: e2e-kibaship
e2e-kibaship: image ## Build images from repositories with a real Tekton, and attack the builds; needs root.
	hack/packages node tekton
	go test -C test/cluster/components/gitserver $(TESTARGS) ./...
	hack/with-cluster --profile tekton --name $(KIBASHIP_CLUSTER) -- $(MAKE) e2e-kibaship-run KIBASHIP_CLUSTER=$(KIBASHIP_CLUSTER) KIBASHIP_LABELS='$(KIBASHIP_LABELS)'

# The part of e2e-kibaship that runs while the cluster is up.
.PHONY: e2e-kibaship-run
e2e-kibaship-run:
	go run $(CLUSTER) load --name $(KIBASHIP_CLUSTER) $(DIST)/images/berg-operator.tar
	$(MAKE) deploy ROLLOUT_TIMEOUT=10m
	$(GO_TEST) -count=1 -timeout 80m ./test/e2e/kibaship -ginkgo.label-filter='$(KIBASHIP_LABELS)'

# Former releases of the same tree for the journeys with OLM: the first two are installed and
# upgraded, the third is offered only to be skipped.
OLM_RELEASES := 0.0.7 0.0.8 0.0.9

.PHONY: e2e-olm
e2e-olm: test-releases images ## Install, upgrade and remove the operator with a real OLM; needs root.
	hack/with-cluster --profile olm --name $(OLM_CLUSTER) -- \
		$(MAKE) e2e-olm-run OLM_CLUSTER=$(OLM_CLUSTER)

# The scorecard tests of the packages whose operator is not installed then. Their examples run in test/integration/operator.
WITHOUT_OPERATOR := test!=berg-examples-test

# The part of e2e-olm that runs while the cluster is up. -o: what is built is not built again.
.PHONY: e2e-olm-run
e2e-olm-run:
	go run $(CLUSTER) load --name $(OLM_CLUSTER) $(DIST)/images/toolbox.tar $(DIST)/olm/*.tar
	RELEASES='$(wordlist 1,2,$(OLM_RELEASES)) $(VERSION)' $(GO_TEST) -count=1 -timeout 40m ./test/e2e/olm
	$(MAKE) -o test-releases run-bundle NAME=$(OLM_CLUSTER) BUNDLE_VERSION=$(word 2,$(OLM_RELEASES))
	$(MAKE) -o test-releases run-bundle-upgrade NAME=$(OLM_CLUSTER)
	$(MAKE) bundle-examples NAME=$(OLM_CLUSTER)
	$(MAKE) -o images scorecard NAME=$(OLM_CLUSTER) | tee $(DIST)/scorecard.txt
	grep -q 'Name: example-web-check-is-made' $(DIST)/scorecard.txt
	$(MAKE) cleanup-bundle NAME=$(OLM_CLUSTER)
	for package in $(PACKAGES); do \
		$(MAKE) -o images -o scorecard-build -o sdk-scorecard-build scorecard NAME=$(OLM_CLUSTER) PACKAGE=$$package SCORECARD_TESTS='$(WITHOUT_OPERATOR)' || exit; \
	done

.PHONY: test-releases
test-releases: bundle-all $(BIN)/opm
	go build -C test/cluster/components/image -o $(BIN)/image .
	IMAGE=$(BIN)/image OPM=$(BIN)/opm EVERYTHING=$(DIST)/bundle-all hack/test-releases $(DIST)/olm $(VERSION) $(OLM_RELEASES)

# The folder of the last release, as it was published. Empty while there is none: this tree's release, and as the next one that of a copy.
LAST_RELEASE ?=
UPGRADE := $(DIST)/upgrade
# For this machine alone.
RELEASE_HERE := PLATFORMS=linux/$(ARCH) PLUGIN_PLATFORMS=linux/$(ARCH)

.PHONY: e2e-releases
e2e-releases: $(BIN)/helm $(BIN)/operator-sdk $(BIN)/opm ## Install, upgrade and remove by each installer, from the folder of LAST_RELEASE to this tree's release; needs root.
	hack/packages node olm
	go build -C test/cluster/components/image -o $(BIN)/image .
	$(MAKE) release $(RELEASE_HERE)
ifeq ($(LAST_RELEASE),)
	rm -rf $(UPGRADE) && mkdir -p $(UPGRADE)
	hack/copy-tree $(UPGRADE)
	$(MAKE) -C $(UPGRADE) next-version VERSION=$(VERSION:%.0=%.1)
	$(MAKE) -C $(UPGRADE) VERSION=$(VERSION:%.0=%.1) release $(RELEASE_HERE)
endif
	hack/with-cluster --profile olm --name $(OLM_CLUSTER)-releases -- bash -c \
		'set -a && eval "$$(go run $(CLUSTER) registry --name $(OLM_CLUSTER)-releases)" && hack/walk-releases $(or $(LAST_RELEASE),$(RELEASE) $(UPGRADE)/dist/release) $(if $(LAST_RELEASE),$(RELEASE))'

# The gate, with the conformance tests of the Gateway API.
GATE_CLUSTER ?= berg-gate
# The image that the conformance tests send requests to, under the names that they use.
# Only tests of UDPRoute, which the gate does not claim, send requests to CoreDNS, but all wait until its pod runs.
ECHO_IMAGES := registry.k8s.io/gateway-api/echo-basic:v1.5.1 registry.k8s.io/gateway-api/echo-basic:v1.6.0-dev.3 registry.k8s.io/coredns/coredns:v1.12.2

.PHONY: echo-image
echo-image:
	mkdir -p $(DIST)/images $(DIST)/linux-$(ARCH)
	GOOS=linux GOARCH=$(ARCH) go build -C test/conform/gateway -ldflags='-s -w' -o $(DIST)/linux-$(ARCH)/echo-basic sigs.k8s.io/gateway-api/conformance/echo-basic
	i=0; for ref in $(ECHO_IMAGES); do i=$$((i + 1)); $(IMAGE_BUILD) --ref $$ref --output $(DIST)/images/echo-$$i.tar --platform linux/$(ARCH) \
		--user 65532:65532 --entrypoint /echo-basic $(DIST)/linux-$(ARCH)/echo-basic:/echo-basic:0555; done

.PHONY: e2e-gate
e2e-gate: image images gate-image echo-image $(BIN)/helm ## Play with instances behind the gate on real pods, and run the conformance tests of the Gateway API against it; needs root.
	hack/packages node
	hack/with-cluster --profile node --name $(GATE_CLUSTER) -- $(MAKE) e2e-gate-run GATE_CLUSTER=$(GATE_CLUSTER)

# The part of e2e-gate that runs while the cluster is up. The journeys leave nothing behind.
GATE_IMAGES := berg-operator berg-gate toolbox echo-1 echo-2 echo-3
.PHONY: e2e-gate-run
e2e-gate-run:
	go run $(CLUSTER) load --name $(GATE_CLUSTER) $(GATE_IMAGES:%=$(DIST)/images/%.tar)
	HELM=$(BIN)/helm $(GO_TEST) -count=1 -timeout $(E2E_TIMEOUT) ./test/e2e/helm -ginkgo.timeout=$(E2E_TIMEOUT) -ginkgo.label-filter=gate
	test/conform/gateway/deploy
	GATEWAY_CONFORMANCE=1 GATE_VERSION=v$(VERSION) GATEWAY_CONFORMANCE_REPORT=$(DIST)/gateway-conformance.yaml \
		go test -C test/conform/gateway -exec $(CURDIR)/test/conform/gateway/run -count=1 -timeout 60m $(TESTARGS) .
