#!/bin/sh
# Installs the peers of `make bench-peers` that are missing, from Debian's packages, or says what to
# install. Each of them is optional: this script always succeeds, the benchmark leaves out what is not
# there. The packages start no server here: the benchmark starts its own. (Debian's postgresql makes a
# database cluster when it is installed; it stays stopped.)
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

# What Debian's packages ask before they start a service; 101 means: do not.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
    trap '$as_root rm -f $policy' EXIT
    trap 'exit 1' INT TERM
    printf '#!/bin/sh\nexit 101\n' | $as_root tee $policy >/dev/null
    $as_root chmod 755 $policy
fi

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
exit 0
