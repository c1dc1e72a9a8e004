#!/bin/sh
# Installs what is missing to build, run and test the module (with the argument "check": to check it
# too; with "count": to count its instructions; with "client": to test the client, which takes certificates;
# with "java": to run Redisson beside it), or says what to install. On Debian: a C compiler and libclang (for
# the bindings of the module API), cargo, a server.
set -eu
cd "$(dirname "$0")/.."

purpose=${1:-}
OLDEST_RUST=85 # as rust-version in Cargo.toml: 1.85
export PATH="$HOME/.cargo/bin:$PATH"

has() { command -v "$1" >/dev/null 2>&1; }

rust_is_new_enough() {
    has cargo && has rustc || return 1
    minor=$(rustc --version | sed -n 's/^rustc 1\.\([0-9]*\).*/\1/p')
    [ "${minor:-0}" -ge "$OLDEST_RUST" ]
}

has_libclang() {
    ls /usr/lib/llvm-*/lib/libclang*.so* /usr/lib/*/libclang*.so* >/dev/null 2>&1
}

OLDEST_JAVA=17 # as maven.compiler.release in tests/redisson/pom.xml
java_is_new_enough() {
    has javac || return 1
    major=$(javac -version 2>&1 | sed -n 's/^javac \([0-9]*\).*/\1/p')
    [ "${major:-0}" -ge "$OLDEST_JAVA" ]
}

# Debian 12 has a current Rust under other names than Debian 13.
debian_has_rust_web() { apt-cache show cargo-web >/dev/null 2>&1; }
rust_packages() { if debian_has_rust_web; then echo cargo-web rustc-web; else echo cargo rustc; fi; }
fmt_package() { if debian_has_rust_web; then echo rustfmt-web; else echo rustfmt; fi; }
clippy_package() { if debian_has_rust_web; then echo rust-web-clippy; else echo rust-clippy; fi; }

missing() {
    has cc || echo gcc libc6-dev
    has_libclang || echo libclang-dev
    rust_is_new_enough || rust_packages
    scripts/server.sh >/dev/null || echo redis-server
    has redis-cli || has valkey-cli || echo redis-tools
    if [ "$purpose" = check ]; then
        cargo fmt --version >/dev/null 2>&1 || fmt_package
        cargo clippy --version >/dev/null 2>&1 || clippy_package
    fi
    if [ "$purpose" = fuzz ]; then
        has c++ || echo g++
    fi
    if [ "$purpose" = count ]; then
        has valgrind || echo valgrind
    fi
    if [ "$purpose" = client ]; then
        has openssl || echo openssl
    fi
    if [ "$purpose" = java ]; then
        java_is_new_enough || echo default-jdk-headless
        has mvn || echo maven
    fi
    return 0
}

as_root=
if [ "$(id -u)" -ne 0 ] && has sudo && sudo -n true 2>/dev/null; then as_root=sudo; fi

if [ "$purpose" = fuzz ] && ! cargo fuzz --version >/dev/null 2>&1; then cargo install -q --locked cargo-fuzz; fi
if [ -z "$(missing)" ]; then exit 0; fi
if has apt-get && { [ "$(id -u)" -eq 0 ] || [ -n "$as_root" ]; }; then
    $as_root apt-get -qq update
    packages=$(missing | tr '\n' ' ')
    echo "installing: $packages"
    # The server is started by our own targets: the package need not start one beside it.
    # shellcheck disable=SC2086
    $as_root env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
        apt-get -qq -y --no-install-recommends install $packages >/dev/null
fi
if [ -n "$(missing)" ]; then
    echo "Something is missing. On Debian, as root: apt-get install $(missing | tr '\n' ' ')" >&2
    echo "Elsewhere: a C compiler, libclang, Rust 1.$OLDEST_RUST, Redis 7.0 or Valkey 8.0 (or newer)." >&2
    if [ "$purpose" = java ]; then echo "And a JDK $OLDEST_JAVA (or newer), Maven 3.6.3 (or newer)." >&2; fi
    exit 1
fi
