// Stands between one client and a server and may keep back what the client
// sends, so that a test decides when a request is whole, or what the server
// does, as a client that does not read.

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

  // From now on nothing is read from the server.
  void StopReading() { reading_ = false; }

 private:
  void Run(int to_port, size_t pass_bytes);
  void Forward(int client, int server, size_t pass_bytes);

  int listener_;
  int port_ = 0;
  std::atomic<bool> holds_{false};
  std::atomic<bool> released_{false};
  std::atomic<bool> reading_{true};
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace gemmd::testing
