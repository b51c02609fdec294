# The two commands of a user: `make run` and `make test`. `make help` lists the rest.

GO ?= go
BIN := bin
DATA ?= weir-data
GOFUMPT := mvdan.cc/gofumpt@v0.12.0
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@latest

.PHONY: run build test clients lint demo crash fuzz vectors clean help

run: build ## build weir and run it on its embedded default
	$(BIN)/weir run

build: ## build the binaries into bin/
	$(GO) build -o $(BIN)/ ./cmd/...

test: ## run all tests that the installed toolchains allow
	$(GO) test -race -shuffle=on ./...
	@if command -v python3 >/dev/null; then python3 conformance/generate.py --check; \
		elif [ "$$CI" = true ]; then echo "missing: python3" >&2; exit 1; \
		else echo "left out, for want of python3: that the conformance vectors are what their generator writes"; fi

clients: build ## build and test the clients of the languages whose toolchains are installed
	clients/check.sh

lint: ## formatting, vet, staticcheck and the import table
	@bad=$$(git ls-files -co --exclude-standard '*.go' | xargs $(GO) run $(GOFUMPT) -l); \
		if [ -n "$$bad" ]; then echo "not formatted (run: go run $(GOFUMPT) -w .):"; echo "$$bad"; exit 1; fi
	$(GO) vet ./...
	GOOS=darwin $(GO) vet ./wab/... ./ingest/... ./clients/go/...
	$(GO) run $(STATICCHECK) ./...
	$(GO) test -count=1 -run TestImports ./cmd/weir

demo: build ## push 20,000 records through two SIGKILLs and an outage, and check that none is lost
	$(GO) run ./cmd/weir/internal/demo -weir $(BIN)/weir

crash: ## every crash and fault point of the log, without the race detector
	$(GO) test -count=1 -run 'Crash|Fail|Damage|Random|Kill' -v ./wab | grep -v '^=== \|^    --- '

fuzz: ## each fuzz target for FUZZTIME (default 10s)
	@for pkg in $$($(GO) list ./...); do \
		for target in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz'); do \
			echo "$$pkg $$target"; $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $${FUZZTIME:-10s} $$pkg || exit 1; \
		done; \
	done

clean: ## remove what the build made
	rm -rf $(BIN)

help: ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'
