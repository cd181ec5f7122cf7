# The stages that a change must pass. A stage is a target: what it needs, its usual minutes with built clusters, its command.
#
# Stages of a lane run one after the other; the five lanes run in parallel. One computes. At most two stages have real pods, because
# these are in the lanes A and B only. With more lanes, two CPUs are busy all the time: everything takes as long, and specs wait longer.
# hack/ci/run sets these variables:
#
#   REACHED   the stages and suites that a change reaches, as hack/ci/reach prints them; % for all
#   STAGES    all stages that run, those that others need included
#   BARE      not empty where clusters are not built yet, which takes half an hour
#   NO_ROOT   not empty to leave out stages that need root
SHELL       := bash
.SHELLFLAGS := -euo pipefail -c

suites = $(patsubst $1/%,%,$(filter $(REACHED),$(addprefix $1/,$2)))
# Helm's suite needs a cluster without the operator, and tunnels let pods use the network of the node.
SUITES_journeys := $(call suites,journeys,berg api operator quix hexactf tunnel helm)
SUITES_attacks  := $(call suites,attacks,berg hexactf kibaship tunnel)
INTEGRATION     := $(call suites,integration,$(sort $(patsubst test/integration/%/,%,$(dir $(wildcard $(addsuffix /suite_test.go,test/integration/* test/integration/*/*))))))
# The integration suites of a stage share a cluster, in this order. A new suite is among the others.
SUITES_platform := $(filter $(INTEGRATION),berg/docs plugin api)
SUITES_life  := $(filter $(INTEGRATION),berg/life)
SUITES_queue := $(filter $(INTEGRATION),berg/queue berg/check)
SUITES_apply := $(filter $(INTEGRATION),berg/apply operator)
SUITES_others := $(filter-out $(SUITES_platform) $(SUITES_life) $(SUITES_queue) $(SUITES_apply),$(INTEGRATION))

CHECKS  := generated lint unit
BUILDS  := node-packages build-node images build-network build-olm build-tekton
COMPUTE := packages build-simulated tools $(if $(BARE),$(CHECKS) $(BUILDS),$(BUILDS) $(CHECKS)) release
A := $(if $(BARE),platform journeys tekton,journeys tekton platform)
B := $(if $(BARE),life requests attacks gate olm,attacks gate olm life requests)
C := queue others chaos-berg
D := apply chaos-hexactf chaos-tunnel chaos-kibaship page clusters kafka full-tunnel site signatures

# They run also where the time is short. Stages that compute have a lower priority, because suites measure time.
export ALWAYS := packages tools $(CHECKS)
export COMPUTE
# Stages that need root.
ROOT := $(filter-out images,$(BUILDS)) journeys attacks gate olm tekton chaos-hexactf page kafka site rights
# Stages that record the rights which the operator uses: only all of them show that a right is granted and not used.
USED := journeys platform life queue apply others

# Stages with suites run if one of these does, the others if the change reaches them.
WITH_SUITES := journeys attacks platform life queue apply others
CHOSEN := $(filter-out $(if $(NO_ROOT),$(ROOT)),$(ALWAYS) $(foreach stage,$(WITH_SUITES),$(if $(SUITES_$(stage)),$(stage))) \
	$(filter $(REACHED),$(filter-out $(WITH_SUITES),$(COMPUTE) $(A) $(B) $(C) $(D) rights)))

.PHONY: chosen $(COMPUTE) $(A) $(B) $(C) $(D) rights
chosen: $(CHOSEN)

# chain lets each stage of a lane wait for the one before it.
chain = $(if $(word 2,$1),$(eval $(word 2,$1): | $(firstword $1))$(call chain,$(wordlist 2,99,$1)))
$(foreach lane,COMPUTE A B C D,$(call chain,$(filter $(STAGES),$($(lane)))))

RUN      = @hack/ci/stage '$@' '$^'
CLUSTER  = go run ./test/cluster
# make -o: the stage "images" has built these.
BUILT    = -o image -o images -o tunnel-image -o api-image -o build
# Only the stage rights reads the audit log.
AUDIT    = $(if $(filter rights,$(CHOSEN)),,AUDIT=)
SHARED   = make test-integration INTEGRATION='$(SUITES_$@)' TEST_CLUSTER=ci-$@ $(AUDIT)

packages:        ;                  $(RUN) 0 hack/packages base
tools:           packages;          $(RUN) 1 make tools
generated:       tools;             $(RUN) 1 make verify-generated
# The linter runs every analyzer of go vet.
lint:            tools;             $(RUN) 2 make lint
unit:            packages;          $(RUN) 3 make test-unit
build-simulated: packages;          $(RUN) 12 $(CLUSTER) build --profile simulated
node-packages:   packages;          $(RUN) 1 hack/packages node olm network tekton kafka clients platforms resolvers jails browser axe site
build-node build-network build-olm build-tekton: build-%: node-packages; $(RUN) $(MINUTES) $(CLUSTER) build --profile $*
build-node:      MINUTES := 3
build-network:   MINUTES := 9
build-olm build-tekton: MINUTES := 6
images:          tools;             $(RUN) 1 make build image images tunnel-image api-image
release:         tools;             $(RUN) 2 make verify-release

journeys:        build-node images; $(RUN) 20 make $(BUILT) e2e E2E='$(SUITES_$@)' E2E_CLUSTER=ci-$@ $(AUDIT)
attacks:         build-network images; $(RUN) 10 make $(BUILT) e2e-network E2E='$(SUITES_$@)' NETWORK_CLUSTER=ci-$@
olm:             build-olm images;  $(RUN) 10 make $(BUILT) e2e-olm OLM_CLUSTER=ci-$@
tekton:          build-tekton images; $(RUN) 8 make $(BUILT) e2e-kibaship KIBASHIP_CLUSTER=ci-$@

platform:        build-simulated;   $(RUN) 8 $(SHARED)
life:            build-simulated;   $(RUN) 11 $(SHARED)
queue:           build-simulated;   $(RUN) 18 $(SHARED)
apply:           build-simulated;   $(RUN) 19 $(SHARED)
others:          build-simulated;   $(RUN) 18 $(SHARED)

chaos-berg chaos-hexactf chaos-tunnel chaos-kibaship: chaos-%: build-simulated
	$(RUN) 2 make $(BUILT) chaos-$* SEED=1 LIVES=40 STORM=45s TEST_CLUSTER=ci-$*
chaos-berg requests: images
chaos-hexactf page: node-packages
requests:        build-simulated;   $(RUN) 1 make $(BUILT) load-smoke TEST_CLUSTER=ci-$@
gate:            build-node tools; $(RUN) 5 make e2e-gate GATE_CLUSTER=ci-$@
page:            build-simulated;   $(RUN) 3 make test-live-page TEST_CLUSTER=ci-$@
# It skips profiles that are not built.
clusters:        build-simulated;   $(RUN) 3 make test-cluster
kafka:           node-packages;     $(RUN) 2 make test-kafka
full-tunnel:     packages;          $(RUN) 1 make stress-tunnel
site:            node-packages;     $(RUN) 1 make test-docs-site
signatures:      tools;             $(RUN) 1 make verify-signatures
rights:          build-simulated $(USED); $(RUN) 2 make rights TEST_CLUSTER=ci-$@
