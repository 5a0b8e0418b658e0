# Sourced by test-floor and test-newest with $versions (the name of the environment) and $requirements set: makes the
# environment .venv-$versions at the first call, and again after a change of what it holds, and runs the tests in it.
# DPH_PYTHON names the Python to make it with.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
venv="$root/.venv-$versions"
python="$venv/bin/python"
stamp="$venv/.dph-stamp"
wanted="$root ${requirements[*]} $(cksum <"$root/pyproject.toml")"
if [ ! -e "$stamp" ] || [ "$(cat "$stamp")" != "$wanted" ]; then
    echo "setting up $venv (torch for this version may be some GB)" >&2
    [ -e "$python" ] || "${DPH_PYTHON:-python3}" -m venv "$venv"
    "$python" -m pip install --quiet --upgrade pip
    "$python" -m pip install --quiet --upgrade --upgrade-strategy eager "${requirements[@]}" --editable "$root[dev]"
    echo "$wanted" >"$stamp"
fi
"$python" -m pip list 2>/dev/null | grep -E '^(torch|transformers|tokenizers|huggingface_hub|peft) ' >&2
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}" HF_HUB_OFFLINE="${HF_HUB_OFFLINE:-1}"
cd "$root"
