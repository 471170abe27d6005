# Catena: what a newcomer needs is "make run" and "make test". "make help" lists all targets.

GO ?= go
# LDFLAGS carry the version. Without -buildvcs=false a build fails in a directory of another user.
export GOFLAGS := $(strip $(shell $(GO) env GOFLAGS) -buildvcs=false)

# The release of Kubernetes that Catena is built from: its version, as go.mod says; the time of
# its commit; and the commit's hash, which some module proxies pass on and others do not.
# KUBE=1.36 is another release, that of versions/1.36/go.mod.
KUBE_FLAGS   := $(if $(wildcard versions/$(KUBE)/go.mod),-modfile=versions/$(KUBE)/go.mod -tags kube$(KUBE))
KUBE_VERSION := $(shell $(GO) list $(KUBE_FLAGS) -m -f '{{.Version}}' k8s.io/kubernetes)
KUBE_MINOR    = $(subst $() $(),.,$(wordlist 1,2,$(subst ., ,$(patsubst v%,%,$(KUBE_VERSION)))))
KUBE_ORIGIN  := $(shell $(GO) list $(KUBE_FLAGS) -m -f '{{with .Time}}{{.Format "2006-01-02T15:04:05Z"}}{{end}} {{with .Origin}}{{.Hash}}{{end}}' \
	k8s.io/kubernetes@$(KUBE_VERSION))
KUBE_TIME    := $(word 1,$(KUBE_ORIGIN))
# For the proxies that do not. Another release in go.mod needs another line:
# git ls-remote https://github.com/kubernetes/kubernetes 'VERSION^{}'
KUBE_COMMIT_v1.37.0 := f54c212e3a2f75d674b717a9b29052b20b60aefc
KUBE_COMMIT  := $(or $(word 2,$(KUBE_ORIGIN)),$(KUBE_COMMIT_$(KUBE_VERSION)))
# The version of Catena is that of the file VERSION: of a release as it is, before one with the commit, v0.1.0-dev+1a2b3c4.
RELEASE      := v$(shell cat VERSION)
VERSION      ?= $(RELEASE)$(if $(filter %-dev,$(RELEASE)),$(addprefix +,$(subst -,.,$(shell git describe --always --dirty --exclude '*' 2>/dev/null))))
# What k8s.io/component-base/version reports, and client-go's user agents. The build date is that of the release, so that
# the same sources give the same binaries.
TOOL_LDFLAGS := -s -w $(foreach package,component-base/version client-go/pkg/version,$(addprefix -X k8s.io/$(package)., \
	gitVersion=$(KUBE_VERSION) \
	gitMajor=$(patsubst v%,%,$(word 1,$(subst ., ,$(KUBE_VERSION)))) \
	gitMinor=$(word 2,$(subst ., ,$(KUBE_VERSION))) \
	gitCommit=$(KUBE_COMMIT) $(if $(KUBE_COMMIT),gitTreeState=clean) \
	$(if $(KUBE_TIME),buildDate=$(KUBE_TIME))))
LDFLAGS      := $(TOOL_LDFLAGS) -X main.version=$(VERSION)

