# shellcheck shell=sh
# Sourced by the scripts that fetch servers for tests: an apt of their own, separate from the machine's. Packages come
# from the machine's mirror; nothing is installed, the machine's lists stay as they are. Needs no root.

machine_config=${APT_CONFIG:-}

# sources: prints "BASE RELEASE" for each release that the machine's apt fetches. apt itself reads its configuration, in
# any of its forms; the result does not depend on lists that were fetched before.
sources() {
    LC_ALL=C APT_CONFIG="$machine_config" apt-get -o Debug::NoLocking=true update --print-uris 2>/dev/null |
        sed -n "s|^'\(.*[^/]\)/*/dists/\([^']*\)/InRelease'.*|\1 \2|p"
}

# mirrors main|security: the bases of Debian's archive, the most likely first. Other archives also use the names of
# Debian's releases; their paths end differently.
mirrors() {
    if [ "$1" = security ]; then
        sources | awk '$1 !~ /^cdrom:/ && $NF ~ /(-security|\/updates)$/ { print $1 }' | awk '!seen[$0]++'
        return
    fi
    sources | awk '
        $1 ~ /^cdrom:/ || NF != 2 { next }
        $2 ~ /^(bullseye|bookworm|trixie|forky|duke|oldoldstable|oldstable|stable|testing|unstable|sid)$/ {
            rank = $1 ~ /^file:/ ? 4 : $1 ~ /\/debian$/ ? 1 : $1 ~ /^mirror/ ? 2 : 3
            print rank, $1
        }' | sort -s -n -k 1,1 | cut -d ' ' -f 2- | awk '!seen[$0]++'
}

# private_apt DIR deb|deb-src|own RELEASE...: from here on apt-get uses these releases and sees no installed package
# ("own": the machine's releases). It keeps everything below DIR (downloads: DIR/cache/archives). From the machine's
# configuration it takes the settings for downloads (proxies, certificates), and no hook.
private_apt() {
    apt=$1 type=$2
    shift 2
    command -v apt-get >/dev/null || { echo 'no apt-get here' >&2; return 1; }
    rm -rf "$apt" && mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/none" || return 1
    : >"$apt/status"
    {
        LC_ALL=C APT_CONFIG="$machine_config" apt-config dump | grep -E '^Acquire::(https?|ftp|socks|tor|Retries|Check|ForceIPv|Max-ValidTime|Min-ValidTime|AllowInsecure|Proxy|EnableSrv)'
        cat <<CONF
Dir::State::lists "$apt/lists";
Dir::State::status "$apt/status";
Dir::Cache "$apt/cache";
Dir::Etc::main "$apt/none/file";
Dir::Etc::parts "$apt/none";
Dir::Etc::preferencesparts "$apt/none";
Dir::Etc::preferences "$apt/none/file";
Acquire::Languages "none";
APT::Architectures { "$(dpkg --print-architecture)"; };
APT::Sandbox::User "";
APT::Install-Recommends "false";
APT::Update::Error-Mode "any";
Debug::NoLocking "true";
CONF
        if [ "$type" != own ]; then
            echo "Dir::Etc::sourcelist \"$apt/sources.list\";"
            echo "Dir::Etc::sourceparts \"$apt/none\";"
        fi
    } >"$apt/conf"
    if [ "$type" = own ]; then
        export APT_CONFIG="$apt/conf"
        fetch_lists
        return
    fi
    # Without this file, apt uses its own keys.
    signed='' tried=''
    for keys in /usr/share/keyrings/debian-archive-keyring.pgp /usr/share/keyrings/debian-archive-keyring.gpg; do
        if [ -r $keys ]; then signed=" [signed-by=$keys]"; fi
    done
    security=$(mirrors security | head -n 1)
    for base in $(mirrors main); do
        tried=yes
        for release in "$@"; do
            case $release in
            *-security) [ -z "$security" ] || echo "$type$signed $security $release main" ;;
            *) echo "$type$signed $base $release main" ;;
            esac
        done >"$apt/sources.list"
        export APT_CONFIG="$apt/conf"
        if fetch_lists; then return; fi
    done
    [ -n "$tried" ] || echo "apt's configuration names no mirror of Debian's archive" >&2
    return 1
}

# Quiet, except for errors.
fetch_lists() {
    apt-get -qq update </dev/null >"$apt/log" 2>&1 && return
    grep -E '^[EW]:' "$apt/log" >&2 || cat "$apt/log" >&2
    return 1
}
