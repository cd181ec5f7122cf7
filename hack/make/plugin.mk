##@ kubectl plugin

# Platforms of the plugin: one static program for each.
PLUGIN_PLATFORMS ?= linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64,windows/arm64
# URL of the published archives, for Krew.
PLUGIN_URL ?= https://github.com/bergctf/berg-operator/releases/download/v$(VERSION)

.PHONY: plugin
plugin: ## Build kubectl-berg for this machine into bin/. With bin/ in PATH, kubectl finds it.
	$(GO_BUILD) -o $(BIN)/kubectl-berg ./cmd/kubectl-berg

.PHONY: plugin-archives
plugin-archives: ## Build kubectl-berg for PLUGIN_PLATFORMS, with a manifest for Krew, into dist/plugin.
	go run ./hack/plugin --version v$(VERSION) --platforms $(PLUGIN_PLATFORMS) --url $(PLUGIN_URL) --output $(DIST)/plugin

.PHONY: plugin-extend
plugin-extend: ## Measure the time to extend 1,000 instances, compared with a bare client. EXTEND=1000.
	hack/with-cluster --profile simulated --name $(TEST_CLUSTER)-extend -- \
		env EXTEND=$(or $(EXTEND),1000) go test -count=1 -v -timeout 30m ./test/integration/plugin -ginkgo.v -ginkgo.focus 'as fast as a bare client'