STAGES := aggregator core extensions
BUILTIN := $(STAGES) controllers
STAGES_DIR = bin/kube-$(KUBE_MINOR)
OTHER_KUBES := $(notdir $(wildcard versions/*))
comma  := ,
CONTROL_PLANE := $(addprefix kubernetes/cmd/,kube-apiserver kube-controller-manager kube-scheduler)
TOOLS  := $(CONTROL_PLANE) $(if $(KUBE_FLAGS),,kubernetes/cmd/kubectl sample-apiserver)
TOOLS_DIR := $(if $(KUBE_FLAGS),bin/kube-$(KUBE_MINOR)/tools,bin/tools)

# The tests of the stages in other languages than Go.
LANGUAGES := ^(TestOtherLanguages|TestPythonProtocol)$$

# Tests whose binaries link Kubernetes' servers or etcd's take ten more minutes to compile with the race detector. They run without it.
SERVERS := k8s[.]io/kubernetes/|k8s[.]io/apiserver/pkg/server |go[.]etcd[.]io/etcd/server/
# $(call tests,PACKAGES,-v) are those of the packages whose tests link none of these; with -e in the place of -v those whose tests do.
tests = $(shell $(GO) list -test -f '{{.ImportPath}} {{join .Deps " "}} ' $(1) | grep '^[^ ]*[.]test ' | grep -E $(2) ' ($(SERVERS))' | sed 's/[.]test .*//')
SOURCES := host sdk internal plugins examples test packaging
UNIT  := ./host/... ./sdk/... ./internal/... ./plugins/... ./examples/... ./test/compatible
RACE   = $(if $(filter 1,$(shell $(GO) env CGO_ENABLED)),-race)

# $(call gotestsum,NAME) is go test with a summary. No test is run twice to pass. How long each took is in bin/tests/NAME.json, for "make slowest".
gotestsum = mkdir -p bin/tests && $(GO) tool gotestsum --format=standard-quiet --hide-summary=skipped --jsonfile-timing-events=bin/tests/$(1).json
TIMEOUT  ?= 25m

# CHANGED are the packages with files that differ from BASE: from where the branch left the origin's, without an origin from the last commit but one.
BASE   ?= $(shell git merge-base HEAD origin/HEAD 2>/dev/null || git rev-parse -q --verify HEAD~1)
CHANGED = $(shell { git diff --name-only $(BASE); git ls-files --others --exclude-standard; } | while read -r f; do d=$${f%%/testdata/*}; \
	until [ -e $$d/go.mod ] || ls $$d/*.go >/dev/null 2>&1; do d=$$(dirname $$d); done; [ -e $$d/go.mod ] || echo ./$$d; done | sort -u)
UNIT_CHANGED = $(filter ./host/% ./sdk ./sdk/% ./internal/% ./plugins/% ./examples/% ./test/compatible,$(CHANGED))
FAST_CHANGED = $(if $(UNIT_CHANGED),$(call tests,$(UNIT_CHANGED),-v))
SLOW_CHANGED = $(if $(UNIT_CHANGED),$(call tests,$(UNIT_CHANGED),-e))

.PHONY: all help slowest unit-fast unit-slow test-busy test-system programs go-examples python test-all test-other-release test-thirdparty test-languages build stages $(BUILTIN) versions run demo-upgrade demo-watch kubectl examples tools cross dist dist-program dist-check clean test lint check test-unit test-packaging test-e2e test-conformance test-clients test-alerts test-browser test-kubernetes chaos chaos-upgrade chaos-hosts rest fuzz-stage \
	bench bench-lifecycle bench-apiserver pgo generate generate-python

all: build

help: ## this list
	@awk 'BEGIN { FS = ":.*## " } /^##@ / { print "\n" substr($$0, 5) } /^[a-z0-9-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

##@ Build and run

build: ## bin/catena, and bin/plugins/catena-stage-*, which are links to it
	@[ -z '$(KUBE_FLAGS)' ] || { echo "KUBE=$(KUBE): the host is of $(shell $(GO) list -m -f '{{.Version}}' k8s.io/kubernetes) only"; exit 1; }
	$(GO) build -ldflags '$(LDFLAGS)' -o bin/catena ./host
	@mkdir -p bin/plugins
	@for s in $(BUILTIN); do ln -f bin/catena bin/plugins/catena-stage-$$s || exit 1; done

$(BUILTIN): stages

# The first of them is the program, which is each of them by its name.
stages: ## bin/kube-1.36/catena-stage-* with KUBE=1.36: all stages of another release of Kubernetes; each release with KUBE=all
ifeq ($(KUBE),all)
	@for k in '' $(OTHER_KUBES); do $(MAKE) --no-print-directory $@ KUBE=$$k || exit 1; done
else
	@[ -z '$(KUBE)' ] || [ '$(KUBE)' = '$(KUBE_MINOR)' ] || { echo "KUBE=$(KUBE): there are $(KUBE_MINOR) $(OTHER_KUBES)"; exit 1; }
	$(GO) build $(KUBE_FLAGS) -ldflags '$(LDFLAGS)' -o $(STAGES_DIR)/catena-stage-$(firstword $(BUILTIN)) ./plugins/kubernetes
	@for s in $(wordlist 2,9,$(BUILTIN)); do ln -f $(STAGES_DIR)/catena-stage-$(firstword $(BUILTIN)) $(STAGES_DIR)/catena-stage-$$s || exit 1; done
endif

run: ## serves the chain of configs/catena.yaml in the foreground, data in ./data
	@echo 'building: the first time it takes minutes'
	@$(MAKE) -s build kubectl
	@command -v kubectl >/dev/null || echo 'there is no kubectl in PATH: in the other terminal, $(CURDIR)/bin/tools/kubectl is one'
	@bin/catena serve --config configs/catena.yaml

demo-upgrade: build ## core goes to another release and back, while clients use it and their failures are counted
	@$(MAKE) --no-print-directory stages KUBE=1.36
	$(GO) build -o bin/demo-load ./examples/upgrade/load
	@examples/upgrade/demo.sh

demo-watch: build kubectl ## one "kubectl get --watch" goes on while the process that serves it is replaced, killed and shares its clients
	@examples/watch/demo.sh

kubectl: ## bin/tools/kubectl, of the same release
	@mkdir -p bin/tools
	$(GO) build -ldflags '$(TOOL_LDFLAGS)' -o bin/tools/kubectl k8s.io/kubernetes/cmd/kubectl

EXAMPLES := $(patsubst examples/%/main.go,%,$(wildcard examples/*/main.go))

# Sources of examples/node-hello, relative to it.
NODE_SOURCES := stage.ts tsconfig.json package.json package-lock.json ../../sdk/stagev1/stage.proto
# By default npm takes more than a minute to report that there is no network. A missing network
# skips the example; a lock file that does not match package.json or the packages is an error.
NPM_CI := npm ci --no-audit --no-fund --loglevel=error --prefer-offline --fetch-retry-mintimeout=1000 --fetch-retry-maxtimeout=5000

go-examples:
	@mkdir -p bin/examples
	@for s in $(EXAMPLES); do \
		echo "$(GO) build -o bin/examples/catena-stage-$$s ./examples/$$s"; \
		$(GO) build -ldflags '$(LDFLAGS)' -o bin/examples/catena-stage-$$s ./examples/$$s || exit 1; \
	done

python: # for the stage in Python, and for the one of test/hostile
	@/usr/bin/python3 -c 'import grpc, google.protobuf' 2>/dev/null || \
		{ [ "$$(id -u)" = 0 ] && apt-get -o Acquire::Retries=0 -o Acquire::http::Timeout=20 install -y --no-install-recommends python3-grpcio python3-protobuf; } || \
		echo "no python3-grpcio and python3-protobuf: examples/python-hello is not tested"

examples: go-examples python ## bin/examples/catena-stage-*, and the packages for the examples in TypeScript and Python
	@cd examples/node-hello; \
	if [ -e node_modules/.package-lock.json ] && [ -z "$$(find $(NODE_SOURCES) -newer build/stage.js 2>&1)" ]; then :; \
	elif ! command -v npm >/dev/null; then echo "no npm: examples/node-hello is not tested"; \
	elif [ node_modules/.package-lock.json -nt package-lock.json ] || \
		{ echo "npm ci in examples/node-hello" && out=$$($(NPM_CI) 2>&1); }; then \
		echo "npm run build in examples/node-hello" && npm run --silent build; \
	else \
		case "$$out" in *EUSAGE*|*EINTEGRITY*) echo "$$out" | head -n 8; exit 1;; esac; \
		echo "npm cannot download packages ($$(echo "$$out" | head -n 1)): examples/node-hello is not tested"; \
	fi

programs:
	@mkdir -p $(TOOLS_DIR)
	@for t in $(TOOLS); do \
		echo "$(GO) build -o $(TOOLS_DIR)/ k8s.io/$$t"; \
		$(GO) build $(KUBE_FLAGS) -ldflags '$(TOOL_LDFLAGS)' -o $(TOOLS_DIR)/ k8s.io/$$t || exit 1; \
	done
ifeq ($(KUBE_FLAGS),)
	$(GO) build -ldflags '-s -w' -o bin/tools/etcd go.etcd.io/etcd/server/v3
endif

tools: programs ## bin/tools: the programs of Kubernetes, and etcd, that the tests run; bin/kube-1.36: those of another release; KUBE=1.36 for all of them
ifeq ($(KUBE_FLAGS),)
	@$(MAKE) --no-print-directory stages KUBE=1.36
	@$(MAKE) --no-print-directory programs KUBE=1.36 TOOLS=kubernetes/cmd/kube-apiserver
endif

cross: ## builds for linux/arm64 and darwin/arm64, on which no test runs
	GOOS=linux GOARCH=arm64 CGO_ENABLED=0 $(GO) build -pgo=off ./host/... ./sdk/... ./internal/... ./plugins/...
	GOOS=darwin GOARCH=arm64 CGO_ENABLED=0 $(GO) build -pgo=off ./host/... ./sdk/... ./internal/... ./plugins/...

# The time of all files of a release. The same commit gives the same files, wherever they are built.
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct)
ARCHS ?= amd64 arm64

