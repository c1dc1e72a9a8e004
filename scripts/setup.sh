#!/bin/sh
# setup.sh [PURPOSE...]: installs what is missing to build, run and test the module, or says what to install.
# Each PURPOSE adds what a target needs: check (format, clippy), openssl, go, java (JDK, Maven), node (Node,
# npm), python (Python, venv), count (valgrind), fuzz (C++, cargo-fuzz), fresh (debootstrap), deb (lowdown, cargo-deb),
# booted (systemd-nspawn), image (umoci).
#
# Each part is tested by use: a program is compiled, linked and run, a header is parsed, a server prints its version.
# Missing parts are installed with apt, as root or with sudo; otherwise the message names them. No service is installed:
# the server is the program in redis-tools, without the unit of redis-server. An installed Rust is never replaced, and
# apt removes no package.
set -eu
cd "$(dirname "$0")/.."

purposes=$*
OLDEST_RUST=85 # as rust-version in Cargo.toml: 1.85
OLDEST_JAVA=17 # as maven.compiler.release in clients/java/pom.xml and tests/redisson/pom.xml
OLDEST_GO=26 # as go in clients/go/go.mod: 1.26
OLDEST_PYTHON=9 # as requires-python in clients/python/pyproject.toml: 3.9
OLDEST_NODE=20 # as engines in clients/node/package.json
export PATH="$HOME/.cargo/bin:$PATH" LC_ALL=C

if ! mkdir -p target 2>/dev/null || ! work=$(mktemp -d "$PWD/target/setup.XXXXXX" 2>/dev/null); then
    echo "setup: $(id -un) may not write to $PWD/target (was it made by another user?)" >&2
    exit 1
fi
trap 'rm -rf "$work"' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

has() { command -v "$1" >/dev/null 2>&1; }
quiet() { "$@" >/dev/null 2>&1 </dev/null; }
say() { printf '%s\n' "$*" >&2; }

# --- Tests of the parts ---

# links COMPILER LANGUAGE: makes a program that runs.
links() {
    has "$1" || return 1
    printf '#include <stdio.h>\nint main(void) { puts("ok"); return 0; }\n' |
        "$1" -x "$2" -o "$work/linked" - >/dev/null 2>&1 || return 1
    [ "$("$work/linked" 2>/dev/null)" = ok ]
}
cc_works() { links cc c; }
cxx_works() { links c++ c++; }

# Does what bindgen will do. Like bindgen, it uses clang's own headers where a clang is found.
libclang_works() {
    : >"$work/libclang.txt"
    quiet cc -o "$work/libclang" scripts/libclang.c -ldl || return 1
    # shellcheck disable=SC2086 # words, as bindgen splits them
    "$work/libclang" ${BINDGEN_EXTRA_CLANG_ARGS:-} >"$work/libclang.txt" 2>/dev/null && return
    clang=$(command -v "${CLANG_PATH:-clang}") && resources=$("$clang" -print-resource-dir 2>/dev/null) &&
        quiet "$work/libclang" -isystem "$resources/include"
}

rust_minor() { rustc --version 2>/dev/null | sed -n 's/^rustc 1\.\([0-9]*\).*/\1/p'; }
rust_is_new_enough() { [ "$(rust_minor)" -ge "$OLDEST_RUST" ] 2>/dev/null; }
rust_works() {
    quiet cargo --version && rust_is_new_enough || return 1
    # Without a linker this cannot be tested, and the linker is named already.
    [ -z "$linker" ] || { echo 'fn main() {}' | rustc -o "$work/rust" - >/dev/null 2>&1 && quiet "$work/rust"; }
}
# The Rust of PATH belongs to rustup: its rustc is in the same directory.
is_rustups() {
    rustup=$(command -v rustup) || return 1
    rustc=$(command -v rustc || echo "$rustup")
    [ "${rustup%/*}" = "${rustc%/*}" ]
}

# Cargo fetches crates over TLS.
certificates_work() {
    for bundle in "${CARGO_HTTP_CAINFO:-}" "${SSL_CERT_FILE:-}" /etc/ssl/certs/ca-certificates.crt \
        /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/ca-bundle.pem /etc/ssl/cert.pem; do
        if [ -n "$bundle" ] && grep -q 'BEGIN .*CERTIFICATE' "$bundle" 2>/dev/null; then return; fi
    done
    return 1
}

