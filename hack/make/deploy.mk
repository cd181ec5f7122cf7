##@ Deployment, on the cluster of KUBECONFIG

# The kubectl of test/cluster is used where none is installed.
KUBECTL ?= $(shell command -v kubectl || echo "$$(go run $(CLUSTER) bin)/kubectl")
KUBECTL_APPLY = $(KUBECTL) apply --server-side --force-conflicts

# The CRDs of all API groups; the files are called <group>_<plural>.yaml.
CRDS := $(wildcard config/*/crd/bases/*.yaml)

# How long `make deploy` waits until the operator is ready. Tests that share their machine wait longer.
ROLLOUT_TIMEOUT ?= 180s

# A copy of config/ that names IMG: the tracked files stay as they are.
.PHONY: rendered-config
rendered-config: $(BIN)/kustomize
	@rm -rf $(DIST)/config && mkdir -p $(DIST) && cp -r config $(DIST)/config
	@cd $(DIST)/config/manager && $(BIN)/kustomize edit set image controller=$(IMG)

# Prints config/default with IMG, by a copy of its own: journeys on several clusters deploy in parallel.
RENDER = copy=$$(mktemp -d) && trap 'rm -rf "$$copy"' EXIT && cp -r config "$$copy" && \
	(cd "$$copy/config/manager" && $(BIN)/kustomize edit set image controller=$(IMG)) && $(BIN)/kustomize build "$$copy/config/default"

.PHONY: install
install: ## Install the CRDs, and the admission policies without which some API groups start nothing.
	$(KUBECTL_APPLY) $(addprefix -f ,$(CRDS)) -f deploy/fence.yaml

.PHONY: uninstall
uninstall: end-instances ## Delete all resources that the operator reconciles, and remove the CRDs with every Challenge.
	$(KUBECTL) delete --ignore-not-found $(addprefix -f ,$(CRDS)) -f deploy/fence.yaml

.PHONY: deploy
deploy: $(BIN)/kustomize ## Install CRDs and operator (IMG), with SETTINGS='NAME=value ...', and wait until it is ready.
	@($(RENDER)) | $(KUBECTL_APPLY) -f -
	$(if $(SETTINGS),$(KUBECTL) -n berg-operator-system set env deployment/berg-operator-controller-manager $(SETTINGS))
	$(KUBECTL) -n berg-operator-system rollout status deployment/berg-operator-controller-manager --timeout=$(ROLLOUT_TIMEOUT)

.PHONY: undeploy
undeploy: $(BIN)/kustomize end-instances ## Delete all resources that the operator reconciles, remove operator and CRDs.
	@($(RENDER)) | $(KUBECTL) delete --ignore-not-found -f -

# Resources with a status are those that the operator reconciles, except those that authors wrote. They are
# deleted while it runs: afterwards nothing would remove their finalizers.
.PHONY: end-instances
end-instances:
	@for kind in $$(grep -l '^      status: {}' $(CRDS) | sed -E 's|.*/(.*)_(.*)\.yaml|\2.\1|' | grep -vE '^(challenges[.]berg|challengedefinitions)[.]'); do \
		if $(KUBECTL) get customresourcedefinition $$kind --ignore-not-found -o name | grep -q .; then \
			$(KUBECTL) delete $$kind --all --all-namespaces --timeout=180s || { \
				echo "make: some $$kind are not deleted: is the operator running? Start it with 'make deploy' and try again" >&2; exit 1; }; \
		fi; \
	done
