// Which accumulations into resident matrices have been applied.

#pragma once

#include <cstdint>
#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace gemmd {

// Remembers the request ids of each client's accumulations, so that one that is
// sent again (its answer was lost) is answered and not applied twice, and lets
// accumulations into one matrix take turns.
//
// Bounded: the oldest finished ids of a client are forgotten past a number of
// them. Thread-safe.
class RequestLog {
 public:
  virtual ~RequestLog() = default;

  // What a request finds of its id.
  enum class Seen {
    kNew,   // to be applied; the caller says how it went with End
    kDone,  // was applied: answer it as replayed
  };
  // Calls `turn` once, maybe at once: with kNew when the request is the only
  // one of this client and output id that runs, with kDone when one with the
  // same request id has been applied (also while this one waited). The number
  // returned, never 0, stands for it in Withdraw.
  virtual uint64_t Begin(absl::string_view client, absl::string_view request_id,
                         absl::string_view matrix_id,
                         absl::AnyInvocable<void(Seen) &&> turn) = 0;

  // Gives a turn up that has not come. True: it never will. False: `turn` was
  // called, or is being called.
  virtual bool Withdraw(absl::string_view client, absl::string_view matrix_id,
                        uint64_t waiting) = 0;

  // The end of a kNew: `applied` tells whether the product was committed. Lets
  // the next of the same matrix have its turn.
  virtual void End(absl::string_view client, absl::string_view request_id,
                   absl::string_view matrix_id, bool applied) = 0;

  static std::unique_ptr<RequestLog> Create();
};

}  // namespace gemmd
