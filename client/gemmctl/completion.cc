#include "client/gemmctl/completion.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace gemmd::gemmctl {
namespace {

// What is between @ is filled in.
constexpr char kScript[] = R"(# bash completion of gemmctl
_gemmctl() {
  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}
  local command= word words='@flags@'
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case $word in
      @commands@) command=$word; break ;;
    esac
  done
  case $before in
    --precision) words='fp32 fp32_emulated tf32' ;;
    --operands) words='inline resident-b resident shared-memory' ;;
    *)
      case $command in
        '') [[ $current == -* ]] || words='@words@' ;;
@cases@
      esac
      if [[ -n $command && $current != -* ]]; then
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
        return
      fi ;;
  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}
complete -o filenames -F _gemmctl gemmctl
)";

// Long names of an app's flags, with dashes.
std::string Flags(const CLI::App& app) {
  std::string flags;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      absl::StrAppend(&flags, flags.empty() ? "" : " ", "--", name);
    }
  }
  return flags;
}

}  // namespace

std::string BashCompletion(const CLI::App& app) {
  std::string commands;  // as a pattern of `case`
  std::string words;
  std::string cases;
  for (const CLI::App* command :
       app.get_subcommands([](const CLI::App*) { return true; })) {
    const std::string& name = command->get_name();
    absl::StrAppend(&commands, commands.empty() ? "" : "|", name);
    absl::StrAppend(&words, words.empty() ? "" : " ", name);
    absl::StrAppend(&cases, cases.empty() ? "" : "\n", "        ", name,
                    ") words+=' ", Flags(*command), "' ;;");
  }
  return absl::StrReplaceAll(kScript, {{"@commands@", commands},
                                       {"@words@", words},
                                       {"@flags@", Flags(app)},
                                       {"@cases@", cases}});
}

}  // namespace gemmd::gemmctl
