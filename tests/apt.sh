# Read by the scripts that bring servers to test against: an apt of their own, beside the machine's.
# Packages come from the machine's own mirror; nothing is installed, the machine's lists stay as they are.

mirror() {
    cat /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list 2>/dev/null |
        sed -n 's/^URIs: *\([^ ]*\).*/\1/p; s/^deb \(\[[^]]*\] \)\{0,1\}\([^ ]*\) .*/\2/p' | head -n 1
}

# private_apt DIR deb|deb-src RELEASE...: from here on apt-get knows these releases and no package that
# is installed. It keeps everything below DIR (what it fetches: DIR/cache/archives).
private_apt() {
    apt=$1 type=$2
    shift 2
    rm -rf "$apt" && mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/none"
    : >"$apt/status"
    for release in "$@"; do
        base=$(mirror)
        case $release in *-security) base=$base-security ;; esac
        echo "$type [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $base $release main"
    done >"$apt/sources.list"
    cat >"$apt/conf" <<CONF
Dir::State::lists "$apt/lists";
Dir::State::status "$apt/status";
Dir::Cache "$apt/cache";
Dir::Etc::sourcelist "$apt/sources.list";
Dir::Etc::sourceparts "$apt/none";
Dir::Etc::preferencesparts "$apt/none";
Dir::Etc::preferences "$apt/none/file";
Acquire::Languages "none";
APT::Sandbox::User "";
APT::Install-Recommends "false";
Debug::NoLocking "true";
CONF
    export APT_CONFIG="$apt/conf"
    apt-get -qq update
}
