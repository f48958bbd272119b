#!/usr/bin/env bash
# Runs the GPU tests of this bundle. Needs an NVIDIA driver; without cuBLAS the
# tests of the kernel `cublas` fail. The last line counts the test cases.
#
#   run_gpu_tests.sh [GTEST ARGUMENT...]    e.g. --gtest_filter='*naive*'
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# Where CUDA's installers put cuBLAS, for a host that did not tell its linker.
for folder in "${CUDA_HOME:-/usr/local/cuda}" /usr/local/cuda-1[2-9]*; do
  [ -d "$folder/lib64" ] || continue
  LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder/lib64
done
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}
export GEMMD_REQUIRE_GPU=1

cat "$here/VERSION"
if command -v nvidia-smi >/dev/null; then
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
fi

output=$(mktemp)
trap 'rm -f "$output"' EXIT
crashed=0
for program in "$here"/gpu_tests/*; do
  case $program in *.sh) continue ;; esac  # the sanitizers' own
  echo "== ${program##*/}"
  begin=$(wc -l <"$output")
  "$program" "$@" 2>&1 | tee -a "$output" || {
    # A failed case is counted below; a crash has no line of its own.
    tail -n "+$((begin + 1))" "$output" | grep -q '^\[  FAILED  \]' ||
      crashed=$((crashed + 1))
  }
done
awk -v crashed="$crashed" '
  /^\[  PASSED  \] [0-9]+ test/ { passed += $4 }
  /^\[  FAILED  \] [0-9]+ test/ { failed += $4 }
  /^\[  SKIPPED \] [0-9]+ test/ { skipped += $4 }
  END {
    failed += crashed
    printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped
    exit failed > 0 || passed == 0
  }' "$output"
