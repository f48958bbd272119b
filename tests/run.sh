#!/usr/bin/env bash
# Installs what is missing, builds gemmd and its tests, and runs every test that
# needs no GPU. Works from any directory. The last line says how many test cases
# passed, failed and were skipped; the exit code is 0 when none failed.
#
#   tests/run.sh [CTEST ARGUMENT...]      for instance: tests/run.sh -R npy
#
# Environment:
#   GEMMD_PRESET        the CMake preset to build and test (dev)
#   GEMMD_CMAKE_ARGS    more arguments for CMake, for instance -DGEMMD_CUDA=OFF
#   GEMMD_REQUIRE_GPU   1: a GPU test that finds no device fails
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. deploy/step.sh

preset=${GEMMD_PRESET:-dev}
build=build/$preset
results=$build/test-results
step_logs=$build/logs
jobs=$(nproc)
read -ra cmake_args <<<"${GEMMD_CMAKE_ARGS:-}"

bash deploy/install_deps.sh --test
step "Configuring ($preset)" cmake --preset "$preset" \
  -DGEMMD_TESTS=ON "${cmake_args[@]}"
sed -n 's/^-- \(gemmd: .*\)/\1/p' "$step_log"
step "Building" cmake --build "$build" --parallel "$jobs"

# A program of tests writes the results of its cases into a file of its name.
rm -rf "$results"
status=0
GTEST_OUTPUT="xml:$PWD/$results/" ctest --test-dir "$build" \
  --output-on-failure --no-label-summary --no-tests=error \
  --parallel "$jobs" \
  --output-junit "$PWD/$results/ctest.junit" "$@" || status=$?
python3 tests/count_results.py "$results" || status=$?
exit "$status"
