# shellcheck shell=sh disable=SC2034,SC2154
# Sourced by the scripts that make packages, in the root of the repository.

version=$(cargo pkgid --locked -p redis_lock | sed 's/.*[@#]//')
host=$(rustc -vV | sed -n 's/^host: //p')
maintainer=$(sed -n 's/^maintainer = "\(.*\)"/\1/p' Cargo.toml)
# The date of all files in packages.
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct 2>/dev/null || stat -c %Y Cargo.lock)}"
export SOURCE_DATE_EPOCH
day=$(date -u -d "@$SOURCE_DATE_EPOCH" +%F)

# glibc FILE: the oldest version of the C library that has all its symbols.
glibc() { objdump -T "$1" | sed -n 's/.*(GLIBC_\([0-9.]*\)).*/\1/p' | sort -V | tail -n 1; }

# crates PACKAGE [TARGET]: "name version licence" of each crate that is linked into the package's file.
crates() {
    cargo tree --locked -p "$1" --target "${2:-$host}" -e normal,no-proc-macro --prefix none -f '{p}|{l}' |
        sed 's/ (\*)$//' | sed -E 's/^([^ ]+) v([^ |]+)( \([^)]*\))?\|/\1 \2 /' | sort -u
}

# third_party PACKAGE: these crates, then the text of each licence once.
third_party() {
    registry=$(echo "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*)
    echo "Crates linked into $1 $version, and Rust's standard library (MIT OR Apache-2.0):"
    echo
    crates "$1" | while read -r name number licence; do
        case $name in redis_lock | redis-lock-*) continue ;; esac
        echo "$name $number: $licence"
    done
    # Of several licences to choose from, the text of MIT's where there is one.
    crates "$1" | while read -r name number licence; do
        for directory in $registry; do
            crate=$directory/$name-$number
            [ -d "$crate" ] || continue
            set -- "$crate"/LICENSE-MIT* "$crate"/license-mit*
            [ -f "$1" ] || [ -f "${2:-}" ] || set -- "$crate"/LICEN[SC]E* "$crate"/COPYING*
            for file in "$@"; do
                if [ -f "$file" ]; then echo "$(sha256sum <"$file" | cut -c -64) $name $file"; fi
            done
            break
        done
    done | sort -s -k 1,1 | awk '
        $1 != last { if (last != "") show(); last = $1; names = ""; file = $3 }
        { names = names (names == "" ? "" : ", ") $2 }
        END { show() }
        function show(   line) {
            printf "\n%s\n%s\n\n", "--------------------------------------------------------------------", names
            while ((getline line < file) > 0) print line
            close(file)
        }'
}

# sbom PACKAGE TARGET: these crates in CycloneDX's form.
sbom() {
    cargo tree --locked -p "$1" --target "$2" -e normal,no-proc-macro --prefix depth --no-dedupe -f ' {p}|{l}' |
        awk -v date="$(date -u -d "@$SOURCE_DATE_EPOCH" +%FT%TZ)" -f packaging/sbom.awk Cargo.lock -
}
