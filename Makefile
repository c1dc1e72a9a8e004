# The commands of users and contributors. `make help` lists the daily ones, `make help-all` all.

# Last: the server and the client that setup has unpacked where none are installed.
export PATH := $(HOME)/.cargo/bin:$(PATH):$(CURDIR)/target/server
MODULE := target/release/libredis_lock.so
QUICK_MODULE := target/quick/libredis_lock.so
FAULT_MODULE := target/quick/libredis_lock_fault_module.so
CLIENT := target/release/redis-lock
SHARED = $(DESTDIR)$(or $(PREFIX),/usr/local)/share
INSTALLED = $(or $(MODULE_DIR),/usr/lib/redis/modules)/libredis_lock.so
FETCHED := .servers
CARGO := cargo
# What the targets build, fetch and name is in this clone's target/, also for a user who has another directory in
# CARGO_TARGET_DIR or in cargo's configuration: there two clones would replace each other's module.
export CARGO_TARGET_DIR := $(CURDIR)/target

# The environment of tests, in quotes: the path of the clone may have spaces.
MODULE_PATH = LOCK_MODULE="$(CURDIR)/$(MODULE)"
QUICK_PATH = LOCK_MODULE="$(CURDIR)/$(QUICK_MODULE)"
FAULT_PATH = LOCK_FAULT_MODULE="$(CURDIR)/$(FAULT_MODULE)"
SERVER = LOCK_SERVER="$${LOCK_SERVER:-$$(scripts/server.sh)}"

# Cases of the property tests: quick by default; `make test-all` runs 100,000, optimized.
CASES ?= 500

.PHONY: $(shell sed -n 's/^\([a-z-]*\):.*/\1/p' Makefile)

help: ## the daily targets
	@awk -f scripts/help.awk Makefile

help-all: ## all targets, in groups
	@awk -v all=1 -f scripts/help.awk Makefile

setup: ## install what is missing (with root or sudo), or say what to install
	@scripts/setup.sh

build: setup ## build the module: target/release/libredis_lock.so
	@test -f $(MODULE) || echo 'The first build takes two to four minutes on two cores, the last of them in one silent step, and downloads 20 MB of crates.'
	$(CARGO) build --release --locked
	@chmod 755 $(MODULE)

run: build ## a server with the module, in the foreground, on loopback (PORT=6379)
	@scripts/run.sh

demo: build ## run the example of the README in two windows
	@scripts/demo.sh

# What `make test` compiles and runs: one profile and one selection of packages and features, so that cargo compiles
# every crate once. The benchmarks are left out: they have dependencies of their own.
TESTED = --profile quick --locked --workspace --exclude redis_lock_benches --features redis-lock-client/tracing

test-build: setup
	$(CARGO) build $(TESTED) --lib --bins --tests --examples
	@chmod 755 $(QUICK_MODULE) $(FAULT_MODULE)

test: ## core, module on a server, client: 8 minutes at first, then 3
	@echo 'make test: installs what is missing, compiles, then runs the tests. On two cores about 8 minutes the first time, 3 again.'
	@scripts/setup.sh
	@TESTED='$(TESTED)' CASES='$(CASES)' MAKE='$(MAKE)' $(QUICK_PATH) $(FAULT_PATH) $(SERVER) scripts/test.sh

test-core: setup ## the core alone, without a server: the quickest check (CASES=100000)
	PROPTEST_CASES=$(CASES) $(CARGO) test --profile quick --locked --lib

# One scene at a time: their figures are in docs/EXPLORATION.md.
explore: setup ## every history of small scenes of the core, up to DEPTH steps (SCENE= part of a test's name, STATES= stops a search)
	EXPLORE_DEPTH=$(or $(DEPTH),5) EXPLORE_STATES=$(STATES) CARGO_PROFILE_QUICK_OPT_LEVEL=3 \
		$(CARGO) test --profile quick --locked --lib $(or $(SCENE),explore::) -- --nocapture --test-threads 1

test-checker: build porcupine
	$(MODULE_PATH) $(SERVER) $(CARGO) test --profile quick --locked --no-fail-fast -p redis_lock_faults -p redis_lock_harness

test-server: test-build ## the server tests on this machine's server (TESTS=)
	$(QUICK_PATH) $(FAULT_PATH) $(SERVER) $(CARGO) test $(TESTED) --test server -- --test-threads $(or $(THREADS),4) $(TESTS)

