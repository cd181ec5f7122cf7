##@ Clusters and demo

PROFILE ?= simulated
NAME    ?= berg

.PHONY: cluster-up
cluster-up: ## Start a cluster: PROFILE=simulated (no root), node, olm or network (root), NAME=berg.
	go run ./test/cluster up --profile $(PROFILE) --name $(NAME)

.PHONY: cluster-down
cluster-down: ## Remove the cluster NAME.
	go run ./test/cluster down --name $(NAME)

.PHONY: cluster-status
cluster-status: ## Show how the cluster NAME is.
	go run ./test/cluster status --name $(NAME)

.PHONY: demo
demo: ## From nothing to running challenges, step by step. ARGS go to the demo.
	go run ./test/demo $(ARGS)

.PHONY: demo-down
demo-down: ## Remove what the demo made.
	go run ./test/demo down
