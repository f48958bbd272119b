#!/usr/bin/env bash
# What gemmd adds to the transport and the arithmetic: an n^3 product inline over
# a unix socket, one in flight, against a raw gRPC echo of the same bytes plus
# the same OpenBLAS call in-process, all three in one run.
#
#   tests/bench/overhead.sh [N] [ROUNDS]      (1024 40)
#
# Prints the three medians and the ratio; exits with 1 when it is over 1.15.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

n=${1:-1024}
rounds=${2:-40}
bin=${GEMMD_BUILD:-build/dev}/bin
limit=1.15

for program in gemmd gemmd_echo_server gemmd_overhead_client; do
  [ -x "$bin/$program" ] || {
    echo "$bin/$program is not built; run tests/run.sh first" >&2
    exit 1
  }
done
sockets=$(mktemp -d)
pids=()
cleanup() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  rm -rf "$sockets"
}
trap cleanup EXIT

"$bin/gemmd" --backend cpu --listen 127.0.0.1:0 --http-listen 127.0.0.1:0 \
  --unix-socket "$sockets/gemmd" >"$sockets/gemmd.log" 2>&1 &
pids+=($!)
"$bin/gemmd_echo_server" "unix:$sockets/echo" >"$sockets/echo.log" 2>&1 &
pids+=($!)
for _ in $(seq 100); do
  grep -q 'grpc listening' "$sockets/gemmd.log" &&
    grep -q 'echo listening' "$sockets/echo.log" && break
  sleep 0.1
done

result=$("$bin/gemmd_overhead_client" "unix:$sockets/gemmd" \
  "unix:$sockets/echo" "$n" "$rounds") || {
  cat "$sockets"/*.log >&2
  exit 1
}
echo "$result"
awk -v limit="$limit" '/^ratio/ {
  if ($2 > limit) {
    printf "over the limit of %.2f\n", limit
    exit 1
  }
}' <<<"$result"
