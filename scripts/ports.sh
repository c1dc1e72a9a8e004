# shellcheck shell=sh
# Which ports are in use, sourced by scripts that need one.

# taken PORT: a socket listens where a server on 127.0.0.1 would (the kernel's tables: addresses are in hex, state
# 0A listens). Where there are no such tables, the server itself finds out.
taken() {
    hex=$(printf ':%04X' "$1")
    cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | awk -v port="$hex" '
        $4 == "0A" && substr($2, length($2) - 4) == port {
            address = substr($2, 1, length($2) - 5)
            if (address ~ /^0+$/ || address ~ /(0100007F|7F000001)$/) found = 1
        }
        END { exit !found }'
}
