# shellcheck shell=bash disable=SC2034,SC2154
# What the scripts of this folder share; sourced by them, from a build
# (build/dev) or from a bundle. Needs: $here, the script's folder.
#
# Environment: GEMMD_BUILD, the build's folder; GEMMD_SERVER, another program in
# gemmd's place; GEMMD_ECHO_QUEUES (1).

if [ -x "$here/gemmd_service_load" ]; then
  bench=$here
  bin=$here/../bin
  commit=$(sed -n 's/^commit \([0-9a-f]*\).*/\1/p' "$here/../VERSION")
else
  bench=${GEMMD_BUILD:-$here/../../build/dev}/bin
  bin=$bench
  commit=$(git -C "$here" rev-parse HEAD 2>/dev/null || echo unknown)
fi
server=${GEMMD_SERVER:-$bin/gemmd}
for program in "$server" "$bench/gemmd_echo_server" \
  "$bench/gemmd_service_load"; do
  [ -x "$program" ] || {
    echo "$program is not built; run tests/run.sh first" >&2
    exit 1
  }
done

scratch=$(mktemp -d)
pids=()
stop_servers() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  pids=()
}
trap 'stop_servers; rm -rf "$scratch"' EXIT

# Of every script, as read_flags sets them: the backend, the file of write_rows,
# what is left out, more flags for gemmd, and the command line.
backend=cpu
json=
skip=" "
flags=()
command=${0##*/}

# read_flags "NAME..." ARGUMENT...: reads --backend, --json, --skip (again and
# again), and --NAME VALUE into the variable of that name; after -- come flags.
read_flags() {
  local names=" backend json $1 "
  shift
  command="${0##*/} $*"
  while [ $# -gt 0 ]; do
    if [ "$1" = -- ]; then
      shift && break
    elif [ "$1" = --skip ]; then
      skip+="$2 "
    elif [[ "$1" == --* && "$names" == *" ${1#--} "* ]]; then
      printf -v "${1#--}" %s "$2"
    else
      echo "${0##*/}: unknown argument '$1'" >&2
      exit 2
    fi
    shift 2
  done
  flags=("$@")
}

# Whether a part is not skipped; its argument on a GPU, else nothing.
wanted() { [[ "$skip" != *" $1 "* ]]; }
on_gpu() { if [ "$backend" = cuda ]; then echo "$1"; fi; }

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
  "$server" --backend "$backend" --listen 127.0.0.1:0 \
    --http-listen 127.0.0.1:0 --log-level warn "${flags[@]}" "$@" \
    >"$scratch/gemmd" 2>&1 &
  gemmd_pid=$!
  pids+=("$gemmd_pid")
  gemmd=$(wait_for "$scratch/gemmd" "grpc listening on ")
  http=$(wait_for "$scratch/gemmd" "http listening on ")
}

# start_echo tcp|unix:PATH: tcp is a free port of loopback; sets echo.
start_echo() {
  local port
  if [ "$1" != tcp ]; then
    "$bench/gemmd_echo_server" "$1" >"$scratch/echo" 2>&1 &
    pids+=($!)
    echo=$(wait_for "$scratch/echo" "echo listening on ")
    return
  fi
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
table=()
row() {
  local ratio target=none
  ratio=$(awk -v a="$3" -v b="$4" 'BEGIN { printf "%.3f", (b > 0) ? a / b : 0 }')
  if [ -n "${6:-}" ]; then
    target=$6
    awk -v r="$ratio" -v op="${6% *}" -v t="${6#* }" \
      'BEGIN { exit !((op == ">=") ? (r >= t) : (r <= t)) }' || missed=1
  fi
  table+=("$(printf '%-16s %12s %-10s %12s %-34s ratio %-8s target %s' \
    "$1" "$3" "$2" "$4" "($5)" "$ratio" "$target")")
  echo "${table[-1]}"
  rows+=("  {\"name\": \"$1\", \"commit\": \"$commit\", \"command\": \
\"$command\", \"unit\": \"$2\", \"figure\": $3, \"compared_with\": \"$5\", \
\"compared\": $4, \"ratio\": $ratio, \"target\": \"$target\"}")
}

# write_rows: the rows so far into the file $json, if it was asked for.
write_rows() {
  [ -n "$json" ] || return 0
  { echo "[" && printf '%s,\n' "${rows[@]}" | sed '$ s/,$//' && echo "]"; } \
    >"$json"
}