openssl_works() { quiet openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=setup -keyout "$work/key" -out "$work/certificate"; }
valgrind_works() { quiet valgrind -q --error-exitcode=1 cat /dev/null; }
javac_works() {
    has java && major=$(javac -version 2>&1 | sed -n 's/^javac \([0-9]*\).*/\1/p') && [ "${major:-0}" -ge "$OLDEST_JAVA" ]
}
# Maven takes JAVA_HOME before the java of PATH, and needs the compiler of it.
maven_works() {
    home=$(mvn --version 2>/dev/null </dev/null | sed -n 's/^Java version: .*runtime: //p') && [ -n "$home" ] || return 1
    major=$("$home/bin/javac" -version 2>&1 | sed -n 's/^javac \([0-9]*\).*/\1/p')
    [ "${major:-0}" -ge "$OLDEST_JAVA" ]
}

# A virtual environment gets its pip from ensurepip, which Debian has in a package of its own.
python_works() { quiet python3 -c "import ensurepip, sys, venv; sys.exit(sys.version_info < (3, $OLDEST_PYTHON))"; }

go_works() { minor=$(go env GOVERSION 2>/dev/null | sed -n 's/^go1\.\([0-9]*\).*/\1/p') && [ "${minor:-0}" -ge "$OLDEST_GO" ]; }

node_works() { quiet npm --version && quiet node -e "process.exit(parseInt(process.versions.node) < $OLDEST_NODE ? 1 : 0)"; }

# --- Names of packages ---

# candidate PACKAGE: the version that apt would install, without its epoch.
candidate() { apt-cache policy "$1" 2>/dev/null | sed -n 's/^  Candidate: \([0-9]*:\)\{0,1\}\([0-9].*\)/\2/p'; }
# at_least VERSION MAJOR MINOR
at_least() {
    major=${1%%.*} rest=${1#*.}
    minor=$(echo "${rest%%.*}" | sed 's/[^0-9].*//')
    [ "${major:-0}" -gt "$2" ] 2>/dev/null || { [ "${major:-0}" -eq "$2" ] && [ "${minor:-0}" -ge "$3" ]; } 2>/dev/null
}

# Debian 12 has a current Rust under other names than Debian 13.
rust_suffix() {
    for suffix in '' -web; do
        if at_least "$(candidate "rustc$suffix")" 1 "$OLDEST_RUST"; then
            echo "$suffix"
            return
        fi
    done
    # Without lists of packages the release decides.
    if [ -z "$(candidate rustc)" ] && grep -q '^VERSION_CODENAME=bookworm' /etc/os-release 2>/dev/null; then echo -web; fi
}
rust_packages() { echo "cargo$(rust_suffix) rustc$(rust_suffix)"; }
fmt_package() { echo "rustfmt$(rust_suffix)"; }
clippy_package() { case $(rust_suffix) in -web) echo rust-web-clippy ;; *) echo rust-clippy ;; esac; }

# The library and its headers, without the rest of libclang-dev. Where a library is there, its headers.
libclang_packages() {
    version=$(sed -n 's/.*: .*clang version \([0-9]*\)\..*/\1/p' "$work/libclang.txt")
    [ -n "$version" ] || version=$(apt-cache depends libclang-dev 2>/dev/null | sed -n 's/.*Depends: libclang-\([0-9]*\)-dev$/\1/p')
    if [ -n "$(candidate "libclang1-$version")" ] && [ -n "$(candidate "libclang-common-$version-dev")" ]; then
        echo "libclang1-$version libclang-common-$version-dev"
    else
        echo libclang-dev
    fi
}

# These hold a server and its client, and no service.
server_package() {
    if [ -n "$(candidate valkey-tools)" ] && ! at_least "$(candidate redis-tools)" 7 0; then echo valkey-tools; else echo redis-tools; fi
}

# need PACKAGES TEST: notes the packages unless the test succeeds.
need() {
    packages=$1
    shift
    "$@" || missing="$missing $packages"
}

