# The two commands of a user: `make run` and `make test`. `make help` lists the rest.

GO ?= go
BIN := bin
DATA ?= weir-data
# The jars of Kafka, in the folder where its tests look for them.
KAFKA := $(if $(XDG_CACHE_HOME),$(XDG_CACHE_HOME),$(HOME)/.cache)/weir/kafka
GOFUMPT := mvdan.cc/gofumpt@v0.12.0
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@latest

# Servers that tests and measurements use are looked for in bin/ first.
export PATH := $(CURDIR)/$(BIN):$(PATH)

.PHONY: run build test sinks-servers sinks-test docs release deb package-check clients lint demo crash recover-bench fuzz compare soak chaos bench-smoke clean help

run: build ## build weir and run it on its embedded default
	$(BIN)/weir run

build: ## build the binaries into bin/
	$(GO) build -o $(BIN)/ ./cmd/weir ./cmd/weida ./cmd/weir-bench

test: ## run all tests that the installed toolchains allow
	$(GO) test -race -shuffle=on ./...
	@if command -v python3 >/dev/null; then python3 conformance/generate.py --check; \
		elif [ "$$CI" = true ]; then echo "missing: python3" >&2; exit 1; \
		else echo "left out, for want of python3: that the conformance vectors are what their generator writes"; fi

sinks-servers: ## install the servers that the tests of the sinks use, where they are missing (PostgreSQL: Debian, as root; Kafka: mvn)
	command -v nats-server >/dev/null || GOBIN=$(CURDIR)/$(BIN) GOFLAGS= $(GO) install github.com/nats-io/nats-server/v2@latest
	@ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null || { apt-get update -q && apt-get install -qy --no-install-recommends postgresql; }
	@cmp -s $(KAFKA)/pom.xml sinks/kafkasink/kafkatest/pom.xml || { rm -rf $(KAFKA) && \
		mvn -q -B -f sinks/kafkasink/kafkatest/pom.xml dependency:copy-dependencies -DoutputDirectory=$(KAFKA) && \
		cp sinks/kafkasink/kafkatest/pom.xml $(KAFKA); }
	command -v versitygw >/dev/null || GOBIN=$(CURDIR)/$(BIN) GOFLAGS= $(GO) install github.com/versity/versitygw/cmd/versitygw@latest
	command -v nats >/dev/null || GOBIN=$(CURDIR)/$(BIN) GOFLAGS= $(GO) install github.com/nats-io/natscli/nats@latest

sinks-test: sinks-servers ## the sinks against real servers that are killed, and the ledger of each
	CI=true $(GO) test -race -shuffle=on -count=1 ./sinks/kafkasink/... ./sinks/natssink/... ./sinks/pgsink/... ./sinks/s3sink/...
	CI=true $(GO) test -count=1 -v -run 'Ledger|Held|LeftOut|Examples|DocumentsWork/(kafka|nats|postgres|s3)' ./cmd/weir

docs: ## write the references that follow from the code
	$(GO) run ./cmd/weir/internal/docgen -docs docs

release: ## static binaries for linux amd64 and arm64 and darwin arm64, into dist/
	deploy/build.sh linux/amd64 linux/arm64 darwin/arm64

deb: ## Debian packages for amd64 and arm64, into dist/
	deploy/build.sh deb-amd64 deb-arm64

package-check: ## build all that is released; it is reproducible, installs, starts and removes cleanly
	deploy/check.sh

clients: build ## build and test the clients of the languages whose toolchains are installed
	clients/check.sh

lint: ## formatting, vet, staticcheck and the import table
	@bad=$$(git ls-files -co --exclude-standard '*.go' | xargs $(GO) run $(GOFUMPT) -l); \
		if [ -n "$$bad" ]; then echo "not formatted (run: go run $(GOFUMPT) -w .):"; echo "$$bad"; exit 1; fi
	$(GO) vet ./...
	$(GO) vet -tags nokafka,nonats,nopostgres,nos3 ./sinks/... ./cmd/weir/...
	GOOS=darwin GOARCH=arm64 $(GO) build ./cmd/weir/... ./cmd/weida/... ./wab/... ./clients/go/...
	GOOS=windows $(GO) build ./weida ./weida/wire ./weida/transport/... ./cmd/weida
	GOOS=darwin $(GO) vet ./weida/... ./cmd/weida/...
	$(GO) run $(STATICCHECK) ./...
	$(GO) test -count=1 -run TestImports ./cmd/weir

demo: build ## push 20,000 records through two SIGKILLs and an outage, and check that none is lost
	$(GO) run ./cmd/weir/internal/demo -weir $(BIN)/weir

crash: ## every crash and fault point of the log, then CRASH_POINTS (default 100000) of random programs
	@log=$$(mktemp); CRASH_POINTS=$${CRASH_POINTS:-100000} $(GO) test -count=1 -timeout 0 -run 'Crash|Fail|Damage|Random|Kill|Heals|Seeds|Space|Producers' -v ./wab \
		>$$log 2>&1; status=$$?; grep -v '^=== \|^ *--- PASS' $$log; rm -f $$log; exit $$status

recover-bench: ## seconds and memory to open 10 GiB and 100,000 segments (needs 12 GiB in the temporary folder)
	$(GO) test -count=1 -timeout 0 -run '^$$' -bench Recover -benchtime 1x ./wab

fuzz: ## each fuzz target for FUZZTIME (default 10s)
	@for pkg in $$($(GO) list ./...); do \
		for target in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz'); do \
			echo "$$pkg $$target"; $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $${FUZZTIME:-10s} $$pkg || exit 1; \
		done; \
	done

clean: ## remove what the build made
	rm -rf $(BIN)

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

soak: build ## kills, endpoint faults and full disks for SOAK (default 1h), and the ledger at the end
	$(BIN)/weir-bench soak --for $${SOAK:-1h}

chaos: build ## producers, weir, a weida broker and consumers under kills, cut links and full disks for CHAOS (default 1h), and the ledger over all
	$(BIN)/weir-bench chaos --for $${CHAOS:-1h}

compare: build ## run the same work against Redis, NATS, beanstalkd, rsyslog, SQLite and bbolt (installs them: Debian, as root)
	@if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
		apt-get install -qy --no-install-recommends redis-server beanstalkd rsyslog rsyslog-relp >/dev/null || apt-get update -q; fi
	command -v nats-server >/dev/null || GOBIN=$(CURDIR)/$(BIN) GOFLAGS= $(GO) install github.com/nats-io/nats-server/v2@latest
	cd cmd/weir-bench/bolt && $(GO) build -o $(CURDIR)/$(BIN)/bolt-bench .
	$(BIN)/weir-bench compare

bench-smoke: build ## run each benchmark for a moment, so that they keep working
	$(BIN)/weir-bench ingest --duration 100ms --passes 1
	$(BIN)/weir-bench latency --duration 100ms --passes 1 --rates 1000,10000 --svg $(BIN)/latency.svg && grep -q polyline $(BIN)/latency.svg
	$(BIN)/weir-bench drain --passes 1 --records 10000
	$(BIN)/weir-bench recover --gib 0.05
	$(BIN)/weir-bench hostile --duration 200ms --passes 1 --peers 50
	$(BIN)/weir-bench delivery --duration 1s --passes 1
	$(BIN)/weir-bench weida --duration 50ms --passes 1 --large 16777216 --held 10
	$(BIN)/weir-bench forward --duration 50ms --passes 1 --records 2000
	$(BIN)/weir-bench soak --for 10s
	$(BIN)/weir-bench chaos --for 20s
	$(GO) test -run '^$$' -bench . -benchtime 1x ./...
