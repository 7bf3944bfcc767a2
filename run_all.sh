#!/usr/bin/env bash
# The single entry script: the pipeline (no tool name), the test suite (test), or a tool; see ./run_all.sh --help.
# Outside the image it makes a virtual environment in .venv on first use; the exit code is the command's own.
set -euo pipefail

# What lies beside the user (a file random.py, say) is never imported in place of the real module.
export PYTHONSAFEPATH=1

here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
python=python3

if [ -z "${PCFG_ARTIFACT_IN_IMAGE:-}" ]; then
  venv=$here/.venv
  python=$venv/bin/python
  wanted=$(sha256sum "$here/requirements.txt" | cut -d' ' -f1)
  if [ ! -x "$python" ] || [ "$(cat "$venv/requirements.sha256" 2>/dev/null)" != "$wanted" ]; then
    echo "run_all.sh: making the virtual environment $venv from requirements.txt (once; a few minutes)" >&2
    # One at a time: a second call waits for the first, then finds the work done.
    exec 9>"$here/.venv.lock"
    flock 9 || echo "run_all.sh: $here cannot be locked; make sure that no other call makes .venv now" >&2
    if [ ! -x "$python" ] || [ "$(cat "$venv/requirements.sha256" 2>/dev/null)" != "$wanted" ]; then
      base=${PCFG_ARTIFACT_PYTHON:-python3}
      "$base" -c 'import sys; sys.exit(sys.version_info[:2] < (3, 11))' ||
        { echo "run_all.sh: $("$base" --version) found, Python 3.11 or newer needed; set PCFG_ARTIFACT_PYTHON to one" >&2; exit 2; }
      "$base" -m venv "$venv" ||
        { echo "run_all.sh: python3 -m venv failed; on Debian and Ubuntu: apt install python3-venv" >&2; exit 2; }
      # shellcheck disable=SC2086 # PIP_ARGS is a list of options
      "$python" -m pip install --quiet --disable-pip-version-check ${PIP_ARGS:-} -r "$here/requirements.txt" >&2 ||
        { echo "run_all.sh: installing requirements.txt failed; fix the cause above and run the same command again" >&2; exit 2; }
      # Here rather than in the middle of the first run.  Where it fails the run compiles for itself, or says why not.
      PYTHONPATH="$here" "$python" -m pcfg_artifact compile >&2 ||
        echo "run_all.sh: the fast routines will be compiled by the first run" >&2
      echo "$wanted" >"$venv/requirements.sha256"
    fi
    exec 9>&-
  fi
else
  # Caches of this user and this image: in Apptainer /tmp is the host's, and those of others are there.
  cache=${PCFG_ARTIFACT_CACHE:-${TMPDIR:-/tmp}/pcfg-artifact-$(id -u)-$PCFG_ARTIFACT_IN_IMAGE}
  mkdir -p -m 700 "$cache" && [ -O "$cache" ] || cache=$(mktemp -d) ||
    { echo "run_all.sh: no place for caches; make /tmp writable (docker run --tmpfs /tmp), or set TMPDIR" >&2; exit 2; }
  export XDG_CACHE_HOME="$cache" NUMBA_CACHE_DIR="$cache/numba" MPLCONFIGDIR="$cache/matplotlib" \
    HF_HOME="$cache/huggingface" TRITON_CACHE_DIR="$cache/triton" TORCHINDUCTOR_CACHE_DIR="$cache/inductor"
fi

export PYTHONPATH="$here${PYTHONPATH:+:$PYTHONPATH}"
export PCFG_ARTIFACT_OUT="${PCFG_ARTIFACT_OUT:-$here/runs}"
if [ "${1:-}" = test ]; then
  shift
  cd "$here"
  # The whole suite in two processes, a file's tests in one of them: they share what is slow to make.
  [ $# -gt 0 ] || set -- --numprocesses 2 --dist loadfile
  exec "$python" -m pytest "$@"
fi
exec "$python" -m pcfg_artifact "$@"
