##@ operator-sdk, on the cluster NAME of PROFILE=olm

# PACKAGE is the package that these targets are about; those for ChallengeChecks are about berg-operator.
BUNDLE_NAMESPACE = $(PACKAGE)-system
# BUNDLE_VERSION is $(VERSION) or one of $(OLM_RELEASES).
BUNDLE_VERSION ?= $(VERSION)
BUNDLE = $(PACKAGE_REGISTRY)/$(PACKAGE)-bundle:v$(BUNDLE_VERSION)
OPERATOR_SDK = BIN=$(BIN) hack/operator-sdk $(NAME)
CLUSTER_KUBECTL = go run $(CLUSTER) kubectl --name $(NAME)

.PHONY: run-bundle
run-bundle: $(BIN)/operator-sdk load-bundle ## Install the operator with operator-sdk: BUNDLE_VERSION=0.0.8 a former version, PACKAGE=quix-environment-operator another package.
	$(CLUSTER_KUBECTL) create namespace $(BUNDLE_NAMESPACE) --dry-run=client -o yaml | $(CLUSTER_KUBECTL) apply -f -
	$(CLUSTER_KUBECTL) apply --server-side -f $(CURDIR)/deploy/fence.yaml # OLM installs no admission policies
	$(OPERATOR_SDK) run bundle @$(BUNDLE) --namespace $(BUNDLE_NAMESPACE) --timeout 5m \
		--index-image @$(OPM_IMG) --decompression-image @$(BUSYBOX_IMG) --image-pull-policy IfNotPresent

.PHONY: run-bundle-upgrade
run-bundle-upgrade: $(BIN)/operator-sdk load-bundle ## Upgrade what run-bundle has installed.
	$(OPERATOR_SDK) run bundle-upgrade @$(BUNDLE) --namespace $(BUNDLE_NAMESPACE) --timeout 5m --image-pull-policy IfNotPresent

# The settings of the Subscription, which replace those that it has.
define EXAMPLE_SETTINGS
{"spec":{"config":{"env":[
{"name":"CHECK_CONCURRENCY","value":"2"},
{"name":"GATE_ENABLED","value":"true"},
{"name":"GATEWAY_DATAPLANE_NAMESPACES","value":"$(BUNDLE_NAMESPACE)"},
{"name":"CHALLENGE_HTTP_PORT","value":"443"},
{"name":"CHALLENGE_TLS_PORT","value":"8443"}]}}}
endef

.PHONY: bundle-examples
bundle-examples: export EXAMPLE_SETTINGS := $(EXAMPLE_SETTINGS)
bundle-examples: ## Let what run-bundle has installed run every example, for scorecard: make ChallengeChecks, and serve host names by the gate.
	$(CLUSTER_KUBECTL) apply -k $(CURDIR)/config/berg/check
	$(CLUSTER_KUBECTL) apply --server-side -k $(CURDIR)/config/gate/access
	$(CLUSTER_KUBECTL) apply -k $(CURDIR)/config/berg/samples/prerequisites
	mkdir -p $(DIST)/examples
	openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=challenges.example.com -addext 'subjectAltName=DNS:*.challenges.example.com' \
		-keyout $(DIST)/examples/tls.key -out $(DIST)/examples/tls.crt
	$(CLUSTER_KUBECTL) -n berg create secret tls challenges-tls --cert=$(DIST)/examples/tls.crt --key=$(DIST)/examples/tls.key
	name=$$($(CLUSTER_KUBECTL) -n $(BUNDLE_NAMESPACE) get subscriptions.operators.coreos.com -o name) && \
		$(CLUSTER_KUBECTL) -n $(BUNDLE_NAMESPACE) patch $$name --type merge \
		-p "$$EXAMPLE_SETTINGS"
	$(CLUSTER_KUBECTL) -n $(BUNDLE_NAMESPACE) wait deployment/berg-operator-controller-manager --timeout=2m \
		--for=jsonpath='{.spec.template.spec.containers[0].env[?(@.name=="CHECK_CONCURRENCY")].value}'=2
	for name in berg-operator-controller-manager berg-gate; do \
		$(CLUSTER_KUBECTL) -n $(BUNDLE_NAMESPACE) rollout status deployment/$$name --timeout=3m || exit; \
	done

