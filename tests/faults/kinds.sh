#!/bin/sh
# kinds.sh LOCK-FAULTS MINUTES SETTING...: every kind of lock in every place on the server LOCK_SERVER, for MINUTES with
# each SETTING: plain, threads (I/O threads), tls (clients connect by TLS).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
faults=$1 minutes=$2
shift 2

status=0
for setting; do
    options='' certificates=''
    case $setting in
    plain) ;;
    threads) options=$("$here/../../scripts/io-threads.sh" "$LOCK_SERVER") ;;
    tls)
        certificates=$PWD/target/faults/tls
        ;;
    *) echo "kinds.sh: no setting '$setting'" >&2; exit 2 ;;
    esac
    LOCK_SERVER_OPTIONS=$options ${certificates:+env LOCK_TLS="$certificates"} \
        "$faults" kinds --minutes "$minutes" || status=$?
done
exit "$status"
