#!/bin/sh
# shellcheck disable=SC2016 # what the stubs do is expanded when they run
#
# scripts.sh: tests of setup.sh, server.sh, run.sh, servers.sh and test-upstream.sh on machines where parts are missing.
# The commands of such machines are scripts in a directory before PATH; nothing is installed, no mirror is used.
set -eu
cd "$(dirname "$0")/.."
here=$PWD
mkdir -p target
dir=$(mktemp -d "$here/target/scripts test.XXXXXX")
listener=
trap '[ -z "$listener" ] || kill "$listener" 2>/dev/null; rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
passed=0
rustup=${RUSTUP_HOME:-$HOME/.rustup}

# stub NAME BODY: a command of the simulated machine.
stub() { printf '#!/bin/sh\n%s\n' "$2" >"$dir/bin/$1" && chmod +x "$dir/bin/$1"; }
machine() {
    rm -rf "${dir:?}/bin" "$dir/did" && mkdir -p "$dir/bin" "$dir/home" && : >"$dir/did"
    # apt does nothing, and gets no queries for sizes or releases.
    stub apt-get "echo \"apt-get \$*\" >>'$dir/did'; case \"\$*\" in *print-uris*) exit 0 ;; esac; exit 100"
    stub apt-cache 'exit 0'
    stub sudo 'exit 1'
    # The user is not root, even if root runs this script.
    stub id 'case "$*" in -u) echo 1000 ;; -un) echo lena ;; *) exit 1 ;; esac'
}
# on COMMAND...: runs it on this machine; its output is in $said, its status in $status.
on() {
    status=0
    said=$(HOME="$dir/home" RUSTUP_HOME="$rustup" PATH="$dir/bin:$PATH" "$@" 2>&1 </dev/null) || status=$?
}
failed() {
    printf 'scripts: FAILED: %s (status %s)\n%s\n' "$1" "$status" "$said" >&2
    exit 1
}
# says WHAT PATTERN..., says_not WHAT PATTERN...: checks of $said.
says() {
    what=$1
    shift
    for pattern in "$@"; do printf '%s\n' "$said" | grep -qE -e "$pattern" || failed "$what: no \"$pattern\""; done
    passed=$((passed + 1))
}
says_not() { if printf '%s\n' "$said" | grep -qE -e "$2"; then failed "$1: \"$2\""; fi; }
ends_with() { [ "$status" -eq "$1" ] || failed "$2: not status $1"; }

# --- setup: nothing is missing ---
machine
on scripts/setup.sh
ends_with 0 'nothing is missing'
[ -z "$said" ] || failed 'nothing is missing, and something is said'

# --- setup: installed parts that do not work ---
machine
stub cc 'exit 1'
on scripts/setup.sh
ends_with 1 'a compiler that cannot link'
says 'a compiler that cannot link' 'As root: apt-get update && apt-get install .*gcc libc6-dev'

machine
stub rustc 'echo "rustc 1.63.0 (Debian)"'
stub cargo 'echo "cargo 1.65.0"'
on scripts/setup.sh
ends_with 1 'an old Rust'
says 'an old Rust' 'Rust 1\.85 or newer is needed. Here: rustc 1\.63' 'replaces no Rust'
says_not 'an old Rust' '^As root: .*(cargo|rustc)'
stub rustup 'exit 0'
on scripts/setup.sh
says 'an old Rust of rustup' 'rustup update stable'

machine
stub rustc 'exit 127'
on scripts/setup.sh
ends_with 1 'a cargo without rustc'
says 'a cargo without rustc' 'Rust 1\.85 or newer is needed'

machine
stub python3 'case "$*" in *ensurepip*) exit 1 ;; esac'
on scripts/setup.sh python
ends_with 1 'a Python without ensurepip'
says 'a Python without ensurepip' 'apt-get install .*python3 python3-venv'

machine
mkdir -p "$dir/clang"
: >"$dir/clang/libclang-cpp.so.14"
on env LIBCLANG_PATH="$dir/clang" scripts/setup.sh
ends_with 1 'libclang-cpp is not libclang'
says 'libclang-cpp is not libclang' 'no libclang that works'

# As if its own headers were missing. The package is named by the version of the library.
on env BINDGEN_EXTRA_CLANG_ARGS=-nobuiltininc CLANG_PATH=/nonexistent scripts/setup.sh
ends_with 1 'libclang without its headers'
says 'libclang without its headers' 'apt-get install .*libclang'

