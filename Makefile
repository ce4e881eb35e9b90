# make test       everything that CI runs, set-up included (Go is all it needs to find)
# make test-full  the same, then every supported Kafka version and the long runs
# make help       all targets

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := build

GO ?= go
# Time for each fuzz target.
FUZZTIME ?= 2s
# Length of a proof, how many Produce requests are disturbed on each side of the
# proxies (one in so many), the mean pause between two faults of brokers and of proxies,
# and where it leaves its history. PROOF_SEED repeats one.
PROOF_SECONDS ?= 900
PROOF_ONE_IN ?= 800
PROOF_PAUSE_MS ?= 6000
PROOF_DIR ?= .cache/proof
# Kafka for e2e-kafka, the versions that test-full goes through, and the two that
# test does.
KAFKA_VERSION ?= 4.1.1
KAFKA_VERSIONS ?= 3.9.1 4.0.0 4.1.1 4.4.0
KAFKA_OLDEST = $(firstword $(KAFKA_VERSIONS))
KAFKA_NEWEST = $(lastword $(KAFKA_VERSIONS))
# What test leaves to the newest Kafka, for time: most of it is about clients and
# proxies, not about what kind of broker there is. test-full runs it everywhere.
ONLY_NEWEST = ^(TestStatusPage|TestClientMatrix|TestBypassGuard|TestRefusalsOfRealClients|TestRetriesOfRealClients|TestChainsOfRealClients|TestRuleChangesForRealClients|TestIdempotentClientsUnderEnforce|TestProxiesShareAPartition|TestNoWriterOfAPartitionStarves|TestDemoOnACluster|TestProxyLogsIn|TestSecuredBrokerAsksWhoOneIs|TestAttack.*|TestProof|TestTwins|TestClocksThatJump|TestProxyThatWasSuspended|TestBadInputHarmsNobodyElse|TestBombs.*|TestBrokerThatComesBackIsProbedAgain|TestManyPartitions.*|TestSickPartition.*|TestRaceWithAppendTime|TestRaceWhile.*|TestRaceOnA.*|TestWritersThatBypass.*|TestJavaClient|TestPythonClient|TestNodeClient|TestKcat.*|TestRealBrokerLives.*|TestReplicasThatFail.*|TestEqualRecords.*|TestAppendAndNext|TestExample.*|TestServe.*|TestWhyBrokersMustNotForgetTooSoon|TestTooFewReplicas|TestTopicsThatCanLoseRecordsAreNamed|TestRaceWithoutTheFenceIsLost|TestWritersOfAllKindsShareAPartition|TestObserve|TestRuleOptions|TestOldRecordsAreRefused|TestReloadUnderLoad|TestProofBuildServes|TestOnlyTheProofBuildCanBreakPromises|TestCopiesByRelaysAreTransmissions|TestRowsOfSightings|TestLongAppendsShareABoundedMemory|TestReadOnlyListenerForRealClients|TestSIGTERMUnderLoadLosesNothing|TestSessionsAreRenewed|TestClientThatLeavesWhileItWaits|TestInTLS|TestIdleConnections.*|TestNothingInFlight.*|TestLeaksAreFound|TestDescriptorsAreTold|TestManifests.*)|^TestRights/missing|^TestDoctor/proxies
# What test leaves to test-full on the newest Kafka too: restarts of whole clusters in
# TLS, a cluster for one configuration alone, what TestClientMatrix does with the same
# clients, and the status page, for which the embedded brokers do.
ONLY_FULL = ^(TestStatusPage|TestManifestsGatewayLogsIn|TestJavaClient|TestPythonClient|TestSessionsAreRenewed)|^TestInTLS/^(EverythingIsRenewed|StrangersUpstream|NodesComeAndGo)
# How many end-to-end tests of those that mostly wait run at once (besideOthers).
E2E_BESIDE ?= 3
E2E_PACKAGES ?= ./internal/kafkacluster ./e2e
# Linters live in a module of their own, to stay out of the product's go.mod.
STATICCHECK = $(GO) tool -modfile=tools/go.mod staticcheck
UNIT_PACKAGES = $$($(GO) list ./... | grep -v '/e2e\(/\|$$\)')

