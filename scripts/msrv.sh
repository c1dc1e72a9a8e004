#!/bin/sh
# msrv.sh: checks the workspace, its tests included, with the oldest Rust that Cargo.toml promises (rust-version).
# That Rust is the one of PATH if it has this version, else a toolchain of rustup, which is installed beside the others
# if it is missing. Where it cannot be had, the script says so and ends with 0.
set -eu
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"

# Every package states the same version, and setup.sh refuses an older Rust.
oldest=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
for manifest in benches cli clients/rust tests/clients tests/fault-module tests/faults tests/fuzz tests/harness; do
    if ! grep -qx "rust-version = \"$oldest\"" "$manifest/Cargo.toml"; then
        echo "msrv: $manifest/Cargo.toml does not say rust-version = \"$oldest\"" >&2
        exit 1
    fi
done
if ! grep -q "^OLDEST_RUST=${oldest#1.} " scripts/setup.sh; then
    echo "msrv: OLDEST_RUST in scripts/setup.sh is not $oldest" >&2
    exit 1
fi

check() {
    echo "msrv: $("$@" rustc --version)"
    CARGO_TARGET_DIR=$PWD/target/msrv "$@" cargo check --locked --workspace --all-targets
}

case $(rustc --version 2>/dev/null) in
"rustc $oldest."*) check env ;;
*)
    if ! command -v rustup >/dev/null; then
        echo "msrv: not checked: this needs Rust $oldest in PATH, or rustup (https://rustup.rs)" >&2
        exit 0
    fi
    if ! rustup run "$oldest" rustc --version >/dev/null 2>&1 &&
        ! rustup toolchain install "$oldest" --profile minimal --no-self-update; then
        echo "msrv: not checked: rustup cannot install Rust $oldest" >&2
        exit 0
    fi
    check rustup run "$oldest"
    ;;
esac
