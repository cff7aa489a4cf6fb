include .ci/tools.env

# Every directory with a go.mod; lint and tidy look at each as a user of that module would, without go.work.
MODULES := $(patsubst %/,%,$(dir $(shell git ls-files --cached --others --exclude-standard '*go.mod')))
DEMO := go run ./examples/fastapi-like-http -demo
each_module = @set -e; for module in $(MODULES); do echo "$$module: $(1)"; (cd "$$module" && GOWORK=off $(1)); done

.DEFAULT_GOAL := help
.PHONY: help test race lint fmt tidy demo demo-postgres bench ci

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-14s %s\n", $$1, $$2}' Makefile

test: ## Run all tests
	go test ./... ./examples/...

race: ## Run all tests with the race detector, in random order (needs a C compiler)
	go test -race -shuffle=on ./... ./examples/...

lint: ## Run go vet and staticcheck on every module
	$(call each_module,go vet ./...)
	$(call each_module,go run $(STATICCHECK) ./...)

fmt: ## Format all Go files
	git ls-files --cached --others --exclude-standard '*.go' | xargs go run $(GOFUMPT) -l -w

tidy: ## Tidy go.mod and go.sum of every module
	$(call each_module,go mod tidy)

demo: ## Run the example's demo on a temporary SQLite database
	$(DEMO)

demo-postgres: ## Run the example's demo on PostgreSQL: make demo-postgres DSN=postgres://...
	@test -n "$(DSN)" || { echo 'Say which database: make demo-postgres DSN=postgres://user@host/name' >&2; exit 2; }
	$(DEMO) -dsn '$(DSN)'

bench: ## Run the benchmarks
	go test -run '^$$' -bench . ./...

ci: ## Run everything that CI runs
	.ci/run
