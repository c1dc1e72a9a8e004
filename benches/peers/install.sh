#!/bin/sh
# Installs the peers of `make bench-peers` that are missing, from Debian's packages, or says what to
# install. Each of them is optional: this script always succeeds, the benchmark leaves out what is not
# there. The packages start no server here, and none at the next boot: the benchmark starts its own. (Debian's
# postgresql makes a database cluster when it is installed; it stays stopped.) Servers that were there before
# stay as they are, and so does a policy-rc.d.
set -u

has_postgresql() { ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1; }
has_etcd() { [ -x /usr/bin/etcd ]; }
has_java() { [ -x /usr/bin/java ]; }
has_zookeeper() { [ -e /usr/share/java/zookeeper.jar ]; }

packages_of() {
    case $1 in
    postgresql) has_postgresql || echo postgresql ;;
    etcd) has_etcd || echo etcd-server ;;
    # The library is enough, and brings neither a user nor a service.
    zookeeper) has_java || echo default-jre-headless; has_zookeeper || echo libzookeeper-java ;;
    esac
}

missing=
for peer in postgresql etcd zookeeper; do
    missing="$missing $(packages_of $peer | tr '\n' ' ')"
done
# shellcheck disable=SC2086,SC2116 # one space between words
missing=$(echo $missing)
[ -n "$missing" ] || exit 0

as_root=
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null && sudo -n true 2>/dev/null && as_root=sudo
fi
if ! command -v apt-get >/dev/null || { [ "$(id -u)" -ne 0 ] && [ -z "$as_root" ]; }; then
    echo "not installed: $missing. On Debian, as root: apt-get install --no-install-recommends $missing" >&2
    exit 0
fi

# What Debian's packages ask before they start a service; 101 means: do not. An administrator's own stands
# aside until the end, also after a run that was killed.
policy=/usr/sbin/policy-rc.d
kept=$policy.before-bench-peers
restore() {
    if [ -n "$ours" ]; then $as_root rm -f $policy; fi
    if [ -e $kept ]; then $as_root mv $kept $policy; fi
}
ours=''
restore
trap restore EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
if [ -e $policy ]; then $as_root mv $policy $kept; fi
ours=yes
printf '#!/bin/sh\nexit 101\n' | $as_root tee $policy >/dev/null
$as_root chmod 755 $policy

# What is started at boot: names of units.
at_boot() { find /etc/systemd/system/ -path '*.wants/*' 2>/dev/null | sed 's|.*/||' | sort -u; }
before=$(at_boot)

$as_root apt-get -qq update
for peer in postgresql etcd zookeeper; do
    packages=$(packages_of $peer | tr '\n' ' ')
    [ -n "$packages" ] || continue
    echo "installing: $packages"
    # shellcheck disable=SC2086
    $as_root env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
        apt-get -qq -y --no-install-recommends install $packages >/dev/null ||
        echo "could not install $packages: $peer will be left out" >&2
done
for unit in $(at_boot); do
    printf '%s\n' "$before" | grep -qxF "$unit" || $as_root systemctl -q disable "$unit" 2>/dev/null
done
exit 0
