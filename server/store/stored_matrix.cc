#include "server/store/stored_matrix.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace gemmd {
namespace {

// Under the matrix's lock: new holders come through the matrix alone.
bool IsIdle(const std::shared_ptr<OperandForm>& form,
            std::optional<int> device) {
  return form.use_count() == 1 && (!device || form->key().device == *device);
}

}  // namespace

StoredMatrix::StoredMatrix(int64_t rows, int64_t cols,
                           std::unique_ptr<ResidentMemory> memory)
    : rows_(rows), cols_(cols), home_(memory->device()) {
  copies_.push_back(std::move(memory));
}

size_t StoredMatrix::bytes() const {
  return static_cast<size_t>(rows_) * static_cast<size_t>(cols_) *
         sizeof(float);
}

const ResidentMemory* StoredMatrix::memory(int device) const {
  MutexLock lock(&mu_);
  for (const auto& copy : copies_) {
    if (copy->device() == device) return copy.get();
  }
  return nullptr;
}

std::byte* StoredMatrix::data(int device) const {
  const ResidentMemory* const copy = memory(device);
  return copy == nullptr ? nullptr : copy->data();
}

void StoredMatrix::AddCopy(std::unique_ptr<ResidentMemory> memory) {
  MutexLock lock(&mu_);
  copies_.push_back(std::move(memory));
}

std::vector<int> StoredMatrix::devices() const {
  std::vector<int> devices;
  {
    MutexLock lock(&mu_);
    for (const auto& copy : copies_) devices.push_back(copy->device());
  }
  std::sort(devices.begin(), devices.end());
  return devices;
}

size_t StoredMatrix::device_bytes() const {
  MutexLock lock(&mu_);
  size_t bytes = 0;
  for (const auto& copy : copies_) bytes += copy->size();
  for (const auto& form : forms_) bytes += form->bytes();
  return bytes;
}

std::shared_ptr<OperandForm> StoredMatrix::form(
    const OperandFormKey& key) const {
  MutexLock lock(&mu_);
  for (const auto& form : forms_) {
    if (form->key() == key) return form;
  }
  return nullptr;
}

std::shared_ptr<OperandForm> StoredMatrix::KeepForm(
    std::shared_ptr<OperandForm> form) const {
  MutexLock lock(&mu_);
  for (const auto& kept : forms_) {
    if (kept->key() == form->key()) return kept;
  }
  return forms_.emplace_back(std::move(form));
}

size_t StoredMatrix::idle_form_bytes(std::optional<int> device) const {
  MutexLock lock(&mu_);
  size_t bytes = 0;
  for (const auto& form : forms_) {
    if (IsIdle(form, device)) bytes += form->bytes();
  }
  return bytes;
}

std::vector<std::shared_ptr<OperandForm>> StoredMatrix::TakeIdleForms(
    std::optional<int> device) const {
  std::vector<std::shared_ptr<OperandForm>> idle;
  MutexLock lock(&mu_);
  std::erase_if(forms_, [&](std::shared_ptr<OperandForm>& form) {
    if (!IsIdle(form, device)) return false;
    idle.push_back(std::move(form));
    return true;
  });
  return idle;
}

}  // namespace gemmd
