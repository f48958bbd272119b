#!/usr/bin/env bash
# What gemmd adds to the transport and the arithmetic: an n^3 product inline over
# a unix socket, one in flight, against a raw gRPC echo of the same bytes plus
# the same OpenBLAS call in-process, all three in one run.
#
#   tests/bench/overhead.sh [N] [ROUNDS]      (1024 40)
#
# Prints the three medians and the ratio; exits with 1 when it is over 1.15.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

n=${1:-1024}
rounds=${2:-40}
limit=1.15

# shellcheck source-path=SCRIPTDIR source=servers.sh
. "$here/servers.sh"
start_gemmd --unix-socket "$scratch/gemmd.sock"
start_echo "unix:$scratch/echo.sock"

result=$("$bench/gemmd_overhead_client" "unix:$scratch/gemmd.sock" \
  "unix:$scratch/echo.sock" "$n" "$rounds") || {
  cat "$scratch/gemmd" "$scratch/echo" >&2
  exit 1
}
echo "$result"
awk -v limit="$limit" '/^ratio/ {
  if ($2 > limit) {
    printf "over the limit of %.2f\n", limit
    exit 1
  }
}' <<<"$result"
