#!/bin/sh
# packages.sh [java] [python] [node]: the packages of clients/ in the form in which they are published, in target/packages:
# maven, a repository with jars, sources, documentation and poms; python, a wheel and an sdist; node, an archive of npm.
# All by default.
set -eu
cd "$(dirname "$0")/.."
there=$PWD/target/packages

# Into a new directory, so that no file of a former build is published. Maven's local repository is the user's.
java() {
    scripts/setup.sh client java
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

for language in ${*:-java python node}; do
    case $language in
    java | python | node) $language ;;
    *) echo "packages: no package for $language" >&2 && exit 2 ;;
    esac
done
