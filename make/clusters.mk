##@ Clusters and demo

PROFILE ?= simulated
NAME    ?= berg

.PHONY: cluster-up
cluster-up: ## Start a cluster: PROFILE=simulated (no root), node, olm or network (root), NAME=berg.
	go run $(CLUSTER) up --profile $(PROFILE) --name $(NAME)

.PHONY: cluster-down
cluster-down: ## Remove the cluster NAME.
	go run $(CLUSTER) down --name $(NAME)

.PHONY: cluster-status
cluster-status: ## Show the state of the cluster NAME.
	go run $(CLUSTER) status --name $(NAME)

.PHONY: demo
demo: ## From nothing to running challenges, step by step. ARGS go to the demo.
	go run $(DEMO) $(ARGS)

.PHONY: demo-picture
demo-picture: ## Take the picture in the README anew: what a browser shows of the web sample, through a real Gateway; needs root.
	hack/packages node network browser
	go run $(DEMO) --profile network --name demo-picture --keep=false --picture docs/berg/web.png

.PHONY: demo-down
demo-down: ## Remove what the demo made.
	go run $(DEMO) down

.PHONY: first-ten-minutes
first-ten-minutes: image ## Do what README.md says up to the first solved flag, and tell how long each step takes; needs root.
	hack/packages node olm
	hack/walk-readme first-ten-minutes