dist: ## bin/dist: archives, packages for Debian and Fedora, an image, SBOMs and checksums; ARCHS=amd64 for one architecture
	rm -rf bin/dist
	@$(MAKE) --no-print-directory dist-program PROGRAM=host NAME=catena
	@for k in $(OTHER_KUBES); do $(MAKE) --no-print-directory dist-program KUBE=$$k PROGRAM=plugins/kubernetes NAME=kube-$$k || exit 1; done
	SOURCE_DATE_EPOCH=$(SOURCE_DATE_EPOCH) $(GO) run ./host/internal/cli/clidocs $(VERSION) bin/dist/build
	cd packaging && SOURCE_DATE_EPOCH=$(SOURCE_DATE_EPOCH) $(GO) run . -version $(VERSION) -releases '$(OTHER_KUBES)' $(ARCHS)
	rm -rf bin/dist/build
	@cat bin/dist/SHA256SUMS

dist-program:
	@for a in $(ARCHS); do \
		echo "$(GO) build -o bin/dist/build/$$a/$(NAME) ./$(PROGRAM)"; \
		GOOS=linux GOARCH=$$a CGO_ENABLED=0 $(GO) build $(KUBE_FLAGS) -trimpath -ldflags '$(LDFLAGS)' -o bin/dist/build/$$a/$(NAME) ./$(PROGRAM) || exit 1; \
	done

