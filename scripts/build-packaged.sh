#!/bin/sh
# build-packaged.sh TARGET CRATE: builds a crate for packages, stripped, into target/packaged/TARGET/release. No path of
# this machine gets into the file: with the same tree, Rust and C compiler, any directory gives the same bytes. (Two
# crates at once would have their dependencies' features in common, and other bytes.)
#
# For another TARGET than this machine's it needs rustup's target, the cross compiler and the C library's headers (on
# Debian: rustup target add aarch64-unknown-linux-gnu; apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross).
set -eu
cd "$(dirname "$0")/.."
target=$1 crate=$2
cargo_home=${CARGO_HOME:-$HOME/.cargo}
separator=$(printf '\037')
export CARGO_ENCODED_RUSTFLAGS="--remap-path-prefix=$PWD=/redis-lock$separator--remap-path-prefix=$cargo_home=/cargo"
export CFLAGS="-ffile-prefix-map=$cargo_home=/cargo" CARGO_PROFILE_RELEASE_STRIP=symbols CARGO_INCREMENTAL=0
unset RUSTFLAGS
case $target in
aarch64-unknown-linux-gnu)
    if [ "$(uname -m)" != aarch64 ]; then
        if ! library=$(rustc --print target-libdir --target "$target") || [ ! -d "$library" ]; then
            echo "packaged: Rust's library for $target is missing: rustup target add $target" >&2
            exit 1
        fi
        if ! command -v aarch64-linux-gnu-gcc >/dev/null || [ ! -d /usr/aarch64-linux-gnu/include ]; then
            echo 'packaged: the cross compiler is missing: apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross' >&2
            exit 1
        fi
        export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
        export BINDGEN_EXTRA_CLANG_ARGS_aarch64_unknown_linux_gnu='-I/usr/aarch64-linux-gnu/include'
    fi
    ;;
esac
exec cargo build --release --locked --target "$target" --target-dir target/packaged -p "$crate"
