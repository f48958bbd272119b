#include "client/operation.h"

#include <algorithm>
#include <utility>

namespace gemmd::client {
namespace {

using Clock = std::chrono::steady_clock;

// Longer than any process; an infinite wait overflows the condition variable's
// arithmetic.
constexpr absl::Duration kForever = absl::Hours(24 * 365);

}  // namespace

Operation::Operation(absl::Duration timeout)
    : timeout_(timeout), begin_(Clock::now()) {}

absl::Duration Operation::elapsed() const {
  return absl::FromChrono(Clock::now() - begin_);
}

void Operation::Cancel() {
  std::lock_guard<std::mutex> lock(mu_);
  cancelled_ = true;
  for (const std::function<void()>& cancel : steps_) cancel();
  cancel_.notify_all();
}

bool Operation::cancelled() const {
  std::lock_guard<std::mutex> lock(mu_);
  return cancelled_;
}

void Operation::SleepFor(absl::Duration duration) {
  std::unique_lock<std::mutex> lock(mu_);
  cancel_.wait_for(lock,
                   absl::ToChronoNanoseconds(std::min(duration, kForever)),
                   [this] { return cancelled_; });
}

Operation::Step::Step(Operation* operation, std::function<void()> cancel)
    : operation_(operation) {
  std::lock_guard<std::mutex> lock(operation_->mu_);
  if (operation_->cancelled_) cancel();
  place_ =
      operation_->steps_.insert(operation_->steps_.end(), std::move(cancel));
}

Operation::Step::~Step() {
  std::lock_guard<std::mutex> lock(operation_->mu_);
  operation_->steps_.erase(place_);
}

}  // namespace gemmd::client
