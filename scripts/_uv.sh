# Sourced by the scripts that resolve versions: sets $work (a temporary folder, removed at the end) and $uv (the program,
# which is installed there if this machine has none). The folder of the caller is the repository's root.
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
uv="$(command -v uv || true)"
if [ -z "$uv" ]; then
    "${DPH_PYTHON:-python3}" -m venv "$work/venv"
    "$work/venv/bin/python" -m pip install --quiet "$(grep '^uv==' constraints.txt)"
    uv="$work/venv/bin/uv"
fi
