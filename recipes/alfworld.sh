#!/usr/bin/env bash
# A language model on ALFWorld's official games: evaluate it as it is, warm it up on expert games, train it by GRPO,
# evaluate it after each, and write the reports and a table. Started again, it goes on where it was stopped.
#
#   recipes/alfworld.sh MODEL GAMES OUT [--set key=value ...]
#
# MODEL   smollm2, a model folder, a GGUF file or a hub name        GAMES   see isentrope docs tasks/household
# OUT     a new folder, or that of an earlier start                 --set   goes to every command
#
# STAGES="base warmup grpo table", the default, may be given in part: the first two do not wait for each other.
set -euo pipefail
if [ $# -lt 3 ]; then
    sed -n '2,10s/^# \{0,1\}//p' "$0"
    exit 2
fi
model=$1 games=$2 out=$3
shift 3
isentrope=${ISENTROPE:-isentrope}
common=(--set "task.options.games=$games" "$@")
mkdir -p "$out"

# All 140 and 134 games, 50 turns, temperature 0.4, as the papers evaluate.
evaluate() {
    [ -f "$out/$1.json" ] || $isentrope eval "$2" --recipe alfworld --games all --split seen --split unseen --temperature 0.4 \
        --name "$1" --out "$out/$1.json" --save-episodes "$out/episodes-$1" "${common[@]}" --set task.max_turns=50
}

for stage in ${STAGES:-base warmup grpo table}; do
    case $stage in
    base)
        evaluate base "$model"
        ;;
    warmup)
        $isentrope sft alfworld --resume --out "$out/warmup" "${common[@]}" --set "policy.model=$model" \
            --set run.eval_every=0
        evaluate warmup "$out/warmup"
        ;;
    grpo)
        $isentrope train alfworld --resume --out "$out/grpo" "${common[@]}" \
            --set "policy.model=$out/warmup"
        evaluate grpo "$out/grpo"
        ;;
    table)
        $isentrope report "$out/warmup"
        $isentrope report "$out/grpo"
        $isentrope table "$out/base.json" "$out/warmup.json" "$out/grpo.json" --format md --out "$out/table.md"
        ;;
    *)
        echo "unknown stage $stage: expected base, warmup, grpo or table" >&2
        exit 2
        ;;
    esac
done
