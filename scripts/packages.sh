#!/bin/sh
# packages.sh [java] [python] [node] [go]: those packages of clients/ in the form in which they are published, in
# target/packages: maven, a repository with jars, sources, documentation and poms; python, a wheel and an sdist; node, an
# archive of npm; go, the files of a module proxy (GOPROXY). All by default.
set -eu
cd "$(dirname "$0")/.."
there=$PWD/target/packages

# Into a new directory, so that no file of a former build is published. Maven's local repository is the user's.
java() {
    scripts/setup.sh java
    rm -rf "$there/maven"
    mvn -B -ntp -Dstyle.color=never -q -f clients/java deploy -DskipTests -Dmaven.install.skip=true \
        -DaltDeploymentRepository="packages::file:$there/maven"
    find "$there/maven" -name '*.jar' | sort
}

python() {
    scripts/setup.sh python
    rm -rf "$there/python"
    tools=$PWD/target/clients/python-build
    [ -x "$tools/bin/pyproject-build" ] || {
        python3 -m venv "$tools"
        "$tools/bin/pip" install --quiet --disable-pip-version-check 'build==1.6.1'
    }
    "$tools/bin/pyproject-build" --outdir "$there/python" clients/python >/dev/null
    find "$there/python" -type f | sort
}

node() {
    scripts/setup.sh node
    rm -rf "$there/node"
    mkdir -p "$there/node"
    scripts/test-node.sh --pack "$there/node"
    find "$there/node" -type f | sort
}

# Two modules, that of OpenTelemetry by itself. Without the tests, which need the repository.
go() {
    scripts/setup.sh go python
    rm -rf "$there/go"
    version=v$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
    for directory in clients/go clients/go/lockotel; do
        module=$(sed -n 's/^module //p' $directory/go.mod)
        proxy=$there/go/$module/@v
        mkdir -p "$proxy"
        echo "$version" >"$proxy/list"
        echo "{\"Version\": \"$version\"}" >"$proxy/$version.info"
        cp $directory/go.mod "$proxy/$version.mod"
        find LICENSE $directory -type f ! -name '*_test.go' ! -path "$directory/lockotel/*" | sort | python3 -c '
import sys, zipfile
with zipfile.ZipFile(sys.argv[1], "w", zipfile.ZIP_DEFLATED) as archive:
    for name in sys.stdin.read().split():
        archive.write(name, sys.argv[2] + name.removeprefix(sys.argv[3]))
' "$proxy/$version.zip" "$module@$version/" "$directory/"
    done
    find "$there/go" -type f | sort
}

for language in ${*:-java python node go}; do
    case $language in
    java | python | node | go) $language ;;
    *) echo "packages: no package for $language" >&2 && exit 2 ;;
    esac
done