dist-check: test-packaging ## makes bin/dist twice, from copies of the last commit in other directories, and compares
	rm -rf bin/dist-check
	@for copy in one another/one; do \
		mkdir -p bin/dist-check/$$copy && git archive HEAD | tar -x -C bin/dist-check/$$copy && \
		$(MAKE) --no-print-directory -C bin/dist-check/$$copy dist VERSION=$(VERSION) SOURCE_DATE_EPOCH=$(SOURCE_DATE_EPOCH) || exit 1; \
	done
	diff -r bin/dist-check/one/bin/dist bin/dist-check/another/one/bin/dist
	rm -rf bin/dist-check

clean: ## removes bin
	rm -rf bin

##@ Test

# Without a profile (host/default.pgo) all of Kubernetes is compiled once, for bin/catena as for tools and tests.
test test-all test-busy check: export GOFLAGS := $(GOFLAGS) -pgo=off

test: build programs go-examples python lint test-unit test-e2e $(addprefix unless-tested-,packaging thirdparty languages other-release browser) ## everything that CI runs

test-all: export ALL := 1
test-all: test ## the same, also what has not changed since it passed last

check: build kubectl ## minutes, before each commit: format, go vet, staticcheck and tests of what has changed, the rules, a server from start to end; BASE=main
	@test -z "$$(gofmt -l $(SOURCES))" || { gofmt -d $(SOURCES); exit 1; }
	$(GO) vet $(CHANGED) ./test/rules ./test/smoke
	$(STATICCHECK) $(CHANGED) ./test/rules ./test/smoke
	$(GO) test -vet=off ./test/rules
	$(if $(FAST_CHANGED),$(GO) test -vet=off $(RACE) $(FAST_CHANGED))
	$(if $(SLOW_CHANGED),$(GO) test -vet=off $(SLOW_CHANGED))
	CATENA_BIN=$(CURDIR)/bin $(GO) test -vet=off -count=1 ./test/smoke

