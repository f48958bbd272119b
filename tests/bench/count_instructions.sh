#!/usr/bin/env bash
# Counts the instructions that the host path of a request takes (decode, queue,
# encode; a fixed small workload) and compares them with instruction_counts.txt.
# Instructions, not seconds: they repeat whatever else the machine is doing.
#
#   tests/bench/count_instructions.sh [--update]
#
# Exits with 1 when a count has grown by more than 5 %. After a growth that is
# worth its price, or a gain, --update writes the new counts: commit them with
# the reason.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

build=${GEMMD_BUILD:-build/dev}
program=$build/bin/gemmd_host_path_workload
kept=tests/bench/instruction_counts.txt
allowed_percent=5

[ -x "$program" ] || {
  echo "$program is not built; run tests/run.sh first" >&2
  exit 1
}
profile=$(mktemp)
trap 'rm -f "$profile"' EXIT
# One core type of OpenBLAS everywhere, and no address randomisation: the count
# then depends on the program alone.
OPENBLAS_CORETYPE=Haswell OPENBLAS_NUM_THREADS=1 setarch -R \
  valgrind --tool=callgrind --callgrind-out-file="$profile" \
  --toggle-collect=GemmdCountedWorkload "$program"
count=$(sed -n 's/^\(summary\|totals\): *\([0-9]*\).*/\2/p' "$profile" |
  head -n 1)
[ -n "$count" ] || {
  echo "callgrind wrote no total" >&2
  exit 1
}

if [ "${1:-}" = --update ]; then
  printf 'host_path_workload %s\n' "$count" >"$kept"
  echo "wrote $kept: $count instructions"
  exit 0
fi
before=$(awk '$1 == "host_path_workload" {print $2}' "$kept")
awk -v count="$count" -v before="$before" -v allowed="$allowed_percent" 'BEGIN {
  change = 100 * (count - before) / before
  printf "host_path_workload: %d instructions, kept %d: %+.2f %%\n",
         count, before, change
  if (change > allowed) {
    printf "grown by more than %d %%: see tests/bench/count_instructions.sh\n",
           allowed
    exit 1
  }
}'
