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

.PHONY: demo-down
demo-down: ## Remove what the demo made.
	go run $(DEMO) down
