##@ Tools

.PHONY: tools
tools: $(BIN)/controller-gen $(BIN)/kustomize $(BIN)/golangci-lint $(BIN)/actionlint $(BIN)/crd-ref-docs $(BIN)/operator-sdk $(BIN)/opm $(BIN)/helm $(CLIENT_GENERATORS) ## Build all pinned tools into bin/.

# go tool builds too, but links again at each call: minutes for the larger ones.
$(BIN)/controller-gen: hack/tools/go.mod hack/tools/go.sum
	go build -C hack/tools -ldflags='-s -w' -o $@ sigs.k8s.io/controller-tools/cmd/controller-gen

$(BIN)/kustomize: hack/tools/go.mod hack/tools/go.sum
	go build -C hack/tools -ldflags='-s -w' -o $@ sigs.k8s.io/kustomize/kustomize/v5

$(BIN)/golangci-lint: hack/tools/go.mod hack/tools/go.sum
	go build -C hack/tools -ldflags='-s -w' -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

$(BIN)/crd-ref-docs: hack/tools/go.mod hack/tools/go.sum
	go build -C hack/tools -ldflags='-s -w' -o $@ github.com/elastic/crd-ref-docs

$(CLIENT_GENERATORS): hack/tools/clients/go.mod hack/tools/clients/go.sum
	go build -C hack/tools/clients -ldflags='-s -w' -o $@ k8s.io/code-generator/cmd/$(@F)

# The generated bundle names the version that the linker sets here.
OPERATOR_SDK_VERSION = $(shell go list -C hack/tools/operator-sdk -m -f '{{.Version}}' github.com/operator-framework/operator-sdk)
OPERATOR_SDK_VAR := -X github.com/operator-framework/operator-sdk/internal/version.

$(BIN)/operator-sdk: hack/tools/operator-sdk/go.mod hack/tools/operator-sdk/go.sum
	version=$(OPERATOR_SDK_VERSION); go build -C hack/tools/operator-sdk -tags=containers_image_openpgp -o $@ \
		-ldflags="-s -w $(OPERATOR_SDK_VAR)Version=$$version $(OPERATOR_SDK_VAR)ImageVersion=$$version $(OPERATOR_SDK_VAR)GitVersion=$$version $(OPERATOR_SDK_VAR)KubernetesVersion=$(OPERATOR_SDK_KUBERNETES_VERSION)" \
		github.com/operator-framework/operator-sdk/cmd/operator-sdk

$(BIN)/opm: hack/tools/opm/go.mod hack/tools/opm/go.sum
	go build -C hack/tools/opm -tags=json1,containers_image_openpgp -ldflags='-s -w' -o $@ \
		github.com/operator-framework/operator-registry/cmd/opm

# The version whose engine the chart's tests render with.
$(BIN)/helm: test/conform/chart/go.mod test/conform/chart/go.sum
	go build -C test/conform/chart -ldflags='-s -w' -o $@ helm.sh/helm/v4/cmd/helm

$(BIN)/actionlint: hack/tools/actionlint/go.mod hack/tools/actionlint/go.sum
	go build -C hack/tools/actionlint -ldflags='-s -w' -o $@ github.com/rhysd/actionlint/cmd/actionlint

# Only releases need it, so that make tools does not build it.
$(BIN)/cosign: hack/tools/cosign/go.mod hack/tools/cosign/go.sum
	go build -C hack/tools/cosign -ldflags='-s -w' -o $@ github.com/sigstore/cosign/v3/cmd/cosign
