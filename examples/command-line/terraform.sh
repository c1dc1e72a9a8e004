#!/bin/sh
# terraform under a lock, for backends without locks of their own; in place of terraform: terraform.sh apply
# LOCK_NAME names the state (the directory's name by default).
set -eu
case ${1-} in
apply | destroy | import | plan | refresh | state | taint | untaint)
    name=${LOCK_NAME:-$(basename "$PWD")}:$(terraform workspace show)
    exec redis-lock run --wait 15m --lease 1m "terraform:$name" -- terraform "$@"
    ;;
*)
    exec terraform "$@"
    ;;
esac