.PHONY: help
help: ## list the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

.PHONY: build
build: ## bin/offsetproxy
	$(GO) build -o bin/offsetproxy ./cmd/offsetproxy

.PHONY: test
test: ## all that CI runs
	@$(call run_steps,check manifests alerts unit fuzz e2e e2e-newest e2e-oldest)

.PHONY: test-full
test-full: ## test, then all Kafka versions and long runs
	@$(call run_steps,test fuzz-long e2e-versions)

.PHONY: check
check: ## format, vet, staticcheck, architecture
	@unformatted=$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go')); \
	if [ -n "$$unformatted" ]; then echo "not formatted by gofmt:"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./...
	$(GO) vet -tags proof ./...
	$(GO) -C e2e/clients/go vet ./...
	$(STATICCHECK) ./...
	$(GO) test ./internal/architecture

.PHONY: manifests
manifests: ## deploy/k8s by Kubernetes' own validation
	@# What it reads lies outside of its module, so that a kept result could be an old one.
	$(GO) -C deploy/k8s/check test -count=1 -vet=off ./...

.PHONY: alerts
alerts: ## deploy/prometheus and deploy/grafana by Prometheus' own parsers
	$(GO) -C deploy/prometheus/check test -count=1 -vet=off ./...

.PHONY: unit
unit: ## unit tests with the race detector; allocations, memory and the long model without
	$(GO) test -race $(UNIT_PACKAGES)
	$(GO) test -run='Allocates|MemoryFlat|SeesEachLimit|Socket' ./wire ./fence ./proxy
	@$(MAKE) --no-print-directory model

