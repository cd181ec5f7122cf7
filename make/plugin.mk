##@ The plugin of kubectl

# Platforms of the plugin. It is one static program on each.
PLUGIN_PLATFORMS ?= linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64,windows/arm64
# Where its archives are published, for Krew.
PLUGIN_URL ?= https://github.com/bergctf/berg-operator/releases/download/v$(VERSION)

.PHONY: plugin
plugin: ## Build kubectl-berg for this machine into bin/: kubectl finds it if bin/ is in PATH.
	$(GO_BUILD) -o $(BIN)/kubectl-berg ./cmd/kubectl-berg

.PHONY: plugin-archives
plugin-archives: ## Build kubectl-berg for all PLUGIN_PLATFORMS, and the manifest for Krew: dist/plugin.
	go run ./hack/plugin --version v$(VERSION) --platforms $(PLUGIN_PLATFORMS) --url $(PLUGIN_URL) --output $(DIST)/plugin

.PHONY: plugin-recordings
plugin-recordings: plugin ## Record `kubectl berg try` and `why` for the documentation, on the cluster of KUBECONFIG.
	KUBECTL_BERG=$(BIN)/kubectl-berg hack/record-plugin docs/kubectl-berg

.PHONY: plugin-extend
plugin-extend: ## Measure how long extending 1,000 instances takes, compared with a bare client: EXTEND=1000.
	hack/with-cluster --profile simulated --name $(TEST_CLUSTER)-extend -- \
		env EXTEND=$(or $(EXTEND),1000) go test -count=1 -v -timeout 30m ./test/integration/plugin -ginkgo.v -ginkgo.focus 'as fast as a bare client'