# Sets $missing to the packages to install, and $problem to problems that no package solves.
examine() {
    missing='' problem='' linker=yes
    cc_works || { linker=''; missing='gcc libc6-dev'; }
    if ! libclang_works; then
        if [ -n "${LIBCLANG_PATH:-}" ] && [ -n "$linker" ]; then
            problem="LIBCLANG_PATH=$LIBCLANG_PATH: no libclang that works: $(cat "$work/libclang.txt")"
        else
            missing="$missing $(libclang_packages)"
        fi
    fi
    if ! rust_works; then
        if has cargo || has rustc || is_rustups; then
            problem="$problem
$(say_rust)"
        else
            missing="$missing $(rust_packages)"
        fi
    fi
    need ca-certificates certificates_work
    need "$(server_package)" scripts/server.sh --quiet
    has redis-cli || has valkey-cli || [ -x target/server/redis-cli ] || missing="$missing $(server_package)"
    for purpose in $purposes; do examine_for "$purpose"; done
    # shellcheck disable=SC2086 # one word a line, each once
    missing=$(printf '%s\n' $missing | awk 'NF && !seen[$0]++' | paste -sd' ' -)
}

examine_for() {
    case $1 in
    check)
        if is_rustups; then
            quiet cargo fmt --version && quiet cargo clippy --version ||
                problem="$problem
format and clippy are missing: rustup component add rustfmt clippy"
        elif [ -z "$problem" ]; then
            need "$(fmt_package)" quiet cargo fmt --version
            need "$(clippy_package)" quiet cargo clippy --version
        fi
        ;;
    fuzz) need g++ cxx_works ;;
    count) need 'valgrind libc6-dbg' valgrind_works ;;
    openssl) need openssl openssl_works ;;
    go) need golang-go go_works ;;
    python) need 'python3 python3-venv' python_works ;;
    node) need 'nodejs npm' node_works ;;
    fresh) need debootstrap has debootstrap ;;
    deb)
        need lowdown has lowdown
        need dpkg-dev has dpkg-shlibdeps
        ;;
    image) need umoci has umoci ;;
    booted) need systemd-container has systemd-nspawn ;;
    java)
        need default-jdk-headless javac_works
        if ! maven_works; then
            if [ -n "${JAVA_HOME:-}" ] && has mvn; then
                problem="$problem
JAVA_HOME=$JAVA_HOME: Maven needs a JDK $OLDEST_JAVA or newer there, with javac. Unset it, or name such a JDK."
            else
                missing="$missing default-jdk-headless maven"
            fi
        fi
        ;;
    *) say "setup: no purpose $1"; exit 2 ;;
    esac
}

# An installed Rust that is too old or incomplete is not changed: it is the user's.
say_rust() {
    echo "Rust 1.$OLDEST_RUST or newer is needed. Here: $(rustc --version 2>&1 | head -n 1) ($(command -v rustc || echo 'no rustc'));" \
        "$(cargo --version 2>&1 | head -n 1) ($(command -v cargo || echo 'no cargo'))."
    if is_rustups; then
        echo 'Setup changes no Rust that is installed. With rustup: rustup update stable && rustup default stable'
    else
        echo 'Setup replaces no Rust that is installed. Either rustup, beside it, without root: https://rustup.rs'
        if has apt-get && [ -n "$(candidate rustc-web)$(rust_suffix)" ]; then
            echo "or Debian's newer one, in its place, as root: apt-get update && apt-get install $(rust_packages)"
        else
            echo 'or a newer one in its place.'
        fi
    fi
}

# --- Installation ---

# Prints how root's commands are run here, or fails: sudo asks for a password only at a terminal.
root_command() {
    if [ "$(id -u)" -eq 0 ]; then return; fi
    has sudo || return 1
    if quiet sudo -n true; then
        echo 'sudo -n'
    elif [ -t 0 ] && [ -t 2 ]; then
        echo sudo
    else
        return 1
    fi
}

# The size of the download by apt: "120 MB", or nothing if apt does not report it.
download_size() {
    # shellcheck disable=SC2086
    apt-get -o Debug::NoLocking=1 --print-uris -qq -y --no-install-recommends install $missing 2>/dev/null |
        awk '/^'\''/ { bytes += $3 } END { if (bytes) printf "%.0f MB", bytes / 1000000 + 0.5 }'
}

