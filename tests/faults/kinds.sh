#!/bin/sh
# kinds.sh LOCK-FAULTS MINUTES SETTING...: every kind of lock in every place on the server LOCK_SERVER, for MINUTES with
# each SETTING: plain, threads (I/O threads), tls (clients connect by TLS).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
faults=$1 minutes=$2
shift 2

# An authority, and a certificate by it for this machine.
certify() {
    key='-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes'
    # shellcheck disable=SC2086 # words
    {
        openssl req -x509 $key -keyout ca.key -out ca.crt -subj /CN=authority -days 30
        openssl req $key -keyout server.key -out server.csr -subj /CN=server \
            -addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE
        openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 \
            -copy_extensions copy -out server.crt
    } 2>openssl.log || { cat openssl.log >&2; exit 1; }
}

status=0
for setting; do
    options='' certificates=''
    case $setting in
    plain) ;;
    threads) options=$("$here/../../scripts/io-threads.sh" "$LOCK_SERVER") ;;
    tls)
        certificates=$PWD/target/faults/tls
        mkdir -p "$certificates"
        (cd "$certificates" && certify)
        ;;
    *) echo "kinds.sh: no setting '$setting'" >&2; exit 2 ;;
    esac
    LOCK_SERVER_OPTIONS=$options ${certificates:+env LOCK_TLS="$certificates"} \
        "$faults" kinds --minutes "$minutes" || status=$?
done
exit "$status"
