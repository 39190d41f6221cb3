#!/usr/bin/env bash
# Trains a model on two sites with a long and narrow line between them, by the strict and by the tolerant contract.
# `examples/geo-training.sh --help` says more.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: examples/geo-training.sh [option...]

Two sites of two ranks each, joined by a line that is long (20 ms one way) and narrower than the networks of the sites, as
emulated hosts of `clustar fabric`. They train one model together, in three cases: the line is quiet; it loses packets;
it is quiet and one rank of the second site is slow. Each case is trained three times in turns:

  strict, TCP     the exact sum of all gradients in every step, over the kernel's TCP
  strict, MLT     the same sum over clustar's loss-tolerant transport, which loses nothing here
  tolerant, MLT   docs/tolerant.md: a step's sum goes without gradients that are late or lost, and takes them into the next
                  one; no rank stays away longer than the staleness says

  --clustar PATH    the command [build/release/bin/clustar]
  --rounds N        how often [3]
  --delay T         of the line, one way [20ms]
  --rate R          of the line [200M]; those of the sites have 1G
  --loss Q          of packets on the line in the second case, both ways [1%]
  --slow F          in the third case rank 3 takes F times as long to compute [50]
  --terms TERMS     of the tolerant contract [q=3,deadline=150ms,staleness=8,p=1%]
  --examples N      digits to generate [5000]
  --quick           one round of the second case with 1,000 digits: only to see that it runs
  --help            this text

Needs root, for network namespaces; without it, or where the kernel has none, it prints the reason and ends with 77.
exit status: 0 ok, 1 a run failed, 2 wrong usage, 77 skipped
TEXT
}
say() { printf 'geo-training: %s\n' "$*"; }
skip() { printf 'SKIP: %s\n' "$*"; exit 77; }

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
clustar=$root/build/release/bin/clustar
cases="quiet lossy slow-rank"
rounds=3 delay=20ms rate=200M loss=1% slow=50 examples=5000
terms=q=3,deadline=150ms,staleness=8,p=1%
while [ $# -gt 0 ]; do
  case "$1" in
    --help | -h) usage; exit 0 ;;
    --quick) rounds=1 examples=1000 cases=lossy; shift; continue ;;
    --clustar | --rounds | --delay | --rate | --loss | --slow | --terms | --examples)
      [ $# -ge 2 ] || { say "$1 needs a value; see --help" >&2; exit 2; }
      declare "${1#--}=$2"; shift 2 ;;
    *) say "there is no option '$1'; see --help" >&2; exit 2 ;;
  esac
done
[[ $rounds =~ ^[1-9][0-9]{0,2}$ ]] || { say "--rounds '$rounds'; allowed: 1 to 999" >&2; exit 2; }
[ -x "$clustar" ] || { say "there is no command '$clustar'; build it, or give --clustar" >&2; exit 2; }
[ "$(id -u)" -eq 0 ] || skip "not root: only root can make network namespaces (sudo examples/geo-training.sh)"

