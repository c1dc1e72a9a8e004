#!/bin/sh
# test-go.sh [OPTION OF GO TEST...]: format, lints and tests of clients/go with the race detector, on real servers, and
# of its second Go module, lockotel. The server's module is LOCK_MODULE, by default that of `make build`.
set -eu
cd "$(dirname "$0")/.."
LOCK_MODULE=${LOCK_MODULE:-$PWD/target/release/libredis_lock.so}
LOCK_SERVER=${LOCK_SERVER:-$(scripts/server.sh)}
GOTOOLCHAIN=local GOFLAGS=-mod=readonly
export LOCK_MODULE LOCK_SERVER GOTOOLCHAIN GOFLAGS
[ -f "$LOCK_MODULE" ] || { echo "no module at $LOCK_MODULE: first make build"; exit 1; }
STATICCHECK=v0.8.2

there=$PWD/target/clients/go
mkdir -p "$there"
if ! [ -x "$there/staticcheck-$STATICCHECK" ] &&
    GOBIN=$there GOFLAGS='' go install "honnef.co/go/tools/cmd/staticcheck@$STATICCHECK"; then
    mv "$there/staticcheck" "$there/staticcheck-$STATICCHECK"
fi
cd clients/go

format=$(gofmt -l .)
[ -z "$format" ] || { echo "format: gofmt -w $format"; exit 1; }
[ -x "$there/staticcheck-$STATICCHECK" ] || echo 'staticcheck: not here'
for directory in . lockotel; do
    (cd $directory && go vet ./... &&
        { ! [ -x "$there/staticcheck-$STATICCHECK" ] || "$there/staticcheck-$STATICCHECK" ./...; })
done
if [ $# -gt 0 ]; then
    exec go test -race -count=1 "$@" .
fi
# Ten thousand waits are a matter of time with the race detector.
go test -count=1 -run TenThousand .
go test -race -short -count=1 . ./locktest
(cd lockotel && go test -race -count=1 .)
