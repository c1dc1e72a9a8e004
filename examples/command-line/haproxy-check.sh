#!/bin/sh
# HAProxy's external check: its arguments are the address and the port of the proxy, then those of the server.
exec /usr/bin/redis-lock check --timeout 2 --server "redis://$3:$4"