work=$(mktemp -d)
fabric=geo-$$
children=()
stop() {
  trap '' INT TERM HUP
  [ ${#children[@]} -eq 0 ] || kill "${children[@]}" 2>/dev/null || true
  "$clustar" fabric down --name "$fabric" >/dev/null 2>&1 || true
  rm -rf "$work"
  exit "$1"
}
trap 'stop 130' INT
trap 'stop 143' TERM
trap 'stop 129' HUP
trap 'stop $?' EXIT

cat >"$work/sites.toml" <<TOML
hosts = 4
switches = ["leaf0", "leaf1"]
links = [
  { between = ["h0", "leaf0"] },
  { between = ["h1", "leaf0"] },
  { between = ["h2", "leaf1"] },
  { between = ["h3", "leaf1"] },
  { between = ["leaf0", "leaf1"], rate = "$rate", delay = "$delay", buffer = "1M" },
]
[defaults]
rate = "1G"
TOML
"$clustar" fabric up --name "$fabric" --topology "$work/sites.toml" >"$work/up" 2>&1 ||
  skip "no fabric can be made here: $(tail -n 1 "$work/up")"
"$clustar" fabric set leaf0-leaf1 --name "$fabric" --loss none >"$work/up" 2>&1 ||
  skip "no line can be made to lose packets here: $(tail -n 1 "$work/up")"

port=23000
# train FILE TRANSPORT OPTION...: one training of four ranks, its results in FILE.
train() {
  local file=$1 transport=$2 rank status=0
  shift 2
  port=$((port + 2))
  local words=(train --size 4 --root "10.88.0.1:$port" --collective paraexpress --model mlp-small --batch 256 --epochs 1
    --examples "$examples" --check-equal epoch --stall-timeout 60 "$@")
  children=()
  for rank in 3 2 1 0; do
    local mine=("${words[@]}" --rank "$rank")
    [ "$rank" -ne 0 ] || mine+=(--json "$file" --no-progress)
    CLUSTAR_SOCKET_IFNAME=eth0 CLUSTAR_TRANSPORT=$transport \
      "$clustar" fabric exec --name "$fabric" "$rank" -- "$clustar" "${mine[@]}" >"$work/rank$rank" 2>&1 &
    children+=($!)
  done
  for rank in "${children[@]}"; do wait "$rank" || status=1; done
  children=()
  [ "$status" -eq 0 ] || { say "a training failed:" >&2; tail -n 2 "$work"/rank* >&2; exit 1; }
}

# train_arms CASE ROUND OPTION...: the three arms of a case, in turns.
train_arms() {
  local name=$1 round=$2
  shift 2
  local arms=(strict-tcp strict-mlt tolerant-mlt) arm
  [ $((round % 2)) -eq 1 ] || arms=(tolerant-mlt strict-mlt strict-tcp)
  for arm in "${arms[@]}"; do
    # The same messages in all arms, each root's part directly to it, so that what differs is the contract.
    local how=(--seed "$round")
    if [ "$arm" = tolerant-mlt ]; then how+=(--tolerant "$terms"); else how+=(--plan direct); fi
    train "$work/$name.$arm.$round.json" "${arm#*-}" "${how[@]}" "$@"
    say "round $round of $rounds, $name, $arm"
  done
}

say "two sites of two ranks; between them $rate, $delay one way; tolerant: $terms"
for ((round = 1; round <= rounds; ++round)); do
  for name in $cases; do
    case "$name" in
      quiet) train_arms "$name" "$round" ;;
      slow-rank) train_arms "$name" "$round" --slow "3=$slow" ;;
      lossy)
        "$clustar" fabric set leaf0-leaf1 --name "$fabric" --loss "$loss" >/dev/null
        train_arms "$name" "$round"
        "$clustar" fabric set leaf0-leaf1 --name "$fabric" --loss none >/dev/null ;;
    esac
  done
done

python3 -B - "$work" "$rounds" "$cases" <<'PYTHON'
import json
import statistics
import sys

folder, rounds, cases = sys.argv[1], int(sys.argv[2]), sys.argv[3].split()
ARMS = ("strict-tcp", "strict-mlt", "tolerant-mlt")


def spread(values, digits):
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


print(f"\n  {'case':<10} {'arm':<13} {'step, ms (range)':>26} {'images/s (range)':>24} {'accuracy, %':>22}  later, %  skipped")
for case in cases:
    for arm in ARMS:
        runs = []
        for number in range(1, rounds + 1):
            with open(f"{folder}/{case}.{arm}.{number}.json", encoding="utf-8") as file:
                results = json.load(file)["results"]
            runs.append(results[0] if isinstance(results, list) else results)
        if not all(run["replicas_identical"] for run in runs):
            sys.exit(f"geo-training: {case}, {arm}: replicas differ")
        steps = [1000 * run["per_rank"][0]["train_s"] / run["steps"] for run in runs]
        given = sum(run["expected_contributions"] or 0 for run in runs)
        late = sum(run["missing_contributions"] or 0 for run in runs)
        skipped = statistics.median((run["tolerant"] or {}).get("skipped_steps", 0) for run in runs)
        print(f"  {case:<10} {arm:<13} {spread(steps, 1):>26} {spread([run['images_per_second'] for run in runs], 0):>24} "
              f"{spread([100 * run['accuracy'] for run in runs], 1):>22}  {100 * late / given if given else 0:>8.2f}  {skipped:.0f}")
print("\n  later: contributions that came into a later step's sum. images/s: of what was computed; a skipped step computes nothing.")
PYTHON
