#include "tests/integration/child_program.h"

#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"

extern char** environ;

namespace gemmd::testing {

ChildProgram::ChildProgram(std::vector<std::string> arguments,
                           std::vector<std::string> environment) {
  int out[2], err[2];
  EXPECT_EQ(pipe(out), 0);
  EXPECT_EQ(pipe(err), 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err[1], STDERR_FILENO);
  for (const int fd : {out[0], out[1], err[0], err[1]}) {
    posix_spawn_file_actions_addclose(&actions, fd);
  }
  std::vector<char*> argv = {const_cast<char*>("gemmd")};
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  std::vector<char*> envp;
  for (std::string& variable : environment) envp.push_back(variable.data());
  for (char** variable = environ; *variable != nullptr; ++variable) {
    envp.push_back(*variable);
  }
  envp.push_back(nullptr);
  const int failed = posix_spawn(&pid_, GEMMD_PROGRAM, &actions, nullptr,
                                 argv.data(), envp.data());
  EXPECT_EQ(failed, 0) << GEMMD_PROGRAM << ": " << std::strerror(failed);
  posix_spawn_file_actions_destroy(&actions);
  close(out[1]);
  close(err[1]);
  stdout_ = out[0];
  stderr_ = err[0];
}

ChildProgram::~ChildProgram() {
  if (!done_) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  close(stdout_);
  close(stderr_);
}

// False when both pipes are closed, or silent for 30 s.
bool ChildProgram::ReadSome() {
  pollfd fds[] = {{stdout_, POLLIN, 0}, {stderr_, POLLIN, 0}};
  if (poll(fds, 2, 30'000) <= 0) return false;
  bool any = false;
  for (const pollfd& fd : fds) {
    if (fd.revents == 0) continue;
    char chunk[4096];
    const ssize_t count = read(fd.fd, chunk, sizeof(chunk));
    if (count <= 0) continue;
    any = true;
    (fd.fd == stdout_ ? output : error).append(chunk, count);
  }
  return any;
}

std::vector<std::string> ChildProgram::ReadLines(int count) {
  while (std::count(output.begin(), output.end(), '\n') < count && ReadSome()) {
  }
  return absl::StrSplit(output, '\n', absl::SkipEmpty());
}

std::string ChildProgram::ReadErrorLine(const std::string& part) {
  for (;;) {
    const size_t at = error.rfind(part);
    const size_t end = at == std::string::npos ? at : error.find('\n', at);
    if (end != std::string::npos) {
      const size_t begin = error.rfind('\n', at) + 1;  // 0 where there is none
      return error.substr(begin, end - begin);
    }
    if (!ReadSome()) return "";
  }
}

void ChildProgram::Signal(int signal) const { kill(pid_, signal); }

bool ChildProgram::Catches(int signal) const {
  std::ifstream status(absl::StrCat("/proc/", pid_, "/status"));
  for (std::string word; status >> word;) {
    uint64_t caught;
    if (word == "SigCgt:" && status >> std::hex >> caught) {
      return (caught >> (signal - 1) & 1) != 0;
    }
  }
  return false;
}

int ChildProgram::Wait() {
  while (ReadSome()) {
  }
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::seconds(30);
  int state = 0;
  while (waitpid(pid_, &state, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > deadline) return -1;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  done_ = true;
  return WIFSIGNALED(state) ? 128 + WTERMSIG(state) : WEXITSTATUS(state);
}

}  // namespace gemmd::testing
