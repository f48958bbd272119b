// Stands between one client and a server and may keep back what the client
// sends, so that a test decides when a request is whole.

#pragma once

#include <atomic>
#include <cstddef>
#include <thread>

namespace gemmd::testing {

class HeldProxy {
 public:
  // Listens on a port of its own for one connection, to 127.0.0.1:`to_port`. Of
  // what the client sends, `pass_bytes` are passed on and the rest is kept back
  // until Release.
  HeldProxy(int to_port, size_t pass_bytes);
  // Ends the connection where it stands.
  ~HeldProxy();

  int port() const { return port_; }

  // True once everything before the rest has been passed on.
  bool holds() const { return holds_; }
  void Release() { released_ = true; }

 private:
  void Run(int to_port, size_t pass_bytes);
  void Forward(int client, int server, size_t pass_bytes);

  int listener_;
  int port_ = 0;
  std::atomic<bool> holds_{false};
  std::atomic<bool> released_{false};
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace gemmd::testing
