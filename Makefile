# How muster is built, checked, tested and tried. `make` lists the targets.

GO     ?= go
BIN    := bin/muster
# The Temporal that muster dev brings along, a Go module of its own: 4 to 9
# minutes at its first build, on 2 cores.
TEMPORAL := bin/muster-temporal
# More flags of its `go build`.
TEMPORAL_FLAGS ?=
# A folder of recordings for `make dev` in place of the simulated fleet, such as FACTS=testdata/fleet.
FACTS  ?=
# More flags of `muster dev`, such as DEV_FLAGS="--sites 4 --racks 68 --data-dir /tmp/large".
DEV_FLAGS ?=
# More flags of `go test`, such as TEST_FLAGS="-run Holds -v".
TEST_FLAGS ?=
# The packages that `make test` tests.
TEST ?= ./...

POSTGRES_VERSION := 18.4.0
POSTGRES_ARCH    := $(if $(filter aarch64 arm64,$(shell uname -m)),arm64v8,amd64)
POSTGRES_DIR     := bin/postgres-$(POSTGRES_VERSION)

.DEFAULT_GOAL := help
.PHONY: help build muster temporal temporal-behind dev check vet test test-peers bench bench-quick postgres generate

help: ## List the targets.
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

build: muster temporal ## Build bin/muster and bin/muster-temporal.

muster: ## Build bin/muster alone.
	$(GO) build -o $(BIN) ./cmd/muster

# It appears under its name when it is whole: a muster dev that waits for it
# starts it at once.
temporal: ## Build bin/muster-temporal alone.
	$(GO) -C cmd/muster-temporal build -ldflags '-s -w' $(TEMPORAL_FLAGS) -o $(CURDIR)/$(TEMPORAL).new .
	mv $(TEMPORAL).new $(TEMPORAL)

# Temporal is built behind the running muster, out of its way, and no longer than
# that runs; what was compiled counts at the next time.
dev: muster ## Build muster and run it on a simulated fleet, with servers of its own.
	@setsid nice -n 19 $(MAKE) -s temporal-behind 2>/dev/null & building=$$!; \
	  trap 'kill -- -$$building 2>/dev/null' EXIT; trap : INT TERM; \
	  $(BIN) dev $(if $(FACTS),--facts $(FACTS)) $(DEV_FLAGS)

temporal-behind:
	@$(MAKE) -s temporal TEMPORAL_FLAGS=-p=1 >$(TEMPORAL).log 2>&1 || \
	  echo "bin/muster-temporal is not built, so jobs wait: $(TEMPORAL).log says why"

vet: muster ## Vet and test the shipped policies.
	$(BIN) vet --strict --quiet
	$(BIN) test --coverage

check: muster ## Formats, linters, workflows, policies, generated files, imports.
	@unformatted=$$(gofmt -l .); \
	  if [ -n "$$unformatted" ]; then echo "not formatted, run gofmt -w:"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./...
	$(GO) tool staticcheck ./...
	$(GO) tool -modfile=tools/go.mod workflowcheck ./workflows/... ./operations/rack
	$(GO) tool cue fmt --check ./...
	$(GO) tool cue vet ./...
	$(GO) tool cue vet -c ./...
	$(BIN) vet --strict --quiet
	$(BIN) test --coverage >/dev/null || { $(BIN) test; exit 1; }
	$(GO) test ./facts/gen ./jobs/codes/gen .

generate: ## Write the generated files anew.
	$(GO) generate ./facts ./jobs/codes

test: ## Every test that needs no other system than PostgreSQL's programs.
	$(GO) test -race -timeout 20m $(TEST_FLAGS) $(TEST)

test-peers: ## The adapters and the whole against a real Ironic and real SLURMs; needs root.
	testdata/peers/run.sh $(TEST_FLAGS)

bench: ## Measure everything against its references, in one run.
	$(GO) -C bench run .

bench-quick: ## The same on less, as a smoke test.
	$(GO) -C bench run . -quick

postgres: $(POSTGRES_DIR)/bin/postgres ## Fetch PostgreSQL's programs with Maven, for --postgres-bin.
	@echo "use them: $(BIN) dev --postgres-bin $(CURDIR)/$(POSTGRES_DIR)"

$(POSTGRES_DIR)/bin/postgres:
	@command -v mvn >/dev/null || { echo "make postgres needs Maven; or install PostgreSQL with the system's packages (Debian: apt-get install postgresql)"; exit 1; }
	@command -v unzip >/dev/null || command -v python3 >/dev/null || { echo "make postgres needs unzip or python3"; exit 1; }
	rm -rf $(POSTGRES_DIR).new && mkdir -p $(POSTGRES_DIR).new
	mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy \
	  -Dartifact=io.zonky.test.postgres:embedded-postgres-binaries-linux-$(POSTGRES_ARCH):$(POSTGRES_VERSION) \
	  -DoutputDirectory=$(CURDIR)/$(POSTGRES_DIR).new -Dmdep.overWriteReleases=true
	cd $(POSTGRES_DIR).new && { unzip -q -o *.jar '*.txz' 2>/dev/null || python3 -m zipfile -e *.jar .; } && tar -xJf *.txz && rm -rf *.jar *.txz META-INF
	rm -rf $(POSTGRES_DIR) && mv $(POSTGRES_DIR).new $(POSTGRES_DIR)
