#!/usr/bin/env bash
# Makes a relocatable tree of gemmd, and a .tar.xz of it: the programs, the GPU
# tests, the benchmarks, and every shared library they need but the C library,
# the NVIDIA driver and cuBLAS. It runs from any folder of an x86-64 Linux with
# glibc >= 2.36 that has no gRPC; `run_gpu_tests.sh` in it runs the GPU tests.
#
#   deploy/bundle.sh [--preset PRESET] [--output FOLDER]
#
#   --preset    what to build: release (the default; every supported GPU) or dev
#   --output    where the tree and the archive go: .bundle in the project
#
# Environment: GEMMD_CMAKE_ARGS, more arguments for CMake.
set -euo pipefail
project=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$project/deploy/step.sh"

preset=release
output=$project/.bundle
while [ $# -gt 0 ]; do
  case $1 in
    --preset) preset=${2:?--preset needs a name} && shift 2 ;;
    --output) output=$(realpath -m "${2:?--output needs a folder}") && shift 2 ;;
    -h | --help) sed -n '2,12s/^# \{0,1\}//p' "$0" && exit 0 ;;
    *) echo "bundle.sh: unknown argument '$1'" >&2 && exit 2 ;;
  esac
done
cd "$project"
build=build/$preset
step_logs=$build/logs
limit_mib=50
read -ra cmake_args <<<"${GEMMD_CMAKE_ARGS:-}"

version=$(sed -n 's/^project(gemmd VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
name=gemmd-$version-linux-x86_64
tree=$output/$name

# The C library and the dynamic linker, and what comes with the driver or CUDA:
# the host's own.
host_libraries='^(ld-linux-x86-64|libc|libm|libmvec|libdl|libpthread|librt'
host_libraries+='|libresolv|libutil|libanl|libcuda|libnvidia-[a-z]+'
host_libraries+='|libcublas|libcublasLt)\.so'

programs() {
  find "$tree" -path "$tree/lib" -prune -o \
    -type f -perm -u+x ! -name '*.sh' -print
}

install_programs() {
  rm -rf "$tree" && mkdir -p "$tree/lib" &&
    for component in programs gpu_tests benchmarks; do
      cmake --install "$build" --prefix "$tree" --component "$component" \
        --strip || return 1
    done
  [ -n "$(programs)" ] || {
    echo "no program was installed" && return 1
  }
  cp LICENSE deploy/run_gpu_tests.sh "$tree" && chmod +x "$tree"/*.sh
}

# OpenBLAS is loaded when a program runs, so that no program names it.
openblas() {
  /sbin/ldconfig -p |
    sed -n 's/.*libopenblas\.so\.0 (.*x86-64.*) => //p' | head -n 1
}

# The libraries that the programs need, directly or not: "SONAME PATH" a line.
# Once they are copied, PATH is in the tree.
needed_libraries() {
  local path
  echo "libopenblas.so.0 $(openblas)"
  { programs && openblas; } | while read -r path; do
    ldd "$path" || {
      echo "ldd fails on $path" >&2 && return 1
    }
  done |
    awk -v host="$host_libraries" \
      '$2 == "=>" && $1 !~ host && $1 != "libopenblas.so.0" {print $1, $3}' |
    sort -u
}

# Each under its soname, looking for its own beside it. All are found before the
# first is copied: ldd would meet half of a file.
copy_libraries() {
  local soname path needed
  needed=$(needed_libraries) || return 1
  while read -r soname path; do
    [ -f "$path" ] || {
      echo "$soname is needed and not found" && return 1
    }
    cp -L "$path" "$tree/lib/$soname" && chmod 644 "$tree/lib/$soname" &&
      patchelf --set-rpath "\$ORIGIN" "$tree/lib/$soname" || return 1
  done <<<"$needed"
}

# The licence of each Debian package that a library comes from.
copy_licences() {
  local files file package
  mapfile -t files < <(needed_libraries | cut -d ' ' -f 2 | xargs realpath)
  mkdir -p "$tree/licenses" || return 1
  # dpkg knows a file of the merged /usr/lib by this or by its older name.
  { dpkg-query -S "${files[@]}" "${files[@]#/usr}" 2>/dev/null || true; } |
    sed 's/:.*//' | sort -u | while read -r package; do
    cp "/usr/share/doc/$package/copyright" "$tree/licenses/$package" || return 1
  done && [ -n "$(ls "$tree/licenses")" ]
}

describe() {
  {
    echo "gemmd $version, preset $preset"
    git log -1 --format='commit %H, %cI' && git status --short -uno
    sed -n 's/^CMAKE_CUDA_ARCHITECTURES:[A-Z]*=/CUDA architectures /p' \
      "$build/CMakeCache.txt"
    g++ --version | head -n 1
  } >"$tree/VERSION"
}

# Nothing unresolved, nothing from outside of the tree but the host's libraries,
# and no symbol newer than glibc 2.36.
check_tree() {
  local file faults=0
  while read -r file; do
    if ! env -i "$(command -v ldd)" "$file" |
      awk -v tree="$tree/" -v host="$host_libraries" -v file="$file" '
        /not found/ && $1 !~ host { print file ": " $0; bad = 1 }
        $2 == "=>" && $1 !~ host && index($3, tree) != 1 && $3 != "not" {
          print file ": " $1 " comes from " $3; bad = 1
        }
        END { exit bad }'; then
      faults=$((faults + 1))
    fi
  done < <(programs && find "$tree/lib" -type f)
  local newest
  newest=$({ programs && find "$tree/lib" -type f; } | xargs objdump -T |
    grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
  echo "newest glibc symbol: $newest"
  [ "$(printf '%s\nGLIBC_2.36\n' "$newest" | sort -V | tail -n 1)" = GLIBC_2.36 ] ||
    faults=$((faults + 1))
  return $((faults > 0))
}

# The same commit gives the same bytes. The programs have the same kernels in
# them, 25 MB apart: a dictionary that reaches so far keeps one copy.
pack() {
  tar --sort=name --owner=0 --group=0 --numeric-owner \
    --mtime="@$(git log -1 --format=%ct)" -C "$output" -c "$name" |
    xz -T1 --lzma2=preset=2,dict=64MiB >"$output/$name.tar.xz"
  local bytes
  bytes=$(stat -c %s "$output/$name.tar.xz")
  [ "$bytes" -le $((limit_mib << 20)) ] || {
    echo "the archive has $bytes bytes, more than $limit_mib MiB" && return 1
  }
}

bash deploy/install_deps.sh --test
step "Configuring ($preset)" cmake --preset "$preset" \
  -DGEMMD_TESTS=ON "${cmake_args[@]}"
sed -n 's/^-- \(gemmd: .*\)/\1/p' "$step_log"
step "Building" \
  cmake --build "$build" --parallel "$(nproc)" --target gemmd_bundle
step "Installing" install_programs
step "Copying the libraries' licences" copy_licences
step "Copying the libraries" copy_libraries
step "Naming the version" describe
step "Checking the tree" check_tree
step "Packing" pack
echo "$tree ($(du -sh --apparent-size "$tree" | cut -f 1))"
echo "$output/$name.tar.xz ($(du -h --apparent-size "$output/$name.tar.xz" | cut -f 1))"