# One line for every tenth package; apt's output is printed only if it fails.
apt_install() {
    rm -f "$work/failed"
    # shellcheck disable=SC2086
    { $as_root env DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 apt-get -q -y \
        -o DPkg::Lock::Timeout=300 --no-remove --no-install-recommends install $missing </dev/null 2>&1 ||
        : >"$work/failed"; } | tee "$work/apt.log" | awk '
        function progress(what, count) { if (count % 10 == 0) printf "setup: %s %d\n", what, count; fflush() }
        /newly installed/ { print "setup: " $0; fflush() }
        /^Get:/ { progress("packages downloaded:", ++got) }
        /^Unpacking / { progress("packages unpacked:", ++unpacked) }
        /^Setting up / { progress("packages set up:", ++done) }' >&2
    [ ! -e "$work/failed" ]
}

install_missing() {
    if [ "$as_root" = sudo ]; then
        say "setup: $missing will be installed, and sudo may ask for your password. (Ctrl-C to install them yourself.)"
        sudo -v || return 0 # the message at the end says what root is to do
    fi
    say 'setup: reading the lists of packages (apt-get update)'
    if ! $as_root apt-get -q update </dev/null >"$work/apt.log" 2>&1; then
        grep -E '^(E|W|Err)' "$work/apt.log" >&2 || cat "$work/apt.log" >&2
        say 'setup: the lists of packages were not updated; going on with those that are there'
    fi
    # With new lists the names of packages may change. The second round installs parts whose absence is only visible
    # after the first, for example the headers of the library.
    for _ in 1 2; do
        examine
        [ -n "$missing" ] || break
        size=$(download_size)
        say "setup: installing $missing"
        say "setup: ${size:-nothing} to download; unpacking takes one to three minutes. No service is installed."
        if ! apt_install; then
            grep -E '^(E:|Err|dpkg: error)' "$work/apt.log" >&2 || tail -n 20 "$work/apt.log" >&2
            break
        fi
    done
    examine
}

examine
if [ -n "$missing" ] && has apt-get && as_root=$(root_command); then install_missing; fi

# A server needs no root: the package is unpacked below target/.
case " $missing " in
*' redis-tools '* | *' valkey-tools '*)
    if has apt-get && tests/servers.sh target/server own; then examine; fi
    ;;
esac

if [ -n "$missing$problem" ]; then
    say
    say 'setup: something is missing.'
    if [ -n "$problem" ]; then say "$problem" | sed '/^$/d' >&2; fi
    if [ -n "$missing" ] && has apt-get; then
        say "As root: apt-get update && apt-get install --no-install-recommends $missing"
        size=$(download_size)
        [ -z "$size" ] || say "($size to download)"
    fi
    if [ -n "$missing" ] && ! has apt-get; then
        say "Needed: a C compiler that links, libclang with its headers, Rust 1.$OLDEST_RUST, Redis 7.0 or Valkey 8.0 (or newer)."
        for purpose in $purposes; do
            case $purpose in
            java) say "And a JDK $OLDEST_JAVA (or newer), Maven 3.6.3 (or newer)." ;;
            go) say "And Go 1.$OLDEST_GO (or newer)." ;;
            python) say "And Python 3.$OLDEST_PYTHON (or newer), with venv." ;;
            node) say "And Node $OLDEST_NODE (or newer), with npm." ;;
            check) say 'And rustfmt and clippy of that Rust.' ;;
            fuzz) say 'And a C++ compiler.' ;;
            count) say 'And valgrind.' ;;
            openssl) say 'And openssl.' ;;
            fresh) say 'And debootstrap.' ;;
            deb) say 'And lowdown and dpkg-dev.' ;;
            image) say 'And umoci.' ;;
            booted) say 'And systemd-nspawn.' ;;
            esac
        done
    fi
    exit 1
fi

case " $purposes " in
*' fuzz '*)
    if ! quiet cargo fuzz --version; then
        say "setup: installing cargo-fuzz into $HOME/.cargo/bin (about two minutes)"
        cargo install -q --locked cargo-fuzz
    fi
    ;;
esac

case " $purposes " in
*' deb '*)
    if ! quiet cargo deb --version; then
        say "setup: installing cargo-deb into $HOME/.cargo/bin (about two minutes)"
        cargo install -q --locked cargo-deb
    fi
    ;;
esac
