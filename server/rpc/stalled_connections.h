// The clients of a unix socket that do not read what they are sent.

#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <thread>

#include "server/monotonic_time.h"
#include "server/mutex.h"
#include "server/rpc/own_sockets.h"

namespace gemmd {

// Ends the connections that take nothing, while there is something to take, for
// `patience`. TCP has a limit of its own for that, which gRPC sets; a unix
// socket has none, and gRPC's pings are not sent while it is full.
//
// How it is known that nothing was taken: a socket that is full has the same
// number of unread bytes from look to look, but so has one whose client reads
// in bursts and that gRPC fills again at once. So after half of the time the
// socket's buffer is made small: gRPC puts nothing into it then before nearly
// all is read, and a number that stays is proof. One that changes gets the
// buffer back.
//
// Thread-compatible.
class StalledConnections {
 public:
  StalledConnections(std::string unix_socket, MonotonicDuration patience);

  // Looks at all connections; to be called several times in `patience`, the
  // time of the call as `now`. How many it ended.
  int Look(MonotonicTime now);

 private:
  // One that is full.
  struct Full {
    ino_t socket = 0;     // whose number the descriptor was
    int unread = 0;       // bytes, in the system's account
    MonotonicTime since;  // that it is so
    int buffer = 0;       // the size that was made small; 0: none was
  };

  bool IsOver(int fd, MonotonicTime now);

  const ServerAddress address_;
  const MonotonicDuration patience_;
  std::map<int, Full> full_;  // by descriptor
};

// Looks now and then, on a thread of its own, until it is destroyed.
class StallWatch {
 public:
  StallWatch(std::string unix_socket, MonotonicDuration patience);
  ~StallWatch();
  StallWatch(const StallWatch&) = delete;
  StallWatch& operator=(const StallWatch&) = delete;

 private:
  void Run(StalledConnections connections, MonotonicDuration pause);

  Mutex mu_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace gemmd
