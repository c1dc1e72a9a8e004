#!/bin/sh
# installed.sh FILE DESTDIR: prints the steps after `make install` has copied the module to FILE.
set -eu
file=$1
if [ -n "$2" ]; then exit 0; fi # a package is being made

# The server whose configuration exists on this machine; redis if none does.
name=redis
for candidate in redis valkey; do
    if [ -e /etc/$candidate/$candidate.conf ] || [ -d /etc/$candidate ]; then
        name=$candidate
        break
    fi
done
case $file in */valkey/*) name=valkey ;; esac

directory=${file%/*}
# The path as a word of the configuration.
word=$file
case $file in *' '*) word="\"$file\"" ;; esac

cat <<TEXT

Next, as root:
  1. Add to /etc/$name/$name.conf:
         loadmodule $word
         maxmemory-policy noeviction
     (redis.conf.example here explains the settings of the module.)
TEXT
step=2
case $file in
/usr/lib/* | /lib/*) ;;
*)
    # NoExecPaths=/ and ExecPaths=/usr/bin/redis-server /usr/lib /lib, ProtectHome and PrivateTmp in the units.
    cat <<TEXT
  $step. Debian's units let the server load code from /usr/lib and /lib only. For this directory: systemctl edit $name-server, with
         [Service]
         ExecPaths=$directory
TEXT
    case $file in
    /home/* | /root/* | /tmp/* | /var/tmp/*)
        echo "     and even so the unit hides $directory from the server (ProtectHome, PrivateTmp): better install below /usr/lib."
        ;;
    esac
    step=$((step + 1))
    ;;
esac
case $file in
*' '*) echo "     CONFIG REWRITE of the server writes this path without quotes, and the next start fails: better install to a path without spaces." ;;
esac
cat <<TEXT
  $step. systemctl restart $name-server
     or, without a restart, where enable-module-command allows it: $name-cli MODULE LOAD $word
  $((step + 1)). $name-cli LOCK.HELP lists the commands. If it is unknown, the reason is in /var/log/$name/$name-server.log.
TEXT
