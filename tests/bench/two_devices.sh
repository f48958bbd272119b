#!/usr/bin/env bash
# What a second GPU brings: products of resident matrices, one product too large
# to send, small inline products, the copy from GPU to GPU, a mixed stress, and
# the loss of one of the two. Runs from a build (build/dev) or from a bundle.
#
#   two_devices.sh [--backend cpu|cuda] [--json FILE] [--seconds S] [--shape N]
#                  [--order N] [--stress S] [--skip NAME]... [-- FLAG...]
#
#   --json     writes the rows there as well
#              (tests/bench/results/h200x2/service.json)
#   --seconds  of each measurement (3)
#   --shape    of the resident products (2048)
#   --order    of the large product (32768)
#   --stress   seconds of stress (30)
#   --skip     leaves out resident, large, clients, stress, peer_copy or fault
#   FLAG...    more flags for gemmd
#
# Environment: that of servers.sh. Without GPUs, GEMMD_SERVER is
# gemmd_cpu_devices_server: the devices share the cores, and nothing is gained.
#
# Exits with 1 when a figure misses its target (on GPUs), an answer is wrong or
# missing, or a part fails. The table comes last.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# shellcheck source-path=SCRIPTDIR source=servers.sh
. "$here/servers.sh"
seconds=3
shape=2048
order=32768
stress=30
read_flags "seconds shape order stress" "$@"

failed=0
fail() {
  echo "FAILED: $*" >&2
  failed=1
}

# field NAME: of the first JSON object on stdin that has it.
field() { sed -n "s/.*\"$1\": *\([-0-9.e+]*\).*/\1/p" | head -n 1; }

# bench FLAG...: a line of JSON; an error of the bench is a failure.
bench() {
  timeout 120 "$bin/gemmctl" --server "$gemmd" bench --json "$@"
}

# end_gemmd: as an operator ends it; a server that does not end well is a failure.
end_gemmd() {
  kill -TERM "$gemmd_pid"
  wait "$gemmd_pid" || fail "the server ended with $?: $(tail -n 1 "$scratch/gemmd")"
  pids=()
}

# What one server does: rate[DEVICES], flops[DEVICES], small[DEVICES].
declare -A rate flops small
measure() {
  local devices=$1 began=$SECONDS
  start_gemmd --devices "$devices"
  echo "devices $devices: ready after $((SECONDS - began)) s"
  if wanted resident; then
    rate[$devices]=$(bench --operands resident --shape "$shape" \
      --concurrency 16 --duration "${seconds}s" --warmup 1s |
      field requests_per_second) || fail "products of resident matrices"
    echo "devices $devices: ${rate[$devices]} products/s of $shape^3"
  fi
  if wanted clients; then
    small[$devices]=$("$bench/gemmd_service_load" clients "$gemmd" |
      cut -f 3) || fail "64 clients"
    echo "devices $devices: ${small[$devices]} products/s of 64^3, 64 clients"
  fi
  if wanted large; then
    timeout 120 "$bench/gemmd_service_load" large "$gemmd" "$order" \
      "$([ "$devices" = 0,1 ] && echo 3 || echo 1)" >"$scratch/large" ||
      fail "the large product"
    flops[$devices]=$(awk '$1 == "large" { print $3 }' "$scratch/large")
    echo "devices $devices: $order^3 at ${flops[$devices]} TFLOP/s" \
      "(the first at $(awk '$1 == "large_first" { print $3 }' "$scratch/large"))"
  fi
}

