#!/bin/bash
# A run as three jobs, each after the one before: what needs no GPU; training, on NODES nodes (1) of GPUS each (8); the rest.
#   [NODES=2] [GPUS=4] slurm/chain.sh OUT [options of run_all.sh]
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

gpus=--gpus-per-node=${GPUS:-8}
exact=$(submit pcfg-exact "" -- "$@" --to construct --set machine.device=cpu)
train=$(submit pcfg-train "$exact" "$gpus" --nodes="${NODES:-1}" -- "$@" --from pretrain --to pretrain)
rest=$(submit pcfg-rest "$train" "$gpus" -- "$@" --from probe)
echo "jobs $exact, $train and $rest: squeue --me shows them"
