#!/bin/sh
# io-threads.sh SERVER: prints the options with which this server reads and writes with I/O threads. They are used when
# several clients are active (Redis 8: always). Redis 7 reads with them only if told to; later ones ignore that option,
# Valkey warns of it. The main thread is one of them, and those of Redis 7 and Valkey do not sleep: not more than cores.
case $("$1" --version) in
Valkey*) echo '--io-threads 2' ;;
*v=8.*) echo '--io-threads 3' ;;
*) echo '--io-threads 2 --io-threads-do-reads yes' ;;
esac