machine
on env SSL_CERT_FILE=/nonexistent CARGO_HTTP_CAINFO=/nonexistent scripts/setup.sh
ends_with 0 'certificates in another place'

machine
stub openssl 'exit 1'
on scripts/setup.sh openssl
ends_with 1 'an openssl that fails'
says 'an openssl that fails' 'apt-get install .*openssl'

machine
stub valgrind 'case $1 in --version) echo valgrind-3.19.0 ;; *) exit 1 ;; esac'
on scripts/setup.sh count
says 'a valgrind that cannot start programs' 'apt-get install .*valgrind libc6-dbg'

machine
stub java 'echo 17'
stub javac 'echo "javac 11.0.2" >&2'
stub mvn 'echo "Java version: 17.0.1, vendor: x, runtime: /nonexistent"'
on scripts/setup.sh java
ends_with 1 'an old JDK'
says 'an old JDK' 'apt-get install .*default-jdk-headless maven'
stub javac 'echo "javac 17.0.2" >&2'
on env JAVA_HOME=/nonexistent scripts/setup.sh java
says 'a JAVA_HOME without a compiler' 'JAVA_HOME=/nonexistent: Maven needs a JDK 17'

# --- setup: root's permissions ---
machine
stub cc 'exit 1'
stub sudo 'case $1 in -n) shift ;; esac; echo "sudo $*" >>"$0.did"; exec "$@"'
on scripts/setup.sh
did=$(cat "$dir/did")
ends_with 1 'apt cannot install'
case $did in *'update'*'--no-remove --no-install-recommends install '*gcc*) passed=$((passed + 1)) ;; *) failed "sudo without a password: $did" ;; esac
case $did in *redis-server* | *valkey-server*) failed 'the package of a service is installed' ;; esac
says 'sudo without a password' 'reading the lists of packages' 'installing .*gcc libc6-dev' 'No service is installed'

# --- setup and server.sh: servers ---
machine
stub redis-server 'echo "Redis server v=6.0.16 sha=0:0"'
on scripts/server.sh
says_not 'a server that is too old' "$dir/bin"
stub redis-server 'exit 127'
on scripts/server.sh
says_not 'a broken server' "$dir/bin"
stub redis-server 'echo "Redis server v=9.0.0 sha=0:0"'
on scripts/server.sh
says 'a server of PATH' "^$dir/bin/redis-server\$"

# Only Debian's redis-tools: its program is the server under another name.
real=$(scripts/server.sh)
if readlink -f "$real" | grep -q 'check-rdb$'; then
    mkdir -p "$dir/tools" "$dir/tree/scripts"
    cp scripts/server.sh "$dir/tree/scripts/"
    ln -sf "$(readlink -f "$real")" "$dir/tools/redis-check-rdb"
    for tool in sh env sed ln mkdir rm grep tr dirname readlink cat; do ln -sf "$(command -v $tool)" "$dir/tools/$tool"; done
    status=0
    said=$(PATH="$dir/tools" "$dir/tree/scripts/server.sh" 2>&1) || status=$?
    says 'redis-tools without redis-server' "^$dir/tree/target/server/redis-server\$"
    "$said" --version | grep -q 'server v=' || failed 'redis-tools without redis-server'
fi

# --- run.sh: the port ---
machine
redis=$(scripts/server.sh)
# The first port on which a server starts: other runs may try the same ones.
port=18000
until grep -q 'Ready to accept' "$dir/server.log" 2>/dev/null; do
    if [ -n "$listener" ] && kill -0 "$listener" 2>/dev/null; then
        sleep 0.05
        continue
    fi
    port=$((port + 1))
    [ $port -lt 19000 ] || failed 'no port is free'
    "$redis" --port $port --bind 127.0.0.1 --save '' --logfile "$dir/server.log" --dir "$dir" &
    listener=$!
done
on env PORT=$port scripts/run.sh
ends_with 1 'a taken port'
says 'a taken port' "port $port on 127.0.0.1 is in use" 'Try: make run PORT=[0-9]+$'
says_not 'a taken port' 'lock server on'
kill $listener
wait $listener || :
listener=
on env PORT=abc scripts/run.sh
ends_with 2 'a port that is no number'
on env PORT=70000 scripts/run.sh
ends_with 2 'a port that is too high'

# --- make: its list of targets, and the directory that cargo fills ---
machine
# (Below another make it would say which directory it enters.)
on env -u MAKEFLAGS -u MAKELEVEL make
says 'make alone' 'make run ' 'make test ' 'make help-all'
[ "$(printf '%s\n' "$said" | wc -l)" -le 12 ] || failed 'make alone prints a long list'
on make help-all
for name in $(sed -n 's/^\([a-z-]*\):.*## .*/\1/p' Makefile); do says "make help-all" "^  make $name( |\$)"; done

