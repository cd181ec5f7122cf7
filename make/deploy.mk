##@ Deployment, on the cluster of KUBECONFIG

# The cluster runner's own kubectl serves where none is installed.
KUBECTL ?= $(shell command -v kubectl || echo "$$(go run $(CLUSTER) bin)/kubectl")
KUBECTL_APPLY = $(KUBECTL) apply --server-side --force-conflicts

# A copy of config/ that names IMG: the tracked files stay as they are.
.PHONY: rendered-config
rendered-config: $(BIN)/kustomize
	@rm -rf $(DIST)/config && mkdir -p $(DIST) && cp -r config $(DIST)/config
	@cd $(DIST)/config/manager && $(BIN)/kustomize edit set image controller=$(IMG)

.PHONY: install
install: $(BIN)/kustomize ## Install the CRDs.
	$(BIN)/kustomize build config/crd | $(KUBECTL_APPLY) -f -

.PHONY: uninstall
uninstall: $(BIN)/kustomize end-instances ## End all instances and environments, remove the CRDs and every Challenge.
	$(BIN)/kustomize build config/crd | $(KUBECTL) delete --ignore-not-found -f -

.PHONY: deploy
deploy: rendered-config ## Install CRDs and operator (IMG), with SETTINGS='NAME=value ...', and wait until it works.
	$(BIN)/kustomize build $(DIST)/config/default | $(KUBECTL_APPLY) -f -
	$(if $(SETTINGS),$(KUBECTL) -n berg-operator-system set env deployment/berg-operator-controller-manager $(SETTINGS))
	$(KUBECTL) -n berg-operator-system rollout status deployment/berg-operator-controller-manager --timeout=180s

.PHONY: undeploy
undeploy: rendered-config end-instances ## End all instances and environments, remove operator and CRDs.
	$(BIN)/kustomize build $(DIST)/config/default | $(KUBECTL) delete --ignore-not-found -f -

# While the operator still runs: afterwards nothing would take the finalizers off.
.PHONY: end-instances
end-instances:
	@for kind in challengeinstances.berg.norelect.ch environments.quix.io; do \
		if $(KUBECTL) get customresourcedefinition $$kind --ignore-not-found -o name | grep -q .; then \
			$(KUBECTL) delete $$kind --all --all-namespaces --timeout=180s || { \
				echo "make: some $$kind do not end: is the operator running? Start it with 'make deploy' and try again" >&2; exit 1; }; \
		fi; \
	done

.PHONY: build-installer
build-installer: rendered-config ## Write everything to install into one file: dist/install.yaml.
	$(BIN)/kustomize build $(DIST)/config/default >$(DIST)/install.yaml