# staticcheck's results are cached beside those of the Go compiler: what keeps one cache keeps both.
STATICCHECK = STATICCHECK_CACHE=$${STATICCHECK_CACHE:-$$($(GO) env GOCACHE)/staticcheck} $(GO) tool staticcheck

lint: ## gofmt, go vet, staticcheck, and actionlint for .github/workflows
	@test -z "$$(gofmt -l $(SOURCES))" || { gofmt -d $(SOURCES); exit 1; }
	$(GO) vet ./...
	$(STATICCHECK) ./...
	$(GO) run github.com/rhysd/actionlint/cmd/actionlint@v1.7.12

test-unit: unit-fast unit-slow ## the tests of all packages, without those in test; what compiles quickly under the race detector

unit-fast:
	@[ -n '$(RACE)' ] || echo "no C compiler: the race detector is not run"
	$(call gotestsum,unit-fast) --packages='$(call tests,$(UNIT),-v)' -- -vet=off -timeout $(TIMEOUT) -skip '$(LANGUAGES)' $(RACE)

unit-slow:
	$(call gotestsum,unit-slow) --packages='$(call tests,$(UNIT),-e)' -- -vet=off -timeout $(TIMEOUT)

# What costs minutes and depends on little is left out while that is what it was when it passed last.
# $(call fingerprint,NAME) is that of the files of INPUTS_NAME and of the compiler.
include test/inputs.mk
fingerprint = $(shell { $(GO) env GOVERSION GOOS GOARCH; git rev-parse HEAD >/dev/null 2>&1 || date +%s%N; git ls-files -z -co --exclude-standard -- $(INPUTS_$(1)) | xargs -0 sha256sum; } 2>&1 | sha256sum | cut -c1-64)

# test-NAME, unless it has passed with these files before. test/tested.txt, which it writes then, is part of the commit.
# Make executes a line with $(MAKE) also with -n: what writes is a line of its own.
unless-tested-%:
	@if [ -z '$(ALL)' ] && grep -qxF '$* $(call fingerprint,$*)' test/tested.txt; then \
		echo "test-$*: not again, INPUTS_$* of test/inputs.mk are what they were when it passed: $(call fingerprint,$*)"; \
	else \
		$(MAKE) --no-print-directory test-$*; \
	fi
	@if { $(or $(NEEDS_$*),true); } >/dev/null 2>&1; then \
		{ grep -v '^$* ' test/tested.txt; echo '$* $(call fingerprint,$*)'; } | LC_ALL=C sort > bin/tested.txt && mv bin/tested.txt test/tested.txt; \
	fi

