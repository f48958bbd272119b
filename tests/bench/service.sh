#!/usr/bin/env bash
# The service's figures beside those of a raw gRPC echo: requests a second,
# latency alone and under half load, the first request after a pause, GPU time
# of rows by one resident matrix with and without batches, and what an idle
# server uses. Runs from a build (build/dev) or from a bundle.
#
#   service.sh [--backend cpu|cuda] [--json FILE] [--skip NAME]... [-- FLAG...]
#
#   --json   writes the rows there as well (tests/bench/results/h200/service.json)
#   --skip   leaves out throughput, latency, half_load, pauses, rows or idle
#   FLAG...  more flags for gemmd
#
# Environment: GEMMD_BUILD, the build's folder; GEMMD_BENCH_CONNECTIONS (8) and
# GEMMD_ECHO_QUEUES (1).
#
# Exits with 1 when a figure misses its target. On the CPU the only target is the
# throughput's.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

if [ -x "$here/gemmd_service_load" ]; then
  bench=$here
  bin=$here/../bin
  commit=$(sed -n 's/^commit \([0-9a-f]*\).*/\1/p' "$here/../VERSION")
else
  bench=${GEMMD_BUILD:-$here/../../build/dev}/bin
  bin=$bench
  commit=$(git -C "$here" rev-parse HEAD)
fi
for program in "$bin/gemmd" "$bench/gemmd_echo_server" \
  "$bench/gemmd_service_load"; do
  [ -x "$program" ] || {
    echo "$program is not built; run tests/run.sh first" >&2
    exit 1
  }
done

backend=cpu
json=
skip=" "
command="service.sh $*"
while [ $# -gt 0 ]; do
  case $1 in
    --backend) backend=$2 && shift 2 ;;
    --json) json=$2 && shift 2 ;;
    --skip) skip+="$2 " && shift 2 ;;
    --) shift && break ;;
    *) echo "service.sh: unknown argument '$1'" >&2 && exit 2 ;;
  esac
done
flags=("$@")

scratch=$(mktemp -d)
pids=()
stop_servers() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  pids=()
}
trap 'stop_servers; rm -rf "$scratch"' EXIT

# wait_for FILE TEXT: its first line with TEXT, without it.
wait_for() {
  for _ in $(seq 600); do
    line=$(grep -m 1 "$2" "$1" 2>/dev/null) && echo "${line##*"$2"}" && return
    sleep 0.05
  done
  cat "$1" >&2
  return 1
}

# start_gemmd FLAG...: sets gemmd, its address, http and gemmd_pid.
start_gemmd() {
  "$bin/gemmd" --backend "$backend" --listen 127.0.0.1:0 \
    --http-listen 127.0.0.1:0 --log-level warn "${flags[@]}" "$@" \
    >"$scratch/gemmd" 2>&1 &
  gemmd_pid=$!
  pids+=("$gemmd_pid")
  gemmd=$(wait_for "$scratch/gemmd" "grpc listening on ")
  http=$(wait_for "$scratch/gemmd" "http listening on ")
}

start_echo() {
  local port
  for port in $(shuf -i 20000-60000 -n 20); do
    "$bench/gemmd_echo_server" "127.0.0.1:$port" "${GEMMD_ECHO_QUEUES:-1}" \
      >"$scratch/echo" 2>&1 &
    pids+=($!)
    echo=$(wait_for "$scratch/echo" "echo listening on ") && return
  done
}

# metric NAME: the sum of its series.
metric() {
  exec 3<>"/dev/tcp/${http%:*}/${http##*:}"
  printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3
  awk -v name="$1" 'index($1, name) == 1 { sum += $2 } END { print sum + 0 }' <&3
  exec 3<&-
}

# row NAME UNIT FIGURE COMPARED WITH_WHAT "RATIO OP LIMIT": prints and keeps it.
missed=0
rows=()
row() {
  local ratio target=none
  ratio=$(awk -v a="$3" -v b="$4" 'BEGIN { printf "%.3f", (b > 0) ? a / b : 0 }')
  if [ -n "${6:-}" ]; then
    target=$6
    awk -v r="$ratio" -v op="${6% *}" -v t="${6#* }" \
      'BEGIN { exit !((op == ">=") ? (r >= t) : (r <= t)) }' || missed=1
  fi
  printf '%-16s %12s %-10s %12s %-34s ratio %-8s target %s\n' \
    "$1" "$3" "$2" "$4" "($5)" "$ratio" "$target"
  rows+=("  {\"name\": \"$1\", \"commit\": \"$commit\", \"command\": \
\"$command\", \"unit\": \"$2\", \"figure\": $3, \"compared_with\": \"$5\", \
\"compared\": $4, \"ratio\": $ratio, \"target\": \"$target\"}")
}

wanted() { [[ "$skip" != *" $1 "* ]]; }
load() { "$bench/gemmd_service_load" "$@"; }

on_gpu() { if [ "$backend" = cuda ]; then echo "$1"; fi; }
least=0.8
[ "$backend" = cpu ] || least=0.85

start_gemmd
start_echo

if wanted idle; then
  ticks() { awk '{ print $14 + $15 }' "/proc/$gemmd_pid/stat"; }
  sleep 1
  before=$(ticks)
  sleep 5
  used=$(awk -v t=$(($(ticks) - before)) -v hz="$(getconf CLK_TCK)" \
    'BEGIN { print 100 * t / hz / 5 }')
  row idle percent "$used" 2 "2 % of a core" "<= 1"
fi
if wanted throughput; then
  while IFS=$'\t' read -r name unit figure compared; do
    row "$name" "$unit" "$figure" "$compared" "raw echo" ">= $least"
  done < <(load throughput "$gemmd" "$echo")
fi
if wanted latency; then
  while IFS=$'\t' read -r name unit figure compared; do
    limit=$(awk -v c="$compared" 'BEGIN { print c + 60 }')
    row "$name" "$unit" "$figure" "$limit" "raw echo + kernel + 60 us" \
      "$(on_gpu "<= 1")"
  done < <(load latency "$gemmd" "$echo")
fi
if wanted half_load; then
  while IFS=$'\t' read -r name unit figure compared; do
    row "$name" "$unit" "$figure" "$compared" "raw echo, at the same rate" \
      "$(if [ "$name" = half_load_p99 ]; then on_gpu "<= 1.5"; fi)"
  done < <(load half_load "$gemmd" "$echo")
fi
if wanted pauses; then
  while IFS=$'\t' read -r name unit figure compared; do
    row "$name" "$unit" "$figure" "$compared" "p50 when busy" \
      "$(if [ "$name" = pauses_worst ]; then on_gpu "<= 2"; fi)"
  done < <(load pauses "$gemmd")
fi
stop_servers

if wanted rows; then
  for batch in 64 1; do
    start_gemmd --max-batch-requests "$batch"
    rate=$(load rows "$gemmd" | cut -f 3)
    micros[batch]=$(awk -v s="$(metric gemmd_kernel_busy_seconds_total)" \
      -v n="$(metric 'gemmd_batch_size_sum')" 'BEGIN { print 1e6 * s / n }')
    echo "rows, at most $batch in a batch: $rate requests/s," \
      "${micros[batch]} us of the device a request"
    stop_servers
  done
  row rows us "${micros[64]}" "${micros[1]}" "--max-batch-requests 1" \
    "$(on_gpu "<= 0.125")"
fi

if [ -n "$json" ]; then
  { echo "[" && printf '%s,\n' "${rows[@]}" | sed '$ s/,$//' && echo "]"; } \
    >"$json"
fi
exit "$missed"
