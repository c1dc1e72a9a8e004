#!/bin/sh
# Checks the rules that the compiler does not: imports between the layers, and a few for tests and files. (The compiler
# forbids unsafe in src/lock and src/commands, and clippy requires a SAFETY comment on every unsafe block.)
set -u
cd "$(dirname "$0")/.." || exit 1
failed=0

# refuse WHY PATTERN PATH...: no line of these files may match, comments aside.
refuse() {
    why=$1 pattern=$2
    shift 2
    if found=$(grep -rnE --include='*.rs' "$pattern" "$@" | grep -vE '^[^:]+:[0-9]+: *//'); then
        printf 'lint: %s\n%s\n\n' "$why" "$found"
        failed=1
    fi
}

refuse 'the core knows nothing of the server, the shell or the commands' \
    'redis_module|crate::(module|commands)' src/lock
refuse 'the core reads no clock and does no input or output' \
    'std::(time|thread|fs|net|io|env|process)|SystemTime|Instant' \
    $(find src/lock -name '*.rs' ! -path 'src/lock/tests/*')
refuse 'the shell does not use the commands (load is given them)' 'crate::commands' src/module
refuse 'the commands reach the server only through the shell' 'redis_module|raw::' src/commands
refuse 'the module has no threads' 'std::thread|thread::spawn|thread_local!' src
refuse 'the server would ask for the positions of keys from its I/O threads' 'getkeys-api' src
refuse 'the module knows nothing of its client' 'redis_lock_client' src benches/src
refuse 'the client waits on its runtime, not on a thread' 'thread::sleep' clients/rust/src cli/src
refuse 'tests wait for conditions, not for time' '(thread|time)::sleep' \
    $(find tests -name '*.rs' ! -path 'tests/harness/*' ! -path 'tests/faults/*')