test-servers: build test-build servers ## the server tests on three servers, with the release module (OTHERS=1: without this machine's own)
	@$(FAULT_PATH) TESTED='$(TESTED)' OTHERS='$(OTHERS)' scripts/test-servers.sh $(FETCHED) quick

CLIENT_TESTS = $(MODULE_PATH) $(SERVER) $(CARGO) test --profile quick --locked --no-fail-fast --all-features -p redis-lock-client -p redis-lock-cli

# The limit of open files: a thousand commands at once, each with its pipes.
test-client: build ## the client crate and the command line: on real servers that die, hang, move and reply wrongly (TESTS=)
	ulimit -S -n 4096 || :; LOCK_CROWD=1000 $(CLIENT_TESTS) -- --test-threads 2 $(TESTS)

servers: setup
	@tests/servers.sh $(FETCHED) quick

test-redisson: build ## real Redisson clients of several versions on the same locks (QUICK=1: less of the older ones)
	@scripts/setup.sh java
	@scripts/test-redisson.sh $(if $(QUICK),quick)

test-clients: build ## the packages as they are published, Jedis and redis-rb with their helpers, on the same locks (QUICK=1; CLIENTS=)
	@TESTED='$(TESTED)' scripts/test-clients.sh $(CLIENTS)

test-strings: build ## lock libraries that take SET NX PX, and LOCK.ACQUIRE, on the same keys (CLIENTS='strings/redsync'; LOCK_STRINGS_ROUNDS=10000)
	@TESTED='$(TESTED)' scripts/test-clients.sh $(or $(CLIENTS),$(patsubst tests/clients/%/run,%,$(wildcard tests/clients/strings/*/run)))

test-java: build ## the jars of clients/java, on real servers, with the test kits of the interfaces (TESTS='LockTest')
	@scripts/setup.sh openssl java
	@scripts/test-java.sh $(if $(TESTS),-Dtest='$(TESTS)' -Dsurefire.failIfNoSpecifiedTests=false)

test-python: build ## the package of clients/python, on real servers, with redis-py's own tests of its lock (TESTS='-k name')
	@scripts/setup.sh openssl python
	@scripts/test-python.sh $(TESTS)

test-go: build ## the package of clients/go, on real servers, with the race detector (TESTS='-run Name')
	@scripts/setup.sh go
	@scripts/test-go.sh $(TESTS)

trial-go: build ## random faults while many workers lock through both libraries of Go, and a check (SECONDS=600)
	@scripts/setup.sh go
	@LOCK_TRIAL=$(or $(SECONDS),600) scripts/test-go.sh -v -run TestTrial -timeout 2h

test-node: build ## the package of clients/node, on real servers, over node-redis, ioredis and iovalkey (TESTS='--test-name-pattern=name')
	@scripts/setup.sh node
	@scripts/test-node.sh $(TESTS)

test-all: build test-build ## all tests, also the long ones, on every server that can be had, with and without I/O threads, and on fresh machines; hours
	@CARGO_PROFILE_QUICK_OPT_LEVEL=3 $(MAKE) test-core CASES=100000
	@$(MAKE) test-checker
	@$(MAKE) test-client
	@$(MAKE) test-java
	@$(MAKE) test-python
	@$(MAKE) test-go
	@$(MAKE) test-node
	@tests/servers.sh $(FETCHED) all
	@$(FAULT_PATH) TESTED='$(TESTED)' scripts/test-servers.sh $(FETCHED) all
	@$(MAKE) test-versions
	@$(MAKE) fuzz
	@$(MAKE) fresh-machine

mutants: setup ## do the tests of the core notice small changes in it? (cargo-mutants; BASE=COMMIT: in what has changed; SHARD=k/n: a part)
	@BASE='$(BASE)' SHARD='$(SHARD)' scripts/mutants.sh

fault-points: test-build ## do the tests of the server notice a fault in the shell? One at a time of tests/fault-points.txt (NAMES=)
	@TESTED='$(TESTED)' $(FAULT_PATH) $(SERVER) scripts/fault-points.sh $(NAMES)

check: lint ## formatting, clippy, rustdoc, imports between the layers
	@scripts/setup.sh check
	$(CARGO) fmt --all --check
	$(CARGO) clippy --profile quick --locked --workspace --features redis-lock-client/tracing --all-targets -- -D warnings
	@for private in '' --document-private-items; do RUSTDOCFLAGS='-D warnings' $(CARGO) doc --profile quick --locked --all-features -p redis-lock-client -p redis-lock-cli --no-deps $$private || exit; done

deny: ## licences, known vulnerabilities and sources of the crates, by deny.toml (cargo-deny)
	@$(CARGO) deny --version >/dev/null 2>&1 || { echo 'not checked: cargo install --locked cargo-deny'; exit 1; }
	$(CARGO) deny --locked check

msrv: setup ## compile all with the oldest Rust that Cargo.toml promises (in PATH, or with rustup)
	@scripts/msrv.sh

fresh-machine: ## README's two commands, whole, on minimal Debian systems, 12 and 13, as root and as a user, made by debootstrap (root; ON='user@13': some; JOBS=2)
	@scripts/fresh-machine.sh $(ON)

test-versions: setup ## the data of an older version read by this one, and the other way round, in files and in a replica (PREVIOUS=a commit or tag)
	$(CARGO) build $(TESTED) --lib
	@chmod 755 $(QUICK_MODULE)
	@TESTED='$(TESTED)' $(QUICK_PATH) $(SERVER) scripts/test-versions.sh $(PREVIOUS)

test-upstream: build ## the own tests of Redis, Valkey or go-redis with the module, from a source that you have (SOURCE=directory, UNITS='unit/multi ...', LOCK_SERVER=)
	@$(MODULE_PATH) $(SERVER) scripts/test-upstream.sh '$(SOURCE)' $(UNITS)

test-ops: build ## the files of ops/ with redis_exporter and Prometheus, fetched into target/ops, under load (SAVE=1: the picture of the dashboard)
	@$(CARGO) build $(TESTED) --bin lock-ops
	@$(MODULE_PATH) $(SERVER) tests/ops/run.sh target/quick/lock-ops $(if $(SAVE),--save)
	@if [ -n "$(SAVE)" ]; then $(CARGO) run --profile quick --locked -p redis_lock_benches -- pictures; fi

test-scripts: ## setup, run and the fetching of servers, on machines where parts are missing
	@tests/scripts.sh

lint: ## imports between core, commands and shell, and other rules that the compiler does not check
	@scripts/lint.sh

count: ## lines of code, comments and tests, and files, a folder a row
	@scripts/count.sh

fmt: ## format the code
	$(CARGO) fmt --all

# The program that tests/linearizability describes.
porcupine:
	@tests/clients/need 'go version | grep -qE "go1\.(2[6-9]|[3-9][0-9])"' golang-go
	@cd tests/linearizability && GOTOOLCHAIN=local go build -o ../../target/porcupine .

faults-build: build porcupine
	@$(CARGO) build $(TESTED) --bin lock-faults --bin lock-power --test barrier

faults: faults-build ## faults while many clients lock, judged by Porcupine (Go) and lock-faults (SEED=1, SECONDS_EACH=6, ONLY=a,b)
	$(SERVER) target/quick/lock-faults run --seed $(or $(SEED),1) --seconds $(or $(SECONDS_EACH),6) $(if $(ONLY),--only $(ONLY))

test-histories: build porcupine ## these two judges: on forged histories, and on servers that are changed in secret
	@cd tests/linearizability && GOTOOLCHAIN=local go vet . && GOTOOLCHAIN=local go test -count=1 .
	@rm -rf target/forged && mkdir target/forged
	FORGED_HISTORIES="$(CURDIR)/target/forged" $(CARGO) test $(TESTED) --exclude redis_lock_fault_module --lib check::forged
	$(MODULE_PATH) $(SERVER) $(CARGO) test $(TESTED) --test sabotage porcupine:: -- --test-threads 2
	target/porcupine -limit 10s target/forged
	@rm -r target/forged

faults-long: faults-build ## the same in parts, until each reaches its goal, into docs/RELIABILITY.md (MINUTES=30)
	$(SERVER) target/quick/lock-faults long --minutes $(or $(MINUTES),30)
	target/quick/lock-faults report

faults-kinds: faults-build ## every kind of lock in every place, in parts, into docs/RELIABILITY.md (SERVERS='redis-7.0 valkey-9.1', SETTINGS='plain threads tls', MINUTES=10 for each server and setting)
	$(EACH_SERVER) tests/faults/kinds.sh target/quick/lock-faults $(or $(MINUTES),10) $(or $(SETTINGS),plain threads)
	target/quick/lock-faults table

long-run: faults-build ## continue the long run of one server, in slices, into docs/RELIABILITY.md (SERVERS='redis-8.6 valkey-9.1', MINUTES=30, SLICE=15)
	$(EACH_SERVER) target/quick/lock-faults long-run --minutes $(or $(MINUTES),30) --slice $(or $(SLICE),15)
	target/quick/lock-faults long-run-report
	@$(CARGO) build --profile quick --locked -p redis_lock_benches
	target/quick/lock-bench pictures

power-loss: faults-build ## cut the power while clients lock, into docs/RELIABILITY.md (SERVERS='redis-7.0 valkey-9.1', ROUNDS=100, ONLY=always)
	$(EACH_SERVER) target/quick/lock-power run --rounds $(or $(ROUNDS),100) --only '$(ONLY)'
	target/quick/lock-power report

# The servers are pinned to core 0, the load to core 1, where there are two.
LOAD_CORE := $(if $(filter-out 1,$(shell nproc --all 2>/dev/null)),taskset -c 1)

# Runs a command for each of SERVERS: names below .servers/bin, or paths. Without it: for this machine's server.
EACH_SERVER = SERVERS='$(SERVERS)' benches/each-server.sh

bench-build: build
	@$(CARGO) build --release --locked -p redis_lock_benches

redisson-texts: setup ## for the benchmarks: the texts of Redisson's lock scripts, out of its jar (Maven): target/redisson/scripts
	@benches/redisson-texts/fetch.sh target/redisson

# Minutes of the parts on a quiet machine of two cores: pairs 3, kinds 1, singles 1, others 1, libraries 2, handoff 2,
# many-locks 1, cancel 2, memory 2, lease-end 1, tickets 7.
bench: bench-build redisson-texts ## measure the module beside its peers, into benches/results/servers.md: 20 to 25 minutes a server (SERVERS='redis-7.0 valkey-9.1', PART='pairs tickets', QUICK=1: a trial of 3 minutes)
	$(EACH_SERVER) $(LOAD_CORE) target/release/lock-bench bench $(if $(QUICK),quick) $(PART)

bench-instr: build redisson-texts ## count the instructions of every command, beside docs/INSTRUCTIONS.md: 4 minutes a server (SERVERS=; SAVE=1: into it)
	@scripts/setup.sh count
	@$(CARGO) build --profile quick --locked -p redis_lock_benches
	$(EACH_SERVER) target/quick/lock-bench instr $(if $(SAVE),save)

bench-tenant: build ## what a user with one right can make the server keep and do, beside docs/ACL.md: a minute (LOCK_SERVER=; SAVE=1: into it)
	@$(CARGO) build --profile quick --locked -p redis_lock_benches
	$(SERVER) target/quick/lock-bench tenant $(if $(SAVE),save)

bench-peers: bench-build ## PostgreSQL, etcd, ZooKeeper (installed if missing) beside it, into benches/results/peers.md
	@benches/peers/install.sh
	$(SERVER) $(LOAD_CORE) target/release/lock-bench peers

bench-clients: build ## the packages for Java, Python, Go, Node and Rust beside Redisson, Spring's registry, redis-py's Lock, redsync, bsm/redislock, rueidislock, redlock, redis-semaphore and rslock, into benches/results/clients.md (PART='go node': some; QUICK=1: a trial)
	@scripts/setup.sh openssl java python go node
	@$(SERVER) benches/clients/run.sh $(if $(QUICK),quick) $(PART)

bench-redisson: build ## Redisson itself beside it (Java 17, Maven), into benches/results/servers.md (QUICK=1: a trial; PART=redisson or tickets)
	@scripts/setup.sh java
	@LOCK_MODULE="$${LOCK_MODULE:-$(CURDIR)/$(MODULE)}" mvn -B -ntp -Dstyle.color=never -q -f benches/redisson package
	$(LOAD_CORE) java -Xmx1g -jar target/bench-redisson/bench.jar $(if $(QUICK),quick) $(PART)

asan: setup ## the server tests with AddressSanitizer in a server built from source, and in the module (TESTS=)
	@tests/source-server.sh target/asan asan
	@TESTED='$(TESTED)' scripts/asan.sh target/asan $(TESTS)

valgrind: ## the tests of parking and hand-off under valgrind's memcheck
	@scripts/setup.sh count
	@tests/source-server.sh target/valgrind plain
	@scripts/valgrind.sh target/valgrind

leaks: build ## memory after a million parked requests
	LOCK_MEMORY_CYCLES=1000000 LOCK_PATIENCE=120 $(SERVER) \
		$(CARGO) test --profile quick --locked --test server memory:: -- --test-threads 1 --nocapture

fuzz: build ## fuzz the parser and the server, FUZZ_SECONDS (60) for each of three targets
	@scripts/setup.sh fuzz
	@scripts/fuzz.sh $(or $(FUZZ_SECONDS),60)

install: ## copy the module to a directory from which a packaged server may load it (DESTDIR, MODULE_DIR)
	@test -f $(MODULE) || { echo 'first, as yourself: make build'; exit 1; }
	install -D -m 755 $(MODULE) "$(DESTDIR)$(INSTALLED)"
	@scripts/installed.sh "$(INSTALLED)" "$(DESTDIR)"

client: setup ## build the command line: target/release/redis-lock
	$(CARGO) build --release --locked -p redis-lock-cli

packages: setup ## all libraries and the command line as they are published: crates, jars, wheel, archive of npm and Go module (target/packages); with cargo-semver-checks, the API changes since BASE
	@scripts/packages.sh
	$(CARGO) publish --dry-run --locked --allow-dirty -p redis-lock-client -p redis-lock-cli
	if $(CARGO) semver-checks --version >/dev/null 2>&1; then \
		$(CARGO) semver-checks --baseline-rev $(or $(BASE),HEAD~1) -p redis-lock-client --all-features; \
	else echo 'not compared: cargo install cargo-semver-checks'; fi

# Built apart from target/release: without paths of this machine, so that two machines make the same files.
deb: setup ## Debian packages of the module (Redis, Valkey) and of the command line: target/debian (docs/PACKAGES.md)
	@scripts/setup.sh deb
	@scripts/deb.sh

test-deb: deb ## install, upgrade, remove and purge these packages on new Debian systems, under the servers' own systemd units (root; ON='trixie:valkey')
	@scripts/setup.sh fresh booted
	@scripts/test-deb.sh $(ON)

tarball: setup ## the module for other Linux systems, x86-64 and arm64, with a list of its crates and checksums: target/dist
	@scripts/tarball.sh

test-tarball: tarball ## build it once more in another directory: the same bytes? Load the modules.
	@$(SERVER) scripts/test-tarball.sh

image: setup ## an image for Kubernetes that copies the module into a volume: target/dist (root, umoci; packaging/kubernetes)
	@scripts/setup.sh image
	@scripts/image.sh

test-image: image ## unpack and run it, and start a server with the values for valkey-helm (root)
	@$(SERVER) scripts/test-image.sh

docs: test-build ## the documents as a site with search, links and examples checked: target/site
	@TESTED='$(TESTED)' $(QUICK_PATH) $(FAULT_PATH) $(SERVER) site/build.sh

release: setup ## all packages of a release, built and checked, in dist (root; TRIAL=1: before the release; docs/RELEASING.md)
	@scripts/setup.sh image deb
	@$(SERVER) scripts/release.sh

man: client ## the manual of the command line: target/redis-lock.1
	@$(CLIENT) man >target/redis-lock.1
	@echo 'read it with: man -l target/redis-lock.1'

install-client: ## copy the command line, its manual and its completions (DESTDIR, PREFIX)
	@test -x $(CLIENT) || { echo 'first, as yourself: make client'; exit 1; }
	install -D -m 755 $(CLIENT) "$(SHARED)/../bin/redis-lock"
	@install -d "$(SHARED)/man/man1" "$(SHARED)/bash-completion/completions" "$(SHARED)/zsh/site-functions" "$(SHARED)/fish/vendor_completions.d"
	$(CLIENT) man >"$(SHARED)/man/man1/redis-lock.1"
	$(CLIENT) completions bash >"$(SHARED)/bash-completion/completions/redis-lock"
	$(CLIENT) completions zsh >"$(SHARED)/zsh/site-functions/_redis-lock"
	$(CLIENT) completions fish >"$(SHARED)/fish/vendor_completions.d/redis-lock.fish"

bench-client: build client ## what a lock adds to a command, beside flock (ROUNDS=500)
	@benches/run-overhead.sh

bench-notice: build ## the time from a server's death to the holder's notice that its lock is lost (a minute)
	$(CLIENT_TESTS) --test locks notice:: -- --ignored --nocapture

bench-waits: build ## connections and memory of waits, and the delay of loss notices (half a minute)
	$(CLIENT_TESTS) --test locks figures:: -- --ignored --nocapture --test-threads 1

trial-client: build ## random faults while many workers lock through the client, and a check (SECONDS=600, SEED=1)
	@ulimit -S -n 4096 || :; SEED=$(or $(SEED),1) SECONDS=$(or $(SECONDS),600) $(CLIENT_TESTS) --test trial no_overlap -- --ignored --nocapture

clean: ## remove what was built and fetched
	rm -rf target dist $(FETCHED)
