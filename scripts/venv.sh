# To be sourced: makes the virtual environment of this checkout, once, and sets VENV.
#
#   make_venv          sapwood and what it needs
#   make_venv test     and what its tests need
#
# SAPWOOD_VENV  another place than .venv          PYTHON  the Python to make it with (3.11 or newer)

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
VENV="${SAPWOOD_VENV:-$ROOT/.venv}"
[[ "$VENV" == /* ]] || VENV="$ROOT/$VENV"
TORCH_CPU="torch==2.13.0+cpu"
TORCH_CPU_INDEX="https://download.pytorch.org/whl/cpu"

say() { echo "== $*" >&2; }

find_python() {
  local candidate
  for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11 python3.14 python}; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  echo "Python 3.11 or newer is needed; install it, or name one: PYTHON=/path/to/python $0" >&2
  return 1
}

has_gpu() { command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q '^GPU'; }

pip_install() { "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check "$@"; }

# A machine without an NVIDIA GPU gets the CPU build: the default one brings gigabytes of CUDA.
install_torch() {
  if has_gpu || "$VENV/bin/python" -c 'import torch' 2>/dev/null; then
    return
  fi
  say "installing PyTorch for the CPU"
  pip_install "$TORCH_CPU" 2>/dev/null || pip_install torch --index-url "$TORCH_CPU_INDEX"
}

make_venv() {
  local extra="${1:-}" python stamp want
  stamp="$VENV/.installed${extra:+-$extra}"
  want="$(cat "$ROOT/pyproject.toml" "$ROOT/scripts/venv.sh" | sha256sum | cut -d' ' -f1)"
  if [[ -e "$stamp" && "$(cat "$stamp")" == "$want" ]]; then
    return
  fi
  if [[ ! -x "$VENV/bin/python" ]]; then
    python="$(find_python)"
    say "making $VENV with $("$python" --version)"
    "$python" -m venv "$VENV" || {
      rm -rf "$VENV"
      echo "$python cannot make virtual environments (on Debian: apt install python3-venv)" >&2
      return 1
    }
  fi
  install_torch
  say "installing sapwood${extra:+ and what its ${extra}s need}"
  pip_install -e "$ROOT${extra:+[$extra]}"
  say "compiling kernels"
  "$VENV/bin/python" -m sapwood.srt.kernels.build >/dev/null
  echo "$want" >"$stamp"
}