slowest: ## the thirty longest tests of the last "make test"
	@cat bin/tests/*.json | $(GO) tool gotestsum tool slowest --num 30 --threshold 1s | awk '{ print $$3, $$2, $$1 }'

test-packaging: build programs ## what is in the archives, packages, images and SBOMs of a release, and kubeadm's static pod with its image
	cd packaging && $(GO) vet . && $(GO) test -count=1 .
	CATENA_BIN=$(CURDIR)/bin $(GO) test -vet=off -count=1 ./test/system -run '$(OF_THE_IMAGE)'

# What a history of test/chaos, or a stage at random of test/fuzz, shows is not asked twice.
test-e2e: ## the tests in test: real processes, kubectl, controllers, comparison with kube-apiserver, crashes
	export CATENA_BIN=$(CURDIR)/bin; $(call gotestsum,e2e) --packages='$(addprefix ./test/,e2e conformance rules smoke)' -- -vet=off -count=1 -timeout $(TIMEOUT) -p 2
	export CATENA_BIN=$(CURDIR)/bin; $(call gotestsum,system) --packages='$(addprefix ./test/,hostile system)' -- -vet=off -count=1 -timeout $(TIMEOUT) -p 1 -skip '$(OTHER_RELEASE)|$(OF_THE_IMAGE)'
	export CATENA_BIN=$(CURDIR)/bin; $(call gotestsum,chaos) --packages='$(addprefix ./test/,chaos fuzz)' -- -vet=off -count=1 -timeout $(TIMEOUT) -p 2 -skip '$(OTHER_RELEASE)|$(OF_THE_IMAGE)'

# No test may fail because a machine is slow.
test-busy: build programs go-examples python ## test-unit and test/system beside six busy loops, which have most of the machine
	@for i in 1 2 3 4 5 6; do sh -c 'while :; do :; done' & loops="$$loops $$!"; done; trap "kill $$loops" EXIT; trap 'exit 1' INT TERM HUP; \
	$(MAKE) --no-print-directory -k test-unit test-system TIMEOUT=90m

test-system: build programs
	export CATENA_BIN=$(CURDIR)/bin; $(call gotestsum,system) --packages=./test/system -- -vet=off -count=1 -timeout $(TIMEOUT) -skip '$(OTHER_RELEASE)|$(OF_THE_IMAGE)'

# The test of the image of a release.
OF_THE_IMAGE := ^TestStaticPodOfTheImage$$

# The tests that need stages of another release of Kubernetes.
OTHER_RELEASE := ^(TestCanary|TestUpgradesDocument|TestUpgrade|TestUpgradeEmulated|TestUpgradeVersion|TestEveryMove)$$

test-other-release: build tools ## core, and the moves to and from it, of another release of Kubernetes
	export CATENA_BIN=$(CURDIR)/bin; $(call gotestsum,conformance-1.36) --packages=./test/conformance -- -vet=off -count=1 -args -kube=1.36
	export CATENA_BIN=$(CURDIR)/bin; $(call gotestsum,system-1.36) --packages=./test/system -- -vet=off -count=1 -run '$(OTHER_RELEASE)'
	export CATENA_BIN=$(CURDIR)/bin; $(call gotestsum,chaos-1.36) --packages=./test/chaos -- -vet=off -count=1 -timeout $(TIMEOUT) -run '$(OTHER_RELEASE)'

KUBERNETES_TESTS = $(CURDIR)/bin/tests/kubernetes

test-kubernetes: build programs ## some of Kubernetes' integration tests, on Catena in the place of kube-apiserver; needs a network; TESTS=integration/secrets for some of them
	rm -rf $(KUBERNETES_TESTS) && mkdir -p $(dir $(KUBERNETES_TESTS))
	cp -r "$$($(GO) list -m -f '{{.Dir}}' k8s.io/kubernetes)" $(KUBERNETES_TESTS) && chmod -R u+w $(KUBERNETES_TESTS)
	cd $(KUBERNETES_TESTS) && rm -rf go.work go.work.sum vendor && sed -i "s#=> ./staging/src/\\(k8s.io/[a-z0-9-]*\\)#=> \\1 $$(cd $(CURDIR) && $(GO) list -m -f '{{.Version}}' k8s.io/api)#" go.mod
	cp test/kubernetes/testdata/testserver.go $(KUBERNETES_TESTS)/cmd/kube-apiserver/app/testing/
	mkdir -p bin/tests/in-place && ln -sf $(CURDIR)/bin/catena bin/tests/in-place/kube-apiserver
	cd $(KUBERNETES_TESTS) && grep '$(TESTS)' $(CURDIR)/test/kubernetes/tests.txt | while read package tests; do \
		GOWORK=off GOFLAGS='$(GOFLAGS) -mod=mod -pgo=off' PATH="$(CURDIR)/bin/tools:$$PATH" KUBE_APISERVER=$(CURDIR)/bin/tests/in-place/kube-apiserver \
			$(GO) test -vet=off -count=1 -timeout $(TIMEOUT) -run "^($$tests)$$" ./test/$$package </dev/null || exit 1; \
	done

test-thirdparty: build kubectl ## what "catena stage new" writes, in a module of its own, and the tutorial as it stands
	CATENA_BIN=$(CURDIR)/bin $(GO) test -vet=off -count=1 -timeout $(TIMEOUT) ./test/thirdparty

test-languages: examples ## the stages in TypeScript and Python
	$(GO) test -vet=off -count=1 ./host/internal/stagecheck -run '$(LANGUAGES)'

test-conformance: ## test/conformance; with KUBE=1.36 core, and then all stages, and kube-apiserver are of that release
	@$(MAKE) --no-print-directory build tools KUBE=
ifneq ($(KUBE_FLAGS),)
	@$(MAKE) --no-print-directory tools stages KUBE=$(KUBE)
	CATENA_BIN=$(CURDIR)/bin $(GO) test -count=1 ./test/conformance -kube=$(KUBE)
	CATENA_BIN=$(CURDIR)/bin $(GO) test -count=1 ./test/conformance -kube=$(KUBE) -stages $(subst $() $(),$(comma),$(STAGES))
else
	CATENA_BIN=$(CURDIR)/bin $(GO) test -count=1 ./test/conformance
endif

test-clients: build tools ## controller-runtime's envtest, helm and kwokctl against Catena under the name kube-apiserver
	@mkdir -p bin/clients
	cd test/clients && $(GO) build -ldflags '-s -w' -o $(CURDIR)/bin/clients/ tool
	cd test/clients && $(GO) vet . && CATENA_BIN=$(CURDIR)/bin $(GO) test -count=1 -timeout 15m .

# Chromium comes from Debian's packages where there is none; without it, and without npm, what needs them is left out.
test-browser: build ## the page at /debug/catena/ in Chromium, and by the rules of axe-core
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || \
		{ [ "$$(id -u)" = 0 ] && apt-get -o Acquire::Retries=0 -o Acquire::http::Timeout=20 install -y --no-install-recommends chromium >/dev/null 2>&1; } || \
		echo "no Chromium: the page is not tested in a browser"
	@cd test/browser; if ! command -v npm >/dev/null; then echo "no npm: axe-core is not run"; else \
		[ node_modules/.package-lock.json -nt package-lock.json ] || $(NPM_CI) || echo "npm cannot download axe-core: it is not run"; fi
	cd test/browser && $(GO) vet . && CATENA_BIN=$(CURDIR)/bin $(GO) test -count=1 -timeout 10m .

PROMTOOL := $(GO) run -tags remove_all_sd github.com/prometheus/prometheus/cmd/promtool@v0.316.0

test-alerts: ## promtool's tests of the alert rules in configs/prometheus
	cd test/prometheus && $(PROMTOOL) test rules rules_test.yaml
	$(PROMTOOL) check config --syntax-only configs/prometheus/prometheus.yaml

chaos: build ## half an hour of random faults and changes under load; SEED=7 repeats a run's choices
	CATENA_BIN=$(CURDIR)/bin $(GO) test ./test/chaos -run RandomEvents -v -count=1 -timeout 90m -chaos.for=30m $(if $(SEED),-chaos.seed=$(SEED))

chaos-upgrade: ## the same with core that goes to 1.37 and back, and Kubernetes' controllers of 1.36; FOLLOW=1 takes those to 1.37 too
	@$(MAKE) --no-print-directory build tools
	@$(MAKE) --no-print-directory tools KUBE=1.36
	CATENA_BIN=$(CURDIR)/bin $(GO) test ./test/chaos -run RandomMoves -v -count=1 -timeout 90m -chaos.for=30m $(if $(FOLLOW),-chaos.follow) $(if $(SEED),-chaos.seed=$(SEED))

chaos-hosts: build tools ## the same with three hosts and three members of etcd; needs root
	CATENA_BIN=$(CURDIR)/bin $(GO) test ./test/chaos -run RandomFaults -v -count=1 -timeout 90m -chaos.for=30m $(if $(SEED),-chaos.seed=$(SEED))

rest: build ## four minutes of the default chain that nobody uses: nothing at WARN, no watch of the store ends
	CATENA_BIN=$(CURDIR)/bin $(GO) test ./test/system -run TestRest -v -count=1 -rest.for=4m

fuzz-stage: build ## an hour of stages that do at random what the protocol does not allow; FUZZ_DURATION=8h, SEED=7 repeats a run's choices
	CATENA_BIN=$(CURDIR)/bin $(GO) test ./test/fuzz -v -count=1 -timeout 0 -fuzz.for=$(or $(FUZZ_DURATION),1h) $(if $(SEED),-fuzz.seed=$(SEED))

##@ Measure

bench: ## benchmarks of relay and chain
	$(GO) test -run '^$$' -bench . -benchmem ./host/internal/chain ./host/internal/relay

bench-lifecycle: build ## the cost of swaps, crashes and standbys
	CATENA_BIN=$(CURDIR)/bin $(GO) run ./test/benchmark/lifecycle

bench-apiserver: build tools ## Catena and kube-apiserver in turn, as a table of ratios; BENCH='-quick -rows GET', PROFILES=DIR leaves CPU profiles
	$(GO) run ./test/benchmark $(BENCH) $(if $(PROFILES),-profiles $(PROFILES))

##@ Generate

# The module of CSI is no part of the stages; each release's kube-controller-manager needs its own.
versions: ## versions/*/go.mod and go.sum: go.mod with the modules of another release of Kubernetes
	@for k in $(notdir $(wildcard versions/*)); do \
		from=$$(awk '$$1 == "k8s.io/kubernetes" { sub("v1.", "", $$2); print $$2 }' go.mod); \
		to=$$(awk '$$1 == "k8s.io/kubernetes" { sub("v1.", "", $$2); print $$2 }' versions/$$k/go.mod); \
		echo "versions/$$k: k8s.io/kubernetes v1.$$to"; \
		csi=$$(awk '$$1 ~ "container-storage-interface/spec" { print $$2 }' "$$($(GO) list -m -f '{{.GoMod}}' k8s.io/kubernetes@v1.$$to)"); \
		sed "/k8s.io/ s/ v\([01]\)\.$$from/ v\1.$$to/; s|\(container-storage-interface/spec\) [^ ]*|\1 $$csi|" go.mod > versions/$$k/go.mod; \
		cat go.sum versions/$$k/go.sum | LC_ALL=C sort -u > versions/$$k/go.sum.new && mv versions/$$k/go.sum.new versions/$$k/go.sum; \
		$(GO) list -mod=mod -modfile=versions/$$k/go.mod -tags kube$$k -deps ./plugins/... $(addprefix k8s.io/,$(CONTROL_PLANE)) >/dev/null || exit 1; \
	done

# One round of each row, then a profile of each process under that row's load.
pgo: build tools ## host/default.pgo, from the CPU profiles of all processes under the loads of bench-apiserver
	rm -rf bin/pgo
	$(GO) run ./test/benchmark -quick -rounds 1 -profiles bin/pgo -rows 'GET|LIST|CREATE|PATCH|apply|unknown|missing|watch' >/dev/null
	$(GO) tool pprof -proto bin/pgo/*.pprof > bin/pgo/default.pgo
	mv bin/pgo/default.pgo host/default.pgo

generate: ## sdk/stagev1/*.pb.go, from stage.proto
	GOFLAGS=-mod=mod $(GO) run github.com/bufbuild/buf/cmd/buf@v1.60.0 generate --path sdk/stagev1

generate-python: ## examples/python-hello/stage_pb2.py; needs protobuf-compiler and libprotobuf-dev
	protoc -I sdk/stagev1 --python_out=examples/python-hello stage.proto

