#include "tests/unit/client/fake_matrices.h"

#include <openssl/sha.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/error_details.h"

namespace gemmd {
namespace {

absl::Status Missing(const std::string& id) {
  return ResourceNotFoundError("gemmd.v1.Matrix", id,
                               absl::StrCat("no matrix \"", id, "\""));
}

absl::Status Incomplete(const std::string& id) {
  absl::Status status = absl::FailedPreconditionError("rows are still to come");
  Missing(id).ForEachPayload(
      [&](absl::string_view type, const absl::Cord& payload) {
        status.SetPayload(type, payload);
      });
  return status;
}

std::string Sha256(const std::string& bytes) {
  std::string hash(SHA256_DIGEST_LENGTH, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
         reinterpret_cast<unsigned char*>(hash.data()));
  return hash;
}

uint64_t EndRow(const v1::UploadHeader& header) {
  return header.row_count() == 0 ? header.rows()
                                 : header.first_row() + header.row_count();
}

}  // namespace

std::string BlockDigest(const std::string& numbers) {
  constexpr size_t kBlock = size_t{1} << 20;
  std::string hashes;
  for (size_t at = 0; at < numbers.size(); at += kBlock) {
    hashes += Sha256(numbers.substr(at, kBlock));
  }
  return Sha256(hashes);
}

absl::StatusOr<bool> FakeMatrices::BeginUpload(const v1::UploadHeader& header) {
  std::lock_guard<std::mutex> lock(mu_);
  if (!header.digest().empty()) {
    for (const auto& [id, entry] : entries_) {
      if (!entry.missing_rows.empty() || entry.rows != header.rows() ||
          entry.cols != header.cols() ||
          BlockDigest(entry.numbers) != header.digest()) {
        continue;
      }
      entries_[header.matrix_id()] = Entry(entry);
      return true;
    }
  }
  const auto [place, is_new] = entries_.try_emplace(header.matrix_id());
  Entry& entry = place->second;
  if (!is_new && entry.missing_rows.empty()) {
    return absl::AlreadyExistsError("the id is another matrix's");
  }
  if (is_new) {
    entry.rows = header.rows();
    entry.cols = header.cols();
    entry.digest = header.digest();
    entry.numbers.resize(4 * entry.rows * entry.cols);
    for (uint64_t i = 0; i < entry.rows; ++i) entry.missing_rows.insert(i);
  }
  return false;
}

absl::StatusOr<bool> FakeMatrices::FinishUpload(const v1::UploadHeader& header,
                                                const std::string& numbers) {
  std::lock_guard<std::mutex> lock(mu_);
  const auto found = entries_.find(header.matrix_id());
  if (found == entries_.end()) return Missing(header.matrix_id());
  Entry& entry = found->second;
  const uint64_t end = EndRow(header);
  const uint64_t row_bytes = 4 * entry.cols;
  if (numbers.size() != (end - header.first_row()) * row_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(numbers.size(), " bytes came"));
  }
  for (uint64_t i = header.first_row(); i < end; ++i) {
    if (entry.missing_rows.erase(i) == 0 && entry.digest.empty()) {
      return InvalidFieldError("header.first_row", "a row came twice");
    }
  }
  std::copy(numbers.begin(), numbers.end(),
            entry.numbers.begin() + header.first_row() * row_bytes);
  if (!entry.missing_rows.empty()) return false;
  if (!entry.digest.empty() && BlockDigest(entry.numbers) != entry.digest) {
    entries_.erase(found);
    return absl::InvalidArgumentError("not the digest that was announced");
  }
  return true;
}

absl::StatusOr<FakeMatrices::Entry> FakeMatrices::Find(
    const std::string& id) const {
  std::lock_guard<std::mutex> lock(mu_);
  const auto found = entries_.find(id);
  if (found == entries_.end()) return Missing(id);
  if (!found->second.missing_rows.empty()) return Incomplete(id);
  return found->second;
}

void FakeMatrices::Put(const std::string& id, uint64_t rows, uint64_t cols,
                       std::string numbers) {
  std::lock_guard<std::mutex> lock(mu_);
  entries_[id] = {.rows = rows, .cols = cols, .numbers = std::move(numbers)};
}

absl::Status FakeMatrices::Delete(const std::string& id) {
  std::lock_guard<std::mutex> lock(mu_);
  return entries_.erase(id) == 1 ? absl::OkStatus() : Missing(id);
}

void FakeMatrices::Clear() {
  std::lock_guard<std::mutex> lock(mu_);
  entries_.clear();
}

std::set<std::string> FakeMatrices::ids() const {
  std::lock_guard<std::mutex> lock(mu_);
  std::set<std::string> ids;
  for (const auto& [id, entry] : entries_) ids.insert(id);
  return ids;
}

absl::Status FakeMatrices::Resolve(v1::Operand* operand) const {
  if (operand->source_case() != v1::Operand::kMatrixId) return absl::OkStatus();
  absl::StatusOr<Entry> entry = Find(operand->matrix_id());
  if (!entry.ok()) return entry.status();
  if (entry->rows != operand->rows() || entry->cols != operand->cols()) {
    return absl::InvalidArgumentError("the resident matrix has another shape");
  }
  operand->set_data(std::move(entry->numbers));
  return absl::OkStatus();
}

}  // namespace gemmd
