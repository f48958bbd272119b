#!/usr/bin/env bash
# compute-sanitizer over every kernel of ours on small products: accesses outside
# of memory (memcheck) and races in shared memory (racecheck), both at once, on
# two GPUs where there are two.
#
#   tests/gpu/sanitize.sh [PATH/gemmd_gpu_tests]     a minute at most
#
# Ends with a line for each tool, and with 1 where one found something, a test
# failed or the time was up.
set -u
tests=${1:-$(dirname "$0")/gemmd_gpu_tests}  # beside it in the bundle
sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
seconds=${GEMMD_SANITIZE_SECONDS:-45}
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

# Each kernel: edges of every tile, rows that are not aligned, k cut short, a
# batch. cuBLAS is not ours. The ways of skinny and the forms of bf16x6 besides.
filter='*RegressionTest.RowsOfOddLength/*:*RegressionTest.TinyWithADeepOddK/*'
filter+=':*RegressionTest.WholeTilesWithAPartOfK/*'
filter+=':*RegressionTest.SameRowsAloneAndInABatch/*'
filter+=':*SkinnyTest.ComputesEveryEdgeOfN/*'
filter+=':*Sm90Bf16x6Test.LeavesSumsThatMightOverflowToFp32/*'
filter+='-*/cublas'

last_gpu=$(($(nvidia-smi -L 2>/dev/null | wc -l) > 1))
run() {  # TOOL GPU
  CUDA_VISIBLE_DEVICES=$2 GEMMD_REQUIRE_GPU=1 timeout "$seconds" \
    "$sanitizer" --tool "$1" --error-exitcode 9 "$tests" \
    --gtest_filter="$filter" --gtest_brief=1 >"$logs/$1" 2>&1
  echo $? >"$logs/$1.status"
}
run memcheck 0 &
run racecheck "$last_gpu" &
wait

worst=0
for tool in memcheck racecheck; do
  status=$(cat "$logs/$tool.status")
  if [ "$status" -ne 0 ]; then
    worst=1
    tail -n 40 "$logs/$tool"
  fi
  summary=$(grep -E 'SUMMARY' "$logs/$tool" | tail -n 1)
  passed=$(grep -E '\[  PASSED' "$logs/$tool" | tail -n 1)
  echo "$tool: exit $status; ${passed:-no test ended}; ${summary:-no summary}"
done
exit $worst