.PHONY: model
model: ## the model of the fence under random faults, on all cores; how many steps of it
	@log=$$(mktemp); trap 'rm -f "$$log"' EXIT; started=$$SECONDS; \
	if ! $(GO) test -v -count=1 -run='Model|Twins|UnknownDoesNot' ./fence >"$$log" 2>&1; then cat "$$log"; exit 1; fi; \
	sed -n 's/^.*_test.go:[0-9]*: \(world .* a second\).*/\1/p' "$$log"; \
	awk -v took=$$((SECONDS-started)) '/: world /{for (i=1; i<NF; i++) { if ($$(i+1)=="steps,") all+=$$i; if ($$(i+1)=="faulty;") faulty+=$$i }} END {printf "model: %d steps, %d of them with faults, in %d s\n", all, faulty, took}' "$$log"

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME
	@# On a busy machine Go sometimes reports the end of its own time as a failure, without
	@# an input that failed: such a target is fuzzed again.
	@built=$$(mktemp -d); trap 'rm -rf "$$built"' EXIT; corpus=$$($(GO) env GOCACHE)/fuzz; module=$$($(GO) list -m); found=0; \
	while IFS=: read -r file target; do \
	  found=$$((found+1)); dir=$$(dirname $$file); binary=$$built/$${dir//\//-}; echo "fuzz $$target in $$dir for $(FUZZTIME)"; \
	  if [ ! -e $$binary ]; then $(GO) test -c -fuzz=. -o $$binary ./$$dir; fi; \
	  for try in 1 2 3; do status=0; \
	    (cd $$dir && $$binary -test.run='^$$' -test.fuzz="^$$target\$$" -test.fuzztime=$(FUZZTIME) -test.fuzzcachedir=$$corpus/$$module/$$dir) 2>&1 | tee $$built/log || status=$$?; \
	    if [ $$status = 0 ]; then break; fi; \
	    if [ $$try = 3 ] || ! grep -q '^    context deadline exceeded' $$built/log || grep -q 'Failing input' $$built/log; then exit 1; fi; \
	    echo "Go took the end of the time for a failure: once more"; \
	  done; \
	done < <(git ls-files -co --exclude-standard '*_test.go' | xargs grep -oE '^func Fuzz[A-Za-z0-9_]*' /dev/null | sed 's/func //'); \
	if [ $$found = 0 ]; then echo "no fuzz target found"; exit 1; fi; \
	echo "$$found fuzz targets passed"

.PHONY: fuzz-long
fuzz-long:
	@$(MAKE) --no-print-directory fuzz FUZZTIME=60s

.PHONY: e2e
e2e: ## black box tests on the embedded broker
	$(GO) test -race -count=1 -parallel $(E2E_BESIDE) -timeout 10m ./e2e

.PHONY: e2e-kafka
e2e-kafka: ## black box tests on three real brokers of KAFKA_VERSION
	OFFSETPROXY_E2E=kafka KAFKA_VERSION=$(KAFKA_VERSION) $(GO) test -race -count=1 -parallel $(E2E_BESIDE) -timeout 20m -p 1 $(if $(E2E_SKIP),-skip '$(E2E_SKIP)') $(E2E_PACKAGES)

.PHONY: e2e-newest
e2e-newest: ## the same on the newest version
	@$(MAKE) --no-print-directory e2e-kafka KAFKA_VERSION=$(KAFKA_NEWEST) E2E_SKIP='$(ONLY_FULL)'

.PHONY: e2e-oldest
e2e-oldest: ## and on the oldest, but for what is about clients alone
	@$(MAKE) --no-print-directory e2e-kafka KAFKA_VERSION=$(KAFKA_OLDEST) E2E_SKIP='$(ONLY_NEWEST)' E2E_PACKAGES=./e2e

.PHONY: e2e-versions
e2e-versions: ## long e2e-kafka on each of KAFKA_VERSIONS
	@for version in $(KAFKA_VERSIONS); do \
	  OFFSETPROXY_E2E_LONG=1 $(MAKE) --no-print-directory e2e-kafka KAFKA_VERSION=$$version; \
	done

.PHONY: proof
proof: ## verify on real brokers and three proxies for PROOF_SECONDS, with all faults on; keeps what it saw in PROOF_DIR
	OFFSETPROXY_E2E=kafka KAFKA_VERSION=$(KAFKA_VERSION) OFFSETPROXY_PROOF_SECONDS=$(PROOF_SECONDS) OFFSETPROXY_PROOF_ONE_IN=$(PROOF_ONE_IN) \
	OFFSETPROXY_PROOF_PAUSE_MS=$(PROOF_PAUSE_MS) OFFSETPROXY_PROOF_DIR=$(abspath $(PROOF_DIR)) $(if $(PROOF_SEED),OFFSETPROXY_PROOF_SEED=$(PROOF_SEED)) \
	  $(GO) test -count=1 -v -timeout 24h -run '^TestProof$$' ./e2e

.PHONY: bench
bench: build ## measures of the proxy beside direct and bare relays; more by BENCH, as in BENCH='--measure one --json FILE'
	$(GO) build -o bin/bench ./bench
	KAFKA_VERSION=$(KAFKA_VERSION) bin/bench --start --program bin/offsetproxy $(BENCH)

.PHONY: golden
golden: ## capture the Produce frames of real clients again into wire/testdata/golden
	OFFSETPROXY_E2E=kafka KAFKA_VERSION=$(KAFKA_VERSION) $(GO) test -count=1 -timeout 10m -run='^TestCaptureGoldenFrames$$' ./e2e -args -golden=$(CURDIR)/wire/testdata/golden

.PHONY: clean
clean: ## remove what the targets made in the tree
	rm -rf bin .cache

# run_steps makes targets one after the other and ends with a line for each.
define run_steps
summary=; \
for step in $(1); do \
  started=$$SECONDS; echo "== $$step"; \
  if ! $(MAKE) --no-print-directory $$step; then printf '%s' "$$summary"; echo "FAIL  $$step  $$((SECONDS-started)) s"; exit 1; fi; \
  summary+=$$(printf '%-4s  %-12s  %4d s' ok $$step $$((SECONDS-started)))$$'\n'; \
done; \
echo "== summary"; printf '%s' "$$summary"; echo "PASS  $@ in $$SECONDS s"
endef
