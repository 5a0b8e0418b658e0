# Sourced by the other scripts: sets $root (the repository), $venv and $python (an interpreter that has the package).
#
# The environment is .venv. The first call makes it, with the versions of requirements-dev.lock; a change of
# pyproject.toml or of the lock file updates it.
#   DPH_VENV    path of another environment
#   DPH_PYTHON  the Python (3.11 or newer) that makes it
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
venv="${DPH_VENV:-$root/.venv}"
python="$venv/bin/python"

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() {
    local candidate
    for candidate in ${DPH_PYTHON:-python3 python3.13 python3.12 python3.11 python}; do
        if new_enough "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    return 1
}

make_environment() {
    local found
    if found="$(find_python)"; then
        if command -v uv >/dev/null; then
            uv venv --quiet --seed --python "$found" "$venv"
        else
            "$found" -m venv "$venv"
        fi
    elif [ -z "${DPH_PYTHON:-}" ] && command -v uv >/dev/null; then
        uv venv --quiet --seed --python '>=3.11' "$venv" # uv installs a Python of its own
    else
        echo "DPH-RL needs Python 3.11 or newer: install one, or name it with DPH_PYTHON=/path/to/python" >&2
        exit 2
    fi
}

install_package() {
    local quiet=--quiet
    [ -t 1 ] && quiet=--progress-bar=on # torch is a large download: show its progress in a terminal
    # torch first and with pip: its builds differ by machine, and pip's settings say where this machine finds its own.
    "$python" -m pip install "$quiet" "$(grep '^torch==' "$root/constraints.txt")"
    if command -v uv >/dev/null; then
        uv pip install --quiet --python "$python" --constraint "$root/requirements-dev.lock" --editable "$root[dev]"
    else
        "$python" -m pip install --quiet --constraint "$root/requirements-dev.lock" --editable "$root[dev]"
    fi
}

stamp="$venv/.dph-stamp"
wanted="$root $(cat "$root/pyproject.toml" "$root/requirements-dev.lock" | cksum)"
if [ ! -e "$stamp" ] || [ "$(cat "$stamp")" != "$wanted" ]; then
    echo "setting up $venv (once; torch is the large part)" >&2
    [ -e "$python" ] || make_environment
    if ! new_enough "$python"; then
        echo "$venv has no working Python 3.11 or newer: remove it, or name another place with DPH_VENV" >&2
        exit 2
    fi
    install_package
    echo "$wanted" >"$stamp"
fi
