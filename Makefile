# `make` lists the most used targets, `make help-all` all of them. Targets are
# in hack/make/*.mk, by subject; versions and image names in hack/versions.mk.
include hack/versions.mk

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules --no-print-directory

# One set of flags for everything that compiles, so that image, lint and tests
# share the build cache: the dependencies take minutes. RACE=1 needs cgo.
RACE ?=
export CGO_ENABLED := $(if $(RACE),1,0)
export GOFLAGS := $(strip $(shell go env GOFLAGS) -trimpath)

CONTAINER_TOOL ?= docker
DIST := $(CURDIR)/dist
BIN  := $(CURDIR)/bin

# Findings are cached with the paths of the checkout that they were made in; in
# another one, rules that name paths would not match them. The cache outlives the
# checkout: a new one at the same place finds it.
export GOLANGCI_LINT_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/berg-operator/lint$(CURDIR)

# In the order in which help-all prints them.
PARTS := $(addprefix hack/make/,$(addsuffix .mk, \
	development build plugin tests measure journeys clusters deploy packaging operator-sdk release tools))
include $(PARTS)

##@ General

# The targets that help prints, in its order.
EVERYDAY := build fmt lint generate manifests verify test-unit test e2e load cluster-up demo deploy

# Sections begin with ##@, a target's text with ##.
.PHONY: help help-all
help: ## Show the most used targets.
help-all: ## Show all targets.
help: ONLY := $(EVERYDAY) help-all
help help-all:
	@awk -v only='$(ONLY)' 'BEGIN { FS = ":.*## "; count = split(only, names, " "); print "make <target> [VARIABLE=value ...]" } \
		/^##@ / && !count { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z0-9-]+:.*## / { text[$$1] = sprintf("  %-18s %s", $$1, $$2); if (!count) print text[$$1] } \
		END { for (i = 1; i <= count; i++) print text[names[i]] }' Makefile $(PARTS)

.PHONY: versions
versions: ## Print every version that this repository pins.
	@hack/versions \
		VERSION='$(VERSION)' IMG='$(IMG)' BUNDLE_IMG='$(BUNDLE_IMG)' CATALOG_IMG='$(CATALOG_IMG)' SCORECARD_IMG='$(SCORECARD_IMG)' \
		CHANNELS='$(CHANNELS)' DEFAULT_CHANNEL='$(DEFAULT_CHANNEL)' PLATFORMS='$(PLATFORMS)'

.PHONY: clean
clean: ## Remove what make built: bin and dist. Clusters and the Go cache stay.
	rm -rf $(BIN) $(DIST)
