// A matrix of this client's on the server.

#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "client/session.h"
#include "client/transfer.h"
#include "gemmd/matrix.h"

namespace gemmd::client {

// What the handle and the operands that are made from it have in common.
// Dropped on the server when the last of them goes, if it is owned.
//
// Thread-safe.
class Residence {
 public:
  // Where the numbers came from, if that lives as long as this.
  struct Source {
    MatrixView view;
    UploadTarget target;
  };

  Residence(std::weak_ptr<Session> session, std::string id, int64_t rows,
            int64_t cols, bool owned, std::optional<Source> source);
  ~Residence();
  Residence(const Residence&) = delete;
  Residence& operator=(const Residence&) = delete;

  const std::string& id() const { return id_; }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  const std::weak_ptr<Session>& session() const { return session_; }

  // The numbers in the caller's memory, if they are still the same.
  std::optional<MatrixView> source() const;

  // A product is about to write to it: what was uploaded is not what it holds.
  void Written();

  void SetOwned(bool owned);

  // Whether Restore may help a call that ended so: the server does not have the
  // numbers, or not all, since another thread restores them.
  bool MayBeRestored(const absl::Status& status) const;

  // How often the numbers were uploaded again. To be read before a request and
  // given to Restore after it.
  int restored() const;

  // Uploads the numbers again, unless somebody else has since `restored`. The
  // first to come does it, the others wait. FAILED_PRECONDITION without a
  // source.
  absl::Status Restore(const Session& session, int restored,
                       Operation* operation);

 private:
  const std::weak_ptr<Session> session_;
  const std::string id_;
  const int64_t rows_;
  const int64_t cols_;

  std::timed_mutex restoring_;  // held while numbers are uploaded again

  mutable std::mutex mu_;
  bool owned_;                    // guarded by mu_
  std::optional<Source> source_;  // guarded by mu_
  int restored_ = 0;              // guarded by mu_
};

}  // namespace gemmd::client