.PHONY: cleanup-bundle
cleanup-bundle: $(BIN)/operator-sdk ## Remove what run-bundle has installed, and the CRDs with every Challenge.
	$(MAKE) end-instances KUBECTL='$(CLUSTER_KUBECTL)'
	$(CLUSTER_KUBECTL) delete -k $(CURDIR)/config/berg/check --ignore-not-found
	$(CLUSTER_KUBECTL) delete -k $(CURDIR)/config/berg/samples/prerequisites --ignore-not-found
	$(CLUSTER_KUBECTL) delete -k $(CURDIR)/config/gate/access --ignore-not-found
	$(OPERATOR_SDK) cleanup $(PACKAGE) --namespace $(BUNDLE_NAMESPACE) --delete-all --timeout 5m
	$(CLUSTER_KUBECTL) delete namespace $(BUNDLE_NAMESPACE) --ignore-not-found
	$(CLUSTER_KUBECTL) delete -f $(CURDIR)/deploy/fence.yaml --ignore-not-found
	$(CLUSTER_KUBECTL) delete clusterroles,priorityclasses --selector app.kubernetes.io/name=$(PACKAGE)
	$(CLUSTER_KUBECTL) delete operators.operators.coreos.com $(PACKAGE).$(BUNDLE_NAMESPACE) --ignore-not-found

# SCORECARD_TESTS selects tests by their labels; empty: all.
SCORECARD_TESTS ?=

.PHONY: scorecard
scorecard: $(BIN)/operator-sdk images scorecard-build sdk-scorecard-build ## Run the tests of the bundle in pods; the operator must be installed.
	go run $(CLUSTER) load --name $(NAME) $(DIST)/images/berg-operator-scorecard.tar $(DIST)/images/sdk-scorecard.tar \
		$(SAMPLES:%=$(DIST)/images/%.tar)
	$(CLUSTER_KUBECTL) create namespace berg-scorecard --dry-run=client -o yaml | $(CLUSTER_KUBECTL) apply -f -
	$(CLUSTER_KUBECTL) apply -k $(CURDIR)/config/scorecard/rbac
	$(OPERATOR_SDK) scorecard $(CURDIR)/$(BUNDLE_DIR) --namespace berg-scorecard --service-account scorecard --wait-time 8m --selector '$(SCORECARD_TESTS)' \
		--pod-security restricted --untar-image $(BUSYBOX_IMG) --storage-image $(BUSYBOX_IMG) | \
		awk '/^\tLog:/ { noise = 1 } /^-----/ { noise = 0 } !noise' # without the CRDs, printed whole
	$(CLUSTER_KUBECTL) delete -k $(CURDIR)/config/scorecard/rbac
	$(CLUSTER_KUBECTL) delete namespace berg-scorecard

# Images of the challenges that the examples of the bundle run.
SAMPLES := pwn shop-bot shop-database shop-web solver web

# The image that bundle/tests/scorecard names for the tests of operator-sdk itself.
.PHONY: sdk-scorecard-build
sdk-scorecard-build:
	GOOS=linux GOARCH=$(ARCH) go build -C hack/tools/operator-sdk -tags=containers_image_openpgp -ldflags='-s -w' \
		-o $(DIST)/linux-$(ARCH)/scorecard-test github.com/operator-framework/operator-sdk/images/scorecard-test
	$(IMAGE_BUILD) --ref quay.io/operator-framework/scorecard-test:$(OPERATOR_SDK_VERSION) --platform linux/$(ARCH) \
		--output $(DIST)/images/sdk-scorecard.tar $(DIST)/linux-$(ARCH)/scorecard-test:/usr/local/bin/scorecard-test:0555

.PHONY: load-bundle
load-bundle: test-releases
	go run $(CLUSTER) load --name $(NAME) $(DIST)/olm/operator-$(BUNDLE_VERSION).tar $(DIST)/olm/berg-{api,gate}-$(BUNDLE_VERSION).tar \
		$(DIST)/olm/bundle-$(PACKAGE)-$(BUNDLE_VERSION).tar
