#!/usr/bin/env bash
# Makes sure of what the tests need beyond the build: rustfmt, clippy, and a virtual
# environment over the system's Python (which has GDAL) with tests/requirements.txt.
# Does nothing when that file is what was installed last.
#
#   tools/setup-test.sh <venv>
set -euo pipefail
cd "$(dirname "$0")/.."
venv=$1
python=${PYTHON:-/usr/bin/python3}

tools/setup.sh test

for component in rustfmt clippy; do
    tool=cargo-${component/rustfmt/fmt}
    if ! "$tool" --version >/dev/null 2>&1; then
        command -v rustup >/dev/null ||
            { echo "setup: $tool is missing (rustup component add $component)" >&2; exit 1; }
        rustup component add "$component"
    fi
done

if ! cmp -s tests/requirements.txt "$venv/requirements.txt"; then
    echo "setup: installing tests/requirements.txt into $venv"
    "$python" -m venv --system-site-packages "$venv"
    # GDAL's bindings are compiled against the system's numpy: no other may shadow it.
    "$python" -c 'import numpy; print(f"numpy=={numpy.__version__}")' >"$venv/constraints.txt"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
        -c "$venv/constraints.txt" -r tests/requirements.txt
    # A NumPy that knows versioned DLPack, beside the one that GDAL's bindings know.
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --upgrade \
        --target "$venv/numpy2" "$(sed -n 's/^# beside: //p' tests/requirements.txt)"
    cp tests/requirements.txt "$venv/requirements.txt"
fi
