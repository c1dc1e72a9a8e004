# shellcheck shell=sh
# Finds ports that are in use; sourced by scripts that need a free one.

# taken PORT: succeeds if a server on 127.0.0.1 could not use this port, because another socket accepts connections
# there. Reads the kernel's tables (addresses in hex, state 0A is LISTEN). Without these tables it fails, and the server
# itself reports a port in use.
taken() {
    hex=$(printf ':%04X' "$1")
    cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | awk -v port="$hex" '
        $4 == "0A" && substr($2, length($2) - 4) == port {
            address = substr($2, 1, length($2) - 5)
            if (address ~ /^0+$/ || address ~ /(0100007F|7F000001)$/) found = 1
        }
        END { exit !found }'
}
