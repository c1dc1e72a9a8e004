#!/bin/sh
# io-threads.sh SERVER: prints the options with which this server reads and writes with I/O threads. They are used when
# several clients are active (Redis 8: always). Redis 7 reads with them only if told to; later ones ignore that option,
# Valkey warns of it.
case $("$1" --version) in
Valkey*) echo '--io-threads 2' ;;
*) echo '--io-threads 3 --io-threads-do-reads yes' ;;
esac
