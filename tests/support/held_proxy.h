// Stands between one client and a server and may keep back what the client
// sends, so that a test decides when a request is whole, or what the server
// does, as a client that does not read, or cut the connection.

#pragma once

#include <atomic>
#include <cstddef>
#include <string>
#include <thread>

namespace gemmd::testing {

class HeldProxy {
 public:
  struct Options {
    // Where the server is: a port of loopback, or the path of a unix socket.
    int to_port = 0;
    std::string to_path = {};
    // A path to listen at; empty: a port of loopback, of its own.
    std::string path = {};
    // Of what the client sends, so many bytes are passed on and the rest is
    // kept back until Release.
    size_t pass_bytes = size_t{1} << 40;
  };

  // Takes one connection after the other.
  explicit HeldProxy(Options options);
  // Ends the connection where it stands.
  ~HeldProxy();

  int port() const { return port_; }

  // True once everything before the rest has been passed on.
  bool holds() const { return holds_; }
  void Release() { released_ = true; }

  // From now on nothing is read from the server, on this connection.
  void StopReading() { reading_ = false; }

  // Ends the connection where it stands; the client may come again.
  void Cut() { cut_ = true; }

 private:
  void Run();
  void Forward(int client, int server);

  const Options options_;
  int listener_;
  int port_ = 0;
  std::atomic<bool> holds_{false};
  std::atomic<bool> released_{false};
  std::atomic<bool> reading_{true};
  std::atomic<bool> cut_{false};
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace gemmd::testing
