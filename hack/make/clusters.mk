##@ Clusters and demo

PROFILE ?= simulated
NAME    ?= berg

.PHONY: cluster-up
cluster-up: ## Start a cluster: PROFILE=simulated (no root), node, olm or network (root), NAME=berg.
	go run $(CLUSTER) up --profile $(PROFILE) --name $(NAME)

.PHONY: cluster-down
cluster-down: ## Remove the cluster NAME.
	go run $(CLUSTER) down --name $(NAME)

.PHONY: demo
demo: ## Run the demo: from nothing to running challenges, step by step. ARGS are its arguments.
	hack/demo $(ARGS)

.PHONY: demo-picture
demo-picture: ## Update the picture in the README: the web sample in a browser, through the gate; needs root.
	hack/packages node browser
	hack/demo --profile node --name demo-picture --keep=false --picture docs/berg/web.png

.PHONY: demo-down
demo-down: ## Remove everything that the demo created.
	hack/demo down $(ARGS)

.PHONY: first-ten-minutes
first-ten-minutes: image gate-image ## Run the commands of README.md up to a flag by host name and the removal, and print how long each step takes; needs root.
	hack/packages node olm
	hack/walk-readme first-ten-minutes
