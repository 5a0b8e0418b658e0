# Sourced by demo, test and lint: leaves $root (the repository) and $python (an interpreter that has the package).
#
# The environment is .venv, made at the first call and brought up to date when pyproject.toml or constraints.txt change.
#   DPH_VENV    another place for the environment
#   DPH_PYTHON  the Python (3.11 or newer) to make it with
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
        uv venv --quiet --seed --python '>=3.11' "$venv" # uv brings a Python of its own
    else
        echo "DPH-RL needs Python 3.11 or newer: install one, or name it with DPH_PYTHON=/path/to/python" >&2
        exit 2
    fi
}

install_package() {
    local quiet=--quiet
    [ -t 1 ] && quiet=--progress-bar=on # torch is a large download: show it to whoever is watching
    # torch by itself and by pip: its builds differ by machine, and pip is where a machine is set up to find its own.
    "$python" -m pip install "$quiet" "$(grep '^torch==' "$root/constraints.txt")"
    if command -v uv >/dev/null; then
        uv pip install --quiet --python "$python" --constraint "$root/constraints.txt" --editable "$root[dev]"
    else
        "$python" -m pip install --quiet --constraint "$root/constraints.txt" --editable "$root[dev]"
    fi
}

stamp="$venv/.dph-stamp"
wanted="$root $(cat "$root/pyproject.toml" "$root/constraints.txt" | cksum)"
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
