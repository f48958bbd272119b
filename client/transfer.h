// Matrices to the server and back, in chunks.

#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "client/operation.h"
#include "client/session.h"
#include "gemmd/matrix.h"
#include "gemmd/resident_matrix.h"

namespace gemmd::client {

// What an upload is to become.
struct UploadTarget {
  std::string id;      // never empty
  bool minted = true;  // by us: the id is in use for these numbers alone
  std::optional<absl::Duration> ttl;
  std::string digest;  // or empty
};

// Uploads `source` and waits until it can be used on the server. Rows are split
// over the connections when that gives each enough to do. Under an id that was
// minted an upload that breaks begins anew; else nothing may be deleted, and
// each part is tried again on its own. No message is above 1 MiB and a few
// bytes.
absl::Status Upload(const Session& session, const MatrixView& source,
                    const UploadTarget& target, Operation* operation);

// Brings the rows of a matrix from `first_row` on, as many as `to` has; each
// part is tried again on its own. INTERNAL when the server's matrix has other
// columns or its answer is no such matrix. After an error `to` may be partly
// written.
absl::Status Download(const Session& session, const std::string& id,
                      int64_t first_row, const MutableMatrixView& to,
                      Operation* operation);

// NOT_FOUND when the server does not have it.
absl::Status DeleteMatrix(const Session& session, const std::string& id,
                          Operation* operation);

}  // namespace gemmd::client