# Everything at once; what fails says so, and nothing is left behind.
run_stress() {
  local end=$((SECONDS + stress)) jobs=() job
  local common=(--duration "${stress}s" --warmup 10ms)
  bench --shape 64 --concurrency 32 --verify 0.1 "${common[@]}" \
    >"$scratch/stress_small" 2>&1 & jobs+=($!)
  bench --shape 700x300x500 --concurrency 4 --verify 0.1 "${common[@]}" \
    >"$scratch/stress_medium" 2>&1 & jobs+=($!)
  bench --shape "1x${shape}x$shape" --operands resident-b --concurrency 32 \
    --verify 0.1 "${common[@]}" >"$scratch/stress_rows" 2>&1 & jobs+=($!)
  bench --shape "$shape" --operands resident --concurrency 8 "${common[@]}" \
    >"$scratch/stress_resident" 2>&1 & jobs+=($!)
  while [ "$SECONDS" -lt "$end" ]; do
    timeout 120 "$bench/gemmd_service_load" large "$gemmd" \
      "$((order < 16384 ? order : 16384))" 2
  done >"$scratch/stress_large" 2>&1 & jobs+=($!)
  for job in "${jobs[@]}"; do
    wait "$job" || fail "a part of the stress: $(tail -n 2 "$scratch"/stress_*)"
  done
  stressed=0
  for part in small medium rows resident; do
    stressed=$(awk -v a="$stressed" \
      -v b="$(field requests <"$scratch/stress_$part")" 'BEGIN { print a + b }')
    echo "stress, $part: $(field requests_per_second <"$scratch/stress_$part")/s," \
      "$(field failed <"$scratch/stress_$part") failed"
  done
  local name
  for _ in $(seq 100); do  # the last answers are still being counted
    [ "$(metric grpc_server_call_started_total)" = \
      "$(metric grpc_server_call_completed_total)" ] && break
    sleep 0.1
  done
  for name in gemmd_inflight_requests gemmd_queue_depth gemmd_held_bytes \
    gemmd_staging_bytes; do
    [ "$(metric "$name")" = 0 ] || fail "$name is $(metric "$name") at the end"
  done
  [ "$(metric grpc_server_call_started_total)" = \
    "$(metric grpc_server_call_completed_total)" ] ||
    fail "not every call that began has ended"
}

for devices in 0 0,1 1; do
  # The second device alone is asked for what may differ, and no more.
  if [ "$devices" = 1 ]; then
    old_skip=$skip
    skip+="large clients "
    wanted resident || continue
  fi
  measure "$devices"
  if [ "$devices" = 0,1 ] && wanted stress; then
    run_stress
    row stress requests "$stressed" "$stress" "seconds, every answer right"
  fi
  end_gemmd
done
skip=${old_skip:-$skip}

larger() { awk -v a="$1" -v b="$2" 'BEGIN { print (a > b) ? a : b }'; }
if wanted resident; then
  row "resident_$shape" requests/s "${rate["0,1"]}" \
    "$(larger "${rate[0]}" "${rate[1]}")" "the better device alone" \
    "$(on_gpu ">= 1.9")"
fi
if wanted large; then
  row "split_$order" TFLOP/s "${flops["0,1"]}" "${flops[0]}" "one device" \
    "$(on_gpu ">= 1.8")"
fi
if wanted clients; then
  row clients_64 requests/s "${small["0,1"]}" "${small[0]}" "one device" \
    "$(on_gpu ">= 1")"
fi
if wanted peer_copy; then
  GEMMD_REQUIRE_GPU=1 "$here/../gpu_tests/gemmd_gpu_backend_tests" \
    --gtest_filter='CudaResidentTest.CopiesFromDeviceToDevice*' \
    >"$scratch/peer" 2>&1 || fail "the copy between devices"
  gbps=$(awk '/GB\/s from device 0 to 1/ { print $1 }' "$scratch/peer")
  row peer_copy GB/s "${gbps:-0}" 55 "PCIe, one way"
fi
if wanted fault; then
  if GEMMD_REQUIRE_GPU=1 "$here/../gpu_tests/gemmd_gpu_device_loss_tests" \
    >"$scratch/fault" 2>&1; then
    row device_loss "tests" 1 1 "INTERNAL, health, drain, exit: all seen"
  else
    tail -n 20 "$scratch/fault"
    fail "the loss of a device"
  fi
fi

write_rows
echo
printf '%s\n' "${table[@]}"
exit "$((missed | failed))"
