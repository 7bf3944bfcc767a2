#!/bin/bash
# A run as one Slurm job, on one node or several.  OUT is a folder that all nodes see; submit from the repository's folder:
#   sbatch --gpus-per-node=8 slurm/run.sh OUT [options of run_all.sh]
#   sbatch --gpus-per-node=8 --nodes=2 slurm/run.sh OUT --profile paper --treebank /data/ptb
#   sbatch --array=0-4 slurm/run.sh OUT ...            a seed a task, in OUT/seed-0 to OUT/seed-4
# docs/SCALE.md says what to change for your cluster.
#SBATCH --job-name=pcfg --output=pcfg-%j.log --open-mode=append
#SBATCH --nodes=1 --ntasks-per-node=1 --cpus-per-task=16 --mem=120G
#SBATCH --time=12:00:00 --signal=USR1@120 --requeue
set -euo pipefail

out=${1:?usage: sbatch slurm/run.sh OUT [options of run_all.sh]}
shift
# In a container: PCFG_ARTIFACT_RUN_ALL="apptainer exec --nv pcfg-artifact.sif /app/run_all.sh"
read -ra run_all <<<"${PCFG_ARTIFACT_RUN_ALL:-$SLURM_SUBMIT_DIR/run_all.sh}"
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1} # since Slurm 22.05 srun gives a task one core otherwise
if [ -n "${SLURM_ARRAY_TASK_ID:-}" ]; then
  out=$out/seed-$SLURM_ARRAY_TASK_ID
  set -- "$@" --set "seed=$SLURM_ARRAY_TASK_ID"
fi
if [ -n "${SLURM_TMPDIR:-}" ]; then # a disk of the node, where the cluster gives one to each job
  set -- "$@" --set "machine.scratch=$SLURM_TMPDIR"
fi

step() {
  local code=0
  srun --kill-on-bad-exit=1 "$@" || code=$?
  [ "$code" != 0 ] || return 0
  # 128 + SIGUSR1: the time is nearly up, and training has kept its steps.  A preempted job Slurm requeues itself.
  if [ "$code" = 138 ]; then scontrol requeue "$SLURM_JOB_ID"; fi
  exit "$code"
}

if [ "$SLURM_NNODES" -gt 1 ]; then
  first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)
  port=$((10000 + SLURM_JOB_ID % 200 * 100)) # model k of the run meets at port + k
  export PCFG_ARTIFACT_TORCHRUN="--nnodes=$SLURM_NNODES --rdzv-backend=c10d --rdzv-endpoint=$first:$port"
  PCFG_ARTIFACT_TORCHRUN+=" --rdzv-id=$SLURM_JOB_ID-${SLURM_RESTART_COUNT:-0}"
  # shellcheck disable=SC2016 # the tasks expand it
  step bash -c 'out=$1 n=$2; shift 2; run_all=("${@:1:n}"); shift "$n"
    if [ "$SLURM_NODEID" = 0 ]; then exec "${run_all[@]}" "$@" --out "$out" --to pretrain; fi
    exec "${run_all[@]}" --follow "$out"' bash "$out" "${#run_all[@]}" "${run_all[@]}" "$@"
  unset PCFG_ARTIFACT_TORCHRUN
fi
step --nodes=1 --ntasks=1 "${run_all[@]}" "$@" --out "$out"
