#!/usr/bin/env bash
# The next part of a large study on a GPU that is there for a limited time: runs what is not done yet for so many
# minutes, many runs side by side, then writes all numbers to docs/runs/NAME and makes the pages that show them.
# Called again, here or on another machine, it goes on. It needs a checkout: it writes to docs and runs tools.
#
#   recipes/study.sh NAME MINUTES [-n RUNS] [--set key=value ...]
#
# NAME     of recipes/studies/NAME.toml        MINUTES  how long runs may take; writing takes one or two more
# -n       runs at a time; by default as many as the GPU holds, up to one for each core
#
# Small runs share a GPU through NVIDIA MPS, where there is one; without it they take turns, several times slower.
# Going on elsewhere, take runs/NAME/warmup along (all runs must begin from it); with all of runs/NAME also what was
# under way goes on.
set -euo pipefail
if [ $# -lt 2 ]; then
    sed -n '2,14s/^# \{0,1\}//p' "$0"
    exit 2
fi
name=$1 minutes=$2
shift 2
cd "$(dirname "$0")/.."
isentrope=${ISENTROPE:-isentrope}
python=${PYTHON:-python}
kept=docs/runs/$name
earlier=()
[ -f "$kept/runs.jsonl.xz" ] && earlier=(--earlier "$kept")

if command -v nvidia-cuda-mps-control > /dev/null && ! pgrep -x nvidia-cuda-mps > /dev/null; then
    place=$(mktemp -d)
    export CUDA_MPS_PIPE_DIRECTORY=$place/pipe CUDA_MPS_LOG_DIRECTORY=$place/log
    mkdir "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"
    nvidia-cuda-mps-control -d
    trap 'echo quit | nvidia-cuda-mps-control; rm -rf "$place"' EXIT
fi

failed=0
$isentrope study "recipes/studies/$name.toml" --minutes "$minutes" "${earlier[@]}" "$@" || failed=$?
[ -f "runs/$name/study.json" ] || exit "$failed"
$isentrope study "runs/$name" --compact "$kept" "${earlier[@]}"
$python -m tools.study_docs
$python -m tools.claims_docs
exit "$failed"
