#!/bin/bash
# A run as three jobs, each after the one before: what needs no GPU; training, on NODES nodes; the rest, on one.
#   [NODES=2] slurm/chain.sh OUT [options of run_all.sh]
# Options of sbatch for all three go into SBATCH_PARTITION, SBATCH_ACCOUNT and so on.
set -euo pipefail

out=${1:?usage: slurm/chain.sh OUT [options of run_all.sh]}
shift
cd "$(dirname "$(readlink -f "$0")")/.."

submit() { # NAME AFTER [options of sbatch] -- [options of run_all.sh]; prints the job's id
  local name=$1 after=$2 options=()
  shift 2
  while [ "$1" != -- ]; do options+=("$1"); shift; done
  shift
  [ -z "$after" ] || options+=("--dependency=afterok:$after" --kill-on-invalid-dep=yes)
  sbatch --parsable --job-name="$name" "${options[@]}" slurm/run.sh "$out" "$@" | cut -d';' -f1
}

exact=$(submit pcfg-exact "" --gpus-per-node=0 -- "$@" --to construct --set machine.device=cpu)
train=$(submit pcfg-train "$exact" --nodes="${NODES:-1}" -- "$@" --from pretrain --to pretrain)
rest=$(submit pcfg-rest "$train" -- "$@" --from probe)
echo "jobs $exact, $train and $rest: squeue --me shows them"
