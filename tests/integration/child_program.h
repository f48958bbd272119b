// The program gemmd as a process of its own.

#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace gemmd::testing {

class ChildProgram {
 public:
  // Starts GEMMD_PROGRAM with these arguments and NAME=VALUE additions to the
  // environment.
  explicit ChildProgram(std::vector<std::string> arguments,
                        std::vector<std::string> environment = {});
  // Kills what still runs.
  ~ChildProgram();

  // Reads stdout until `count` lines are there or it is closed.
  std::vector<std::string> ReadLines(int count);

  // Reads stderr until a line with `part` is there or it is closed; the last
  // such line, empty if there is none.
  std::string ReadErrorLine(const std::string& part);

  pid_t pid() const { return pid_; }
  void Signal(int signal) const;

  // Whether it has a handler for it yet.
  bool Catches(int signal) const;

  // The exit code, or 128 + the signal that ended it; -1 if it still runs after
  // 30 s. After that `error` and `output` hold what it wrote.
  int Wait();

  std::string output;  // as far as it was read
  std::string error;

 private:
  bool ReadSome();

  pid_t pid_;
  int stdout_;
  int stderr_;
  bool done_ = false;
};

}  // namespace gemmd::testing
