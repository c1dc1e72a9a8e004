# shellcheck shell=sh disable=SC2034,SC2154
# Sourced by the scripts that test on new machines, with $fresh, a directory for base systems, and $tested, the name of
# the test. Defines $mirror, skip and base.

# Ends with 0: a machine that cannot run the test is no failure.
skip() {
    printf '\n%s\n' '**********************************************************************' >&2
    printf 'NOT TESTED: %s. %s\n' "$tested" "$1" >&2
    printf '%s\n\n' '**********************************************************************' >&2
    exit 0
}

find_mirror() {
    . tests/apt.sh
    mirror=$(mirrors main | head -n 1)
    [ -n "$mirror" ] || skip "apt's configuration names no mirror of Debian's archive."
}

# base RELEASE: a minimal Debian at $base, made when missing, and again after a week.
base() {
    base=$fresh/base-$1
    if [ -d "$base" ] && [ -z "$(find "$base" -maxdepth 0 -mtime +7)" ]; then return; fi
    echo "$tested: making a minimal Debian ($1)"
    rm -rf "$base" "$base.new"
    mkdir -p "$fresh"
    if ! debootstrap --variant=minbase "$1" "$base.new" "$mirror" >"$fresh/debootstrap.log" 2>&1; then
        tail -n 5 "$fresh/debootstrap.log" >&2
        skip 'debootstrap fails.'
    fi
    rm -rf "$base.new"/var/cache/apt/archives/*.deb "$base.new"/var/lib/apt/lists/*
    mkdir -p "$base.new/var/lib/apt/lists/partial"
    touch "$base.new"
    mv "$base.new" "$base"
}

# adopt ROOT: gives a system the machine's ways to the network.
adopt() {
    mkdir -p "$1/usr/local/share/ca-certificates"
    cp -L /etc/resolv.conf /etc/hosts "$1/etc/"
    apt-config dump | grep -E '^Acquire::(https?|Check|Retries|ForceIPv)' >"$1/etc/apt/apt.conf.d/90machine" || :
    # Debian's hook adds these to its own certificates when they are installed.
    cp -L /usr/local/share/ca-certificates/*.crt "$1/usr/local/share/ca-certificates/" 2>/dev/null || :
}
quiet_apt='DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends'