# Users who write Rust may have one directory for all that cargo builds. What `make build` copies and loads is in target/.
machine
real=$(command -v cargo)
stub chmod :
stub cargo "case \$1 in build) exec '$real' metadata --format-version 1 --no-deps --offline ;; *) exec '$real' \"\$@\" ;; esac"
mkdir -p "$dir/home/.cargo"
for set in CARGO_TARGET_DIR="$dir/elsewhere" CARGO_BUILD_TARGET_DIR="$dir/elsewhere" NONE=; do
    if [ "$set" = NONE= ]; then printf '[build]\ntarget-dir = "%s"\n' "$dir/elsewhere" >"$dir/home/.cargo/config.toml"; fi
    on env "$set" CARGO_HOME="$dir/home/.cargo" make build
    ends_with 0 "make build with $set"
    said=$(printf '%s\n' "$said" | sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p')
    says "make build with $set" "^$here/target\$"
done

# --- test-upstream.sh: what counts as a failure, by forged runs ---
machine
mkdir -p "$dir/upstream/tests/support"
: >"$dir/upstream/tests/test_helper.tcl" >"$dir/upstream/tests/support/server.tcl"
stub redis-server 'exit 0'
# forged WITH WITHOUT [UNIT...]: a run whose suite prints the first text with the module, and the second without it.
forged() {
    printf '%b' "$1" >"$dir/with.log"
    printf '%b' "$2" >"$dir/without.log"
    shift 2
    stub tclsh "case \"\$*\" in *loadmodule*) log='$dir/with.log' ;; *) log='$dir/without.log' ;; esac
        cat \"\$log\"
        ! grep -qE '^.(err|exception)' \"\$log\""
    on env LOCK_SERVER="$dir/bin/redis-server" LOCK_MODULE=/nonexistent scripts/test-upstream.sh "$dir/upstream" "$@"
}
good='[ok]: one (1 ms)\n[1/1 done]: unit/a (1 seconds)\n\n  The End\n'
bad='[ok]: one (1 ms)\n[err]: two in tests/unit/a.tcl\nExpected 1\n[1/1 done]: unit/a (1 seconds)\n\n  The End\n'
forged "$good" '' unit/a
ends_with 0 'a run without failures'
says 'a run without failures' '^  \[1/1 done\]: unit/a'
forged "$bad" "$good" unit/a
ends_with 1 'a test that fails with the module only'
says 'a test that fails with the module only' 'FAILED with the module only: unit/a: two'
forged "$bad" "$bad" unit/a
ends_with 0 'a test that fails without the module too'
# incomplete WHAT PATTERN WITH [WITHOUT]: a run that proves nothing.
incomplete() {
    forged "$3" "${4:-$3}" unit/a
    ends_with 1 "$1"
    says "$1" "NOT COMPLETE.*$2"
}
incomplete 'a timeout' TIMEOUT "[ok]: one (1 ms)\\n[TIMEOUT]: clients state report follows.\\n$good"
incomplete 'a server that does not start' 'start the Redis server' "[err]: Can't start the Redis server\\nCONFIGURATION:\\n$good"
incomplete 'an exception' exception '[ok]: one (1 ms)\n[exception]: Executing test client: broken pipe.\n'
incomplete 'a unit that is missing' 'unit/a did not complete' '[ok]: one (1 ms)\n[1/1 done]: unit/b (1 seconds)\n  The End\n'
incomplete 'a last unit that is missing' 'last unit is missing: 1/2' '[ok]: one (1 ms)\n[1/2 done]: unit/a (1 seconds)\n  The End\n'
incomplete 'a suite that ends early' 'did not come to its end' '[ok]: one (1 ms)\n[1/1 done]: unit/a (1 seconds)\n'
incomplete 'a suite without any test' 'run "with"' '[1/1 done]: unit/a (1 seconds)\n  The End\n'
incomplete 'a comparison that does not complete' 'run "without"' "$bad" '[ok]: one (1 ms)\n'
# go-redis has tests that flush the server at the usual port.
mkdir -p "$dir/go"
printf 'redisServerBin\nAddr: ":6379" "localhost:6379" 16379\n' >"$dir/go/main_test.go"
stub go 'cat main_test.go; echo "Ran 3 of 3 Specs in 1 seconds"; echo "SUCCESS! -- 3 Passed | 0 Failed"'
on env LOCK_SERVER="$dir/bin/redis-server" LOCK_MODULE=/nonexistent scripts/test-upstream.sh "$dir/go"
ends_with 0 'go-redis'
said=$(cat target/upstream/go/with.log)
says 'go-redis away from the usual port' 'localhost:1" 16379'
says_not 'go-redis at the usual port' '[:"]6379'
rm -rf target/upstream/go target/upstream/upstream

# --- apt.sh: mirrors in every form ---
apt="$dir/apt"
mkdir -p "$apt/parts"
cat >"$apt/conf" <<CONF
Dir::Etc::sourcelist "$apt/list";
Dir::Etc::sourceparts "$apt/parts";
Acquire::Retries "0";
CONF
# mirrors_of KIND EXPECTED LINE...: checks the result for this sources.list.
mirrors_of() {
    kind=$1 expected=$2
    shift 2
    printf '%s\n' "$@" >"$apt/list"
    status=0
    said=$(APT_CONFIG="$apt/conf" sh -euc '. tests/apt.sh; mirrors "$1"' sh "$kind" | paste -sd' ' -)
    [ "$said" = "$expected" ] || failed "mirrors of: $* (wanted $expected)"
    passed=$((passed + 1))
}
if [ -n "$(command -v apt-get)" ]; then
    mirrors_of main http://a.invalid/debian 'deb http://a.invalid/debian/ bookworm main'
    mirrors_of main http://a.invalid/debian 'deb http://a.invalid/debian bookworm main contrib'
    mirrors_of main http://a.invalid/debian 'deb [arch=amd64 signed-by=/x y=z] http://a.invalid/debian// stable main'
    mirrors_of main http://a.invalid/debian 'deb cdrom:[Debian GNU/Linux 13.0]/ trixie main' 'deb http://a.invalid/debian trixie main'
    mirrors_of main 'http://a.invalid/debian http://b.invalid/deb' 'deb http://b.invalid/deb trixie main' 'deb http://a.invalid/debian/ trixie main'
    mirrors_of main '' 'deb http://a.invalid/ubuntu noble main'
    mirrors_of main 'mirror+file:/etc/apt/mirrors.list' 'deb mirror+file:/etc/apt/mirrors.list trixie main'
    mirrors_of security http://a.invalid/debian-security 'deb http://a.invalid/debian/ trixie main' 'deb http://a.invalid/debian-security/ trixie-security main'
    printf 'Types: deb deb-src\nURIs: file:/srv/debian http://a.invalid/debian/\nSuites: trixie trixie-updates\nComponents: main\n' >"$apt/parts/debian.sources"
    mirrors_of main 'http://a.invalid/debian file:/srv/debian' ''

    rm "$dir/bin/apt-get"
    # A launcher that does not run is removed, and a mirror that is unreachable fails the run with a message.
    printf 'deb http://127.0.0.1:1/debian trixie main\n' >"$apt/list"
    rm "$apt/parts/debian.sources"
    mkdir -p "$dir/servers/bin"
    printf '#!/bin/sh\nexec env "$@"\n' >"$dir/servers/bin/redis-8.0"
    chmod +x "$dir/servers/bin/redis-8.0"
    on env APT_CONFIG="$apt/conf" tests/servers.sh "$dir/servers" quick
    ends_with 1 'a mirror that is down'
    says 'a mirror that is down' 'cannot be had here' 'LEAVE_OUT=1'
    [ ! -e "$dir/servers/bin/redis-8.0" ] || failed 'an empty launcher stays'
    on env APT_CONFIG="$apt/conf" LEAVE_OUT=1 tests/servers.sh "$dir/servers" quick
    ends_with 0 'servers that may be left out'
fi

if command -v shellcheck >/dev/null; then
    shellcheck -x -e SC1091 scripts/setup.sh scripts/server.sh scripts/run.sh scripts/installed.sh scripts/fresh-machine.sh \
        scripts/ports.sh scripts/demo.sh scripts/test-servers.sh scripts/minimal-debian.sh scripts/deb.sh scripts/pages.sh \
        scripts/build-packaged.sh scripts/test-deb.sh scripts/tarball.sh scripts/test-tarball.sh scripts/image.sh \
        scripts/test-image.sh scripts/test-versions.sh scripts/test-upstream.sh scripts/release.sh packaging/common.sh packaging/debian/p* tests/apt.sh tests/servers.sh tests/scripts.sh
else
    echo 'scripts: no shellcheck here'
fi
echo "scripts: $passed passed"
