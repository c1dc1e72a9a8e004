#!/bin/sh
# test-deb.sh [RELEASE:SERVER...]: installs, upgrades, removes and purges the packages of target/debian on new Debian
# systems (bookworm:redis trixie:redis trixie:valkey), each with systemd as its first process, so the packaged server
# runs in the sandbox of its own unit.
#
# The systems are made by debootstrap and started by systemd-nspawn, without a network and in cgroups of their own. If
# root, debootstrap, systemd-nspawn or Debian's mirror is missing, the script says so and ends with 0. The processes and
# mounts end with the script. Base systems and downloaded packages are kept in target/fresh.
set -eu
cd "$(dirname "$0")/.."
fresh=$PWD/target/fresh
# shellcheck disable=SC2034 # for minimal-debian.sh
tested='the Debian packages'
. scripts/minimal-debian.sh

if [ "${1:-}" != --inside ]; then
    [ "$(id -u)" -eq 0 ] || skip 'It needs root.'
    for tool in debootstrap systemd-nspawn nsenter; do
        command -v $tool >/dev/null || skip "It needs $tool (apt-get install debootstrap systemd-container)."
    done
    ls target/debian/redis-lock-module_*.deb >/dev/null 2>&1 || { echo 'test-deb: no packages; first: make deb' >&2; exit 1; }
    unshare --mount --pid --fork --kill-child true 2>/dev/null || skip 'There may be no namespaces here (unshare).'
    if [ $# -eq 0 ]; then set -- bookworm:redis trixie:redis trixie:valkey; fi
    exec unshare --mount --pid --fork --kill-child --mount-proc --propagation private "$PWD/scripts/test-deb.sh" --inside "$@"
fi
shift
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'stop_machine' EXIT

find_mirror
mkdir -p "$fresh"
nspawn=

step() { printf 'test-deb: %s: %s\n' "$case" "$1"; }
fail() {
    printf 'test-deb: %s: FAILED: %s\n' "$case" "$1" >&2
    [ ! -s "$out" ] || tail -n 30 "$out" >&2
    if [ -n "$nspawn" ]; then on "tail -n 15 /var/log/$name/$name-server.log" >&2 || :; fi
    exit 1
}
# until_true COMMAND...: tries again for up to a minute.
until_true() {
    tries=0
    until "$@"; do
        tries=$((tries + 1))
        [ $tries -lt 600 ] || fail "timed out: $*"
        sleep 0.1
    done
}

# --- The system ---

# A copy of the base at $root with systemd. Packages go in before it is started: from then on it has no network.
make_machine() {
    base "$1"
    root=$fresh/$name-$1/root
    rm -rf --one-file-system "$fresh/$name-$1"
    mkdir -p "$root" "$fresh/$name-$1/upper" "$fresh/$name-$1/work" "$fresh/debs-$1/partial"
    mount -t overlay overlay -o "lowerdir=$base,upperdir=$fresh/$name-$1/upper,workdir=$fresh/$name-$1/work" "$root" 2>/dev/null ||
        cp -a "$base/." "$root/"
    mount -t proc proc "$root/proc"
    mount --bind "$fresh/debs-$1" "$root/var/cache/apt/archives"
    adopt "$root"
    # No maintainer script starts a service before systemd runs.
    printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
    chmod 755 "$root/usr/sbin/policy-rc.d"
    before "$quiet_apt update && $quiet_apt install systemd systemd-sysv dbus" || skip 'apt reaches no mirror from a new system.'
    mkdir -p "$root/root/debs"
    cp target/debian/*_"$(dpkg --print-architecture)".deb "$root/root/debs/"
}
# before COMMAND: runs in the system while systemd does not run; the output is in $out.
before() { env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot "$root" sh -c "cd /root/debs 2>/dev/null || cd /root; $1" >"$out" 2>&1 </dev/null; }

start_machine() {
    rm "$root/usr/sbin/policy-rc.d"
    umount "$root/var/cache/apt/archives" "$root/proc"
    # Where systemd is not the first process of this machine, nspawn makes no scope: it gets cgroups of ours.
    keep=
    if [ ! -d /run/systemd/system ]; then
        keep=--keep-unit
        for cgroups in $cgroup_roots; do
            mkdir -p "$cgroups/redis-lock-test"
            echo $$ >"$cgroups/redis-lock-test/cgroup.procs"
        done
    fi
    SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1 systemd-nspawn --quiet --directory="$root" --boot --register=no $keep --private-network \
        --kill-signal=SIGRTMIN+3 --link-journal=no --console=pipe >"$fresh/$name-$1/console" 2>&1 </dev/null &
    nspawn=$!
    until_true started
    until_true on 'systemctl is-system-running 2>&1 | grep -q -e running -e degraded'
}
cgroup_roots=$(awk '$3 == "cgroup2" || $4 ~ /name=systemd/ { print $2 }' /proc/mounts)
started() {
    kill -0 "$nspawn" 2>/dev/null || fail 'the system does not start'
    leader=$(cat "/proc/$nspawn/task/$nspawn/children" 2>/dev/null) && leader=${leader%% *} && [ -n "$leader" ] &&
        on 'test -S /run/systemd/private' 2>/dev/null
}
stop_machine() {
    if [ -n "$nspawn" ]; then
        kill -TERM "$nspawn" 2>/dev/null || :
        wait "$nspawn" 2>/dev/null || :
        nspawn=
        if [ ! -d /run/systemd/system ]; then
            for cgroups in $cgroup_roots; do
                echo $$ >"$cgroups/cgroup.procs"
                find "$cgroups/redis-lock-test" -depth -type d -exec rmdir {} + 2>/dev/null || :
            done
        fi
    fi
}

# on COMMAND: runs in the started system.
on() { nsenter --target "$leader" --mount --uts --ipc --net --pid --root --wd env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin sh -c "cd /root/debs; $1" </dev/null; }
# cli WORD...: one command of the server; errors are replies.
cli() { nsenter --target "$leader" --net --mount --root "/usr/bin/$name-cli" "$@" </dev/null 2>&1; }
field() { cli INFO "$1" | tr -d '\r' | sed -n "s/^$2://p"; }
info_is() { [ "$(field "$1" "$2")" = "$3" ]; }
answers() { [ "$(cli PING)" = PONG ]; }
restart() {
    on "systemctl reset-failed $name-server; systemctl restart $name-server" >"$out" 2>&1 || fail 'the server does not start'
    until_true answers
}
# says TEXT: the output of the last step contains it.
says() { grep -qF -e "$1" "$out" || fail "the output does not say: $1"; }

# --- The cases ---

refusals() {
    step 'without the server it can be installed and purged; beside an older server, and on another architecture, it cannot'
    before "dpkg -i ${package}_*.deb && dpkg --purge $package" || fail 'installation without the server'
    before "mkdir -p old/x/DEBIAN && printf '%s\n' 'Package: $name-server' 'Version: 6.0' 'Architecture: all' \
        'Maintainer: nobody' 'Description: a server that is too old' >old/x/DEBIAN/control &&
        dpkg-deb -b old/x old/old.deb && dpkg -i old/old.deb" || fail 'no older server'
    if before "dpkg -i ${package}_*.deb"; then fail 'installed beside an older server'; fi
    says "$package breaks $name-server (<<"
    before "dpkg --purge $package; dpkg --purge $name-server" || fail 'purge after a refused installation'
    before "mkdir other && dpkg-deb -R ${package}_*.deb other/x && sed -i 's/^Architecture: .*/Architecture: s390x/' other/x/DEBIAN/control &&
        dpkg-deb -b other/x other/other.deb" || fail 'no package for another architecture'
    if before 'dpkg -i other/other.deb'; then fail 'installed a package for another architecture'; fi
    says 'package architecture (s390x) does not match system'
    [ ! -e "$root/$module" ] || fail 'a refused package leaves its module'
}

# versions: makes the packages of two later revisions; the module of the last one does not load.
later_revisions() {
    before "rm -rf later && mkdir later && dpkg-deb -R ${package}_*.deb later/x &&
        sed -i 's/^\(Version: .*\)-[0-9]*$/\1-98/' later/x/DEBIAN/control && dpkg-deb -b later/x later/98.deb &&
        sed -i 's/^\(Version: .*\)-[0-9]*$/\1-99/' later/x/DEBIAN/control && sed -i 's/libc[.]so[.]6/libq.so.6/g' later/x$module &&
        dpkg-deb -b later/x later/99.deb" || fail 'no later revisions'
}

installation() {
    step 'installation from a file'
    before "$quiet_apt install $name-server ./${package}_*.deb ./redis-lock_*.deb" || fail 'apt-get install'
    [ "$(stat -c %a:%u "$root$module")" = 755:0 ] || fail 'mode of the module'
    for file in usr/share/man/man7/$name-lock-commands.7.gz usr/share/man/man7/$name-lock-settings.7.gz \
        usr/share/man/man1/redis-lock.1.gz usr/share/bash-completion/completions/redis-lock \
        usr/share/doc/$package/README.Debian usr/share/doc/$package/docs/OPERATIONS.md \
        usr/share/doc/$package/ops/redis-lock.lua usr/share/doc/$package/examples/redis-rb/tickets.rb usr/share/doc/$package/docs/pair-cost.svg usr/share/doc/$package/copyright usr/share/doc/$package/changelog.Debian.gz; do
        [ -s "$root/$file" ] || fail "no $file"
    done
    for path in "/etc/$name/$name.conf" "$module"; do
        grep -qF "$path" "$root/usr/share/doc/$package/README.Debian" || fail "README.Debian does not name $path"
    done
    before 'redis-lock --version' || fail 'redis-lock --version'
}

off_until_configured() {
    step 'the module is off until the configuration loads it'
    until_true answers
    cli LOCK.HELP | grep -qi 'unknown command' || fail 'the module is loaded without a configuration'
    printf '%s\n' "loadmodule $module" 'maxmemory-policy noeviction' 'lock.default-lease 600000' >>"$root/etc/$name/$name.conf"
    restart
    cli LOCK.HELP | grep -q LOCK.ACQUIRE || fail 'no LOCK.HELP'
}

# What the unit's options have made of the server's process, and that the module may not be elsewhere.
sandbox() {
    step "the sandbox of $name-server.service"
    on "pid=\$(systemctl show -p MainPID --value $name-server); cat /proc/\$pid/status; readlink /proc/\$pid/ns/user /proc/self/ns/user;
        cat /proc/\$pid/mountinfo; grep $module /proc/\$pid/maps" >"$out" 2>&1 || fail 'no process'
    for option in NoNewPrivs.1 Seccomp.2 CapBnd.0000000000000000; do
        grep -qE "^${option%%.*}:[[:space:]]+${option#*.}\$" "$out" || fail "not in the sandbox: $option"
    done
    grep -qE ' / / ro,[^ ]*noexec' "$out" || fail 'the root directory is not read-only and noexec'
    [ "$(grep '^user:' "$out" | sort -u | wc -l)" = 2 ] || fail 'no user namespace of its own'
    grep -q "r-xp .*$module" "$out" || fail "$module is not mapped"

    cp "$root$module" "$root/opt/"
    sed -i "s|^loadmodule .*|loadmodule /opt/libredis_lock.so|" "$root/etc/$name/$name.conf"
    on "systemctl restart $name-server" >"$out" 2>&1 || :
    until_true on "grep -q 'failed to map segment from shared object' /var/log/$name/$name-server.log"
    sed -i "s|^loadmodule .*|loadmodule $module|" "$root/etc/$name/$name.conf"
    rm "$root/opt/libredis_lock.so"
    restart
}

# park OWNER: waits for invoices:42 in the background, into $fresh/$name-$release/OWNER.
park() {
    cli LOCK.ACQUIRE invoices:42 "$1" PX 600000 BLOCK 0 >"$fresh/$name-$release/$1" &
    until_true info_is lock lock_waiters "$2"
}

upgrades() {
    step 'upgrade with a holder and a waiter: nothing changes, and a restart is due'
    token=$(cli LOCK.ACQUIRE invoices:42 alice PX 600000)
    [ "$token" -gt 0 ] 2>/dev/null || fail "LOCK.ACQUIRE: $token"
    park bob 1
    pid=$(on "systemctl show -p MainPID --value $name-server")
    on 'dpkg -i later/98.deb' >"$out" 2>&1 || fail 'dpkg -i of a later revision'
    says "systemctl restart $name-server"
    info_is lock lock_waiters 1 || fail 'the installation disturbs a waiter'
    [ "$(on "systemctl show -p MainPID --value $name-server")" = "$pid" ] || fail 'the installation restarts the server'
    if mapped_is "$module"; then fail 'the server has the new file mapped already'; fi

    step 'the restart loads the new build and keeps the hold; the waiter asks again'
    restart
    mapped_is "$module" || fail 'the new file is not the one that is mapped'
    [ "$(cli LOCK.ACQUIRE invoices:42 alice ONCE)" = "$token" ] || fail 'the hold is lost by a restart'
    park bob 1
    [ "$(cli LOCK.RELEASE invoices:42 alice)" = 1 ] || fail 'LOCK.RELEASE'
    until_true grep -q '[0-9]' "$fresh/$name-$release/bob"
    next=$(cat "$fresh/$name-$release/bob")
    [ "$next" -gt "$token" ] || fail 'the waiter gets no higher token'

    step 'a build that does not load: the log says why, and the package before leads back'
    on 'dpkg -i later/99.deb' >"$out" 2>&1 || fail 'dpkg -i of a broken build'
    on "systemctl restart $name-server" >"$out" 2>&1 || :
    until_true on "grep -q libq.so.6 /var/log/$name/$name-server.log"
    on 'dpkg -i later/98.deb' >"$out" 2>&1 || fail 'back to the revision before'
    restart
    [ "$(cli LOCK.ACQUIRE invoices:42 bob ONCE)" = "$next" ] || fail 'the hold is lost by a broken build'
}
# The inode that the server has mapped is that of FILE.
mapped_is() {
    on "pid=\$(systemctl show -p MainPID --value $name-server); grep -h ' r-xp .*/libredis_lock' /proc/\$pid/maps" >"$out"
    [ "$(awk '{ print $5 }' "$out" | sort -u)" = "$(on "stat -c %i $1")" ] && ! grep -q deleted "$out"
}

# The server's own words for a setting that the module does not have.
unknown_setting='Module Configuration detected without loadmodule directive or no ApplyConfig call: aborting'

bad_configuration() {
    step 'a configuration that does not parse: the log says why, the data stays'
    for bad in 'lock.default-lease 0|lock.default-lease' "lock.defualt-lease 1000|$unknown_setting"; do
        echo "${bad%|*}" >>"$root/etc/$name/$name.conf"
        : >"$root/var/log/$name/$name-server.log"
        on "systemctl restart $name-server" >"$out" 2>&1 || :
        until_true on "grep -qF -e '${bad#*|}' /var/log/$name/$name-server.log"
        on "systemctl stop $name-server"
        sed -i '$d' "$root/etc/$name/$name.conf"
        restart
        cli HGETALL invoices:42 | grep -q bob || fail 'the hold is lost'
    done
}

config_rewrite() {
    step 'CONFIG REWRITE: the server starts again'
    cli CONFIG SET lock.queue-grace 2000 >"$out"
    cli CONFIG REWRITE >"$out"
    says OK
    restart
    [ "$(cli CONFIG GET lock.queue-grace | tail -n 1)" = 2000 ] || fail 'a setting is lost by CONFIG REWRITE'
}

command_line() {
    step 'the command line on the packaged server'
    on "redis-lock run nightly -- sh -c 'test \$LOCK_TOKEN -gt 0 && redis-lock ls'" >"$out" 2>&1 || fail 'redis-lock run'
    says nightly
}

removal() {
    step 'removal: a server that would not start again is named, the data stays'
    on "dpkg --remove $package" >"$out" 2>&1 || fail 'dpkg --remove'
    says "/etc/$name/$name.conf loads the module"
    on 'apt-get -s autoremove' >"$out" 2>&1 || fail 'apt-get autoremove'
    if grep -q "^Remv $name-server" "$out"; then fail 'the server is removed with the module'; fi
    cli LOCK.INFO invoices:42 | grep -q . || fail 'removal disturbs the server'
    sed -i '/^loadmodule/d; /^lock\./d' "$root/etc/$name/$name.conf"
    restart
    cli HGETALL invoices:42 | grep -q bob || fail 'the hold is lost'
    on "dpkg --purge $package redis-lock" >"$out" 2>&1 || fail 'dpkg --purge'
    left=$(find "$root" -xdev \( -name '*lock-module*' -o -name 'libredis_lock*' -o -name 'redis-lock*' \) ! -path '*/root/debs/*' ! -path '*/proc/*')
    [ -z "$left" ] || fail "purge leaves: $left"
}

for case in "$@"; do
    release=${case%:*} name=${case#*:}
    begun=$(date +%s)
    package=$name-lock-module
    module=/usr/lib/$name/modules/libredis_lock.so
    out=$fresh/$name-$release.out
    : >"$out"
    make_machine "$release"
    refusals
    later_revisions
    installation
    start_machine "$release"
    off_until_configured
    sandbox
    upgrades
    bad_configuration
    config_rewrite
    command_line
    removal
    stop_machine
    umount "$root" 2>/dev/null || :
    rm -rf --one-file-system "$fresh/$name-$release"
    echo "test-deb: $case: passed ($(($(date +%s) - begun)) s)"
done
