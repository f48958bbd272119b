# shellcheck shell=bash disable=SC2154
# Sourced by the project's scripts: one line of progress a step, with its time;
# what the step prints goes to a log, whose tail is shown when the step fails.
#
#   step_logs=DIRECTORY          where the logs go; made when missing
#   step "What it does" COMMAND [ARGUMENT...]
#
# Returns the command's status. $step_log is the log of the last step.

step() {
  local title=$1 begin status=0
  shift
  mkdir -p "$step_logs"
  step_log="$step_logs/$(tr -cs 'A-Za-z0-9\n' '-' <<<"${title,,}").log"
  printf '%-44s ' "$title"
  begin=$(date +%s%N)
  "$@" >"$step_log" 2>&1 </dev/null || status=$?
  local tenths=$((($(date +%s%N) - begin) / 100000000))
  if [ "$status" -eq 0 ]; then
    printf 'ok %6d.%d s\n' $((tenths / 10)) $((tenths % 10))
  else
    printf 'FAILED (exit code %d) after %d s\n' "$status" $((tenths / 10))
    printf -- '--- the last lines of %s:\n' "$step_log"
    tail -n "${step_tail:-30}" "$step_log"
    printf -- '---\n'
  fi
  return "$status"
}