# tests/harness polls; tests/faults and clients/rust/tests/trial play loads and faults at random. Elsewhere a test of the
# client may let time pass as the work of a holder, the length of a fault or a phase, and says which.
# (The packages of clients/ poll in their harness.)
if found=$(find clients/rust/tests cli/tests clients/java/*/src/test clients/python/tests clients/node/tests \( -name '*.rs' -o -name '*.java' -o -name '*.py' -o -name '*.ts' \) \
    ! -path 'clients/rust/tests/trial/*' ! -name 'harness.*' -exec awk '
    /(^|[^_[:alnum:]])sleep\(/ && !/asyncio\.sleep\(0\)/ && last !~ /(\/\/|#) sleep: ./ { print FILENAME ":" FNR ":" $0 }
    { last = $0 }' {} + | grep .); then
    printf 'lint: tests wait for conditions; an unavoidable sleep has its reason on the line before (// sleep: ...)\n%s\n\n' "$found"
    failed=1
fi
refuse 'tests start their processes through the harness, which ends them with the test run (process::spawn)' \
    '\.spawn\(\)' $(find tests clients/rust/tests cli/tests -name '*.rs' ! -path 'tests/harness/src/process.rs')
refuse 'tests use no program that a minimal system lacks (procps, net-tools, curl, Python)' \
    'Command::new\("(ps|pgrep|pkill|killall|kill|ss|netstat|lsof|nc|curl|wget|python3?)"|\$\(ps |\b(pgrep|pkill|killall) ' \
    tests clients/rust/tests cli/tests benches/src

if found=$(grep -rnE 'Thread\.sleep|TimeUnit\.[A-Z]+\.sleep' --include='*.java' tests); then
    printf 'lint: tests wait for conditions, not for time\n%s\n\n' "$found"
    failed=1
fi

if found=$(git ls-files '*.rs' 2>/dev/null | xargs awk 'length > 120 && /^ *\/\// && !/^ *\/\/[\/!] \|/ { print FILENAME ":" FNR }' 2>/dev/null | grep .); then
    printf 'lint: comments wrap at 120 columns\n%s\n\n' "$found"
    failed=1
fi

if found=$(git ls-files 'clients/*.java' 'clients/*.py' 'clients/*.ts' 'clients/*.mjs' 'benches/clients/*.java' 'benches/clients/*.py' 'benches/clients/*.mjs' 'benches/clients/*.go' 'clients/*.md' 2>/dev/null |
    xargs awk 'length > 120 && !/^\|/ { print FILENAME ":" FNR }' 2>/dev/null | grep .); then
    printf 'lint: the packages of clients/ wrap at 120 columns\n%s\n\n' "$found"
    failed=1
fi

# A published package has no repository around it.
if found=$(grep -nE '\]\(\.\./' clients/rust/README.md cli/README.md clients/go/README.md clients/python/README.md clients/node/README.md); then
    printf 'lint: a link leads out of the package\n%s\n\n' "$found"
    failed=1
fi

for file in $(find src tests cli clients benches/clients -name node_modules -prune -o -name '*.rs' -o -name '*.ts' -o -name '*.java' -o -name '*.py' -o -name '*.js' -o -name '*.go' -o -name '*.rb'); do
    lines=$(wc -l <"$file")
    if [ "$lines" -gt 700 ]; then
        echo "lint: $file has $lines lines; no file is longer than 700"
        failed=1
    fi
done

awk -f scripts/layers.awk $(find src -name '*.rs' ! -path 'src/lock/tests/*' ! -path '*/tests.rs' | sort) || failed=1

for dir in src/lock src/commands; do
    if ! grep -q '#!\[forbid(unsafe_code)\]' "$dir/mod.rs"; then
        echo "lint: $dir/mod.rs must forbid unsafe code"
        failed=1
    fi
done

# Cargo.toml has the version of the release; packages of tests alone have 0.0.0.
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
# repeats FILE TEXT: the file states the version in these words, and no other version.
repeats() {
    if ! grep -qF "$2$version" "$1" || grep -F "$2" "$1" | grep -qvF "$2$version"; then
        echo "lint: $1 must say $2$version, the version of Cargo.toml"
        failed=1
    fi
}
repeats Cargo.toml 'redis-lock-client = { version = "'
repeats packaging/kubernetes/values.yaml 'redis-lock-module:'
repeats clients/go/lockotel/go.mod 'redis-lock.invalid/clients/go v'
grep -qxF "version = \"$version\"" clients/python/pyproject.toml || {
    echo "lint: clients/python/pyproject.toml must say version = \"$version\", the version of Cargo.toml"
    failed=1
}
grep -qF "\"version\": \"$version\"," clients/node/package.json || {
    echo "lint: clients/node/package.json must say \"version\": \"$version\", the version of Cargo.toml"
    failed=1
}
# Of each pom its own version, or that of its parent: the line after the artifact's name.
for pom in $(git ls-files 'clients/java/*pom.xml'); do
    stated=$(grep -A1 '<artifactId>redis-lock-parent</artifactId>' "$pom" | sed -n 's/.*<version>\(.*\)<.*/\1/p')
    if [ "$stated" != "$version" ]; then
        echo "lint: $pom must say version $version, the version of Cargo.toml, and says: $stated"
        failed=1
    fi
done
for page in $(git ls-files 'clients/*.md'); do
    if found=$(grep -A1 '<artifactId>redis-lock-' "$page" | grep '<version>' | grep -vF "<version>$version</version>"); then
        echo "lint: $page must name version $version: $found"
        failed=1
    fi
done
if found=$(grep -nE '^version = ' benches/Cargo.toml cli/Cargo.toml clients/rust/Cargo.toml tests/*/Cargo.toml | grep -v '"0\.0\.0"$'); then
    printf 'lint: the version is in the Cargo.toml of the root only (version.workspace = true)\n%s\n\n' "$found"
    failed=1
fi

# Each fault point stands once in the code and once in the list.
points=$(grep -rhoE 'fault::is_on\("[^"]*"' src | cut -d'"' -f2 | sort)
listed=$(grep '^[a-z]' tests/fault-points.txt | cut -d' ' -f1 | sort)
if [ "$points" != "$listed" ]; then
    echo 'lint: these do not stand once in src (fault::is_on) and once in tests/fault-points.txt:'
    printf '%s\n' "$points" "$listed" | sort | uniq -c | awk '$1 != 2 { print $2 }'
    failed=1
fi

[ "$failed" -eq 0 ] && echo 'lint: the borders hold'
exit "$failed"
