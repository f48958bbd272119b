#!/usr/bin/env bash
# The service's figures beside those of a raw gRPC echo: requests a second,
# latency alone and under half load, the first request after a pause, bytes of
# large messages, rows by one resident matrix with and without batches, and what
# an idle server uses. Runs from a build (build/dev) or from a bundle.
#
#   service.sh [--backend cpu|cuda] [--json FILE] [--skip NAME]... [-- FLAG...]
#
#   --json   writes the rows there as well (tests/bench/results/h200/service.json)
#   --skip   leaves out throughput, latency, half_load, pauses, inline, rows
#            or idle
#   FLAG...  more flags for gemmd
#
# Environment: GEMMD_BENCH_CONNECTIONS (8), and that of servers.sh.
#
# Exits with 1 when a figure misses its target. On the CPU the only target is the
# throughput's.
set -euo pipefail
shopt -s inherit_errexit  # a figure that fails is no missing row
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# shellcheck source-path=SCRIPTDIR source=servers.sh
. "$here/servers.sh"
read_flags "" "$@"

load() { "$bench/gemmd_service_load" "$@"; }

# How many completion queues gemmd has, and which echoes it is compared with: one
# of as many, and the others that may be the fastest on this machine.
queues=1
for ((i = 0; i + 1 < ${#flags[@]}; ++i)); do
  if [ "${flags[i]}" = --completion-queues ]; then queues=${flags[i + 1]}; fi
done
if [[ "${flags[*]}" == *--completion-queues=* || ! "$queues" =~ ^[1-9][0-9]*$ ]]
then
  echo "service.sh: wanted is --completion-queues N, N above 0" >&2
  exit 2
fi
echo_queues=("$queues")
for other in 1 4; do
  [ "$other" = "$queues" ] || [ "$(nproc)" -le 4 ] || echo_queues+=("$other")
done

declare -A echoes
start_echoes() {
  local q
  for q in "${echo_queues[@]}"; do
    GEMMD_ECHO_QUEUES=$q start_echo tcp
    echoes[$q]=$echo
  done
  echo=${echoes[$queues]}
}

# rows_beside_echoes FIGURE TARGET: a row beside the fastest echo, and without a
# target one beside that of as many queues. Sets figure_of[NAME].
declare -A figure_of
rows_beside_echoes() {
  local q lines name unit figure compared
  lines=$(for q in "${echo_queues[@]}"; do
    load "$1" "$gemmd" "${echoes[$q]}" | sed "s/$/\t$q/"
  done | sort -t $'\t' -k1,1 -k4,4gr)
  while IFS=$'\t' read -r name unit figure compared q; do
    if [ -z "${figure_of[$name]:-}" ]; then
      figure_of[$name]=$figure
      row "$name" "$unit" "$figure" "$compared" \
        "raw echo, the fastest: of $q queues" "$2"
    elif [ "$q" = "$queues" ]; then
      row "${name}_alike" "$unit" "$figure" "$compared" \
        "raw echo, alike: of $q queues"
    fi
  done <<<"$lines"
}

least=0.8
[ "$backend" = cpu ] || least=0.85

start_gemmd
start_echoes

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
  rows_beside_echoes throughput ">= $least"
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
  done < <(load pauses "$gemmd" "$echo")
fi
if wanted inline; then
  # Until the pool of staging memory has grown, calls are refused for a moment,
  # and gemmctl tries again.
  "$bin/gemmctl" --server "$gemmd" bench --shape 4096 --concurrency 16 \
    --count 64 --warmup 0.1s >/dev/null
  rows_beside_echoes inline "$(on_gpu ">= 0.9")"
fi
stop_servers

if wanted rows; then
  for batch in 64 1; do
    start_gemmd --max-batch-requests "$batch"
    start_echoes
    if [ "$batch" != 1 ]; then
      rows_beside_echoes rows "$(on_gpu ">= 0.8")"
    else
      load rows "$gemmd" "$echo" >/dev/null
    fi
    micros[batch]=$(awk -v s="$(metric gemmd_kernel_busy_seconds_total)" \
      -v n="$(metric 'gemmd_batch_size_sum')" 'BEGIN { print 1e6 * s / n }')
    echo "rows, at most $batch in a batch: ${micros[batch]} us of the device" \
      "a request"
    stop_servers
  done
  row rows us "${micros[64]}" "${micros[1]}" "--max-batch-requests 1" \
    "$(on_gpu "<= 0.125")"
fi

write_rows
exit "$missed"
