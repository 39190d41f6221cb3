#!/usr/bin/env bash
# NCCL's own benchmarks over clustar's plugin and over NCCL's Socket, in turns. `examples/nccl-tests.sh --help` says more.
# Not run: it needs GPUs. Only its --help, its checks and --print are tested here.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: examples/nccl-tests.sh --tests FOLDER --hosts host0:8,host1:8 [option...]

Runs all_reduce_perf of NVIDIA's nccl-tests (https://github.com/NVIDIA/nccl-tests, built with MPI=1) by Open MPI: round by
round once over clustar and once over NCCL's Socket, so that both see the same network. What to compare is `busbw`.

  --tests FOLDER  where all_reduce_perf lies
  --hosts LIST    as mpirun's -H; one rank per GPU
  --plugin PATH   the plugin, at the same path on all hosts [/opt/clustar/lib/libnccl-net-clustar.so]
  --rounds N      [5]
  --from S --to S sizes, as nccl-tests have them [64K, 256M]
  --print         print the commands and run nothing
  --help          this text

CLUSTAR_... and NCCL_... variables of this shell go to all ranks. exit status: 0 ok, 1 a run failed, 2 wrong usage
TEXT
}
wrong() { printf 'nccl-tests: %s; see --help\n' "$*" >&2; exit 2; }

tests="" hosts="" plugin=/opt/clustar/lib/libnccl-net-clustar.so rounds=5 from=64K to=256M printing=false
while [ $# -gt 0 ]; do
  case $1 in
    --help | -h) usage; exit 0 ;;
    --print) printing=true; shift; continue ;;
    --tests | --hosts | --plugin | --rounds | --from | --to) [ $# -gt 1 ] || wrong "$1 needs a value" ;;
    *) wrong "unknown option '$1'" ;;
  esac
  case $1 in
    --tests) tests=$2 ;;
    --hosts) hosts=$2 ;;
    --plugin) plugin=$2 ;;
    --rounds) rounds=$2 ;;
    --from) from=$2 ;;
    --to) to=$2 ;;
  esac
  shift 2
done
[ -n "$tests" ] || wrong "--tests names no folder"
[ -n "$hosts" ] || wrong "--hosts names no hosts"
[[ $rounds =~ ^[1-9][0-9]{0,2}$ ]] || wrong "--rounds needs a number from 1 to 999"
$printing || [ -x "$tests/all_reduce_perf" ] || wrong "'$tests' has no all_reduce_perf: build nccl-tests with MPI=1"

pass=()
while IFS='=' read -r name _; do
  case $name in
    NCCL_NET | NCCL_NET_PLUGIN) ;;  # what differs
    CLUSTAR_* | NCCL_*) pass+=(-x "$name") ;;
  esac
done < <(env)

one() {  # one NAME VARIABLE...
  local name=$1
  shift
  local command=(mpirun -H "$hosts" "${pass[@]}" "$@" "$tests/all_reduce_perf" -b "$from" -e "$to" -f 2 -g 1)
  if $printing; then
    printf '%s\n' "${command[*]}"
  else
    printf '== round %s of %s: %s\n' "$round" "$rounds" "$name"
    "${command[@]}"
  fi
}
for ((round = 1; round <= rounds; ++round)); do
  clustar=(clustar -x "NCCL_NET=clustar" -x "NCCL_NET_PLUGIN=$plugin" -x NCCL_NET_PLUGIN_REF_COUNT=1)
  socket=(Socket -x NCCL_NET=Socket -x NCCL_NET_PLUGIN=none)
  if ((round % 2)); then one "${clustar[@]}"; one "${socket[@]}"; else one "${socket[@]}"; one "${clustar[@]}"; fi
done
