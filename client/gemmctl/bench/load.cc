#include "client/gemmctl/bench/load.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/time/clock.h"

namespace gemmd::gemmctl {
namespace {

constexpr auto kProgressInterval = std::chrono::milliseconds(500);

}  // namespace

Load::Load(Client* client, Workload* workload, bool keep_going, bool progress)
    : client_(client),
      keep_going_(keep_going),
      progress_(progress),
      workload_(workload) {}

Load::~Load() { Stop(); }

bool Load::MayBegin() const {
  return !stopping_ && (count_ == 0 || begun_ < count_) &&
         (keep_going_ || measured_.first_error.ok());
}

bool Load::IsOver() const { return in_flight_ == 0 && !MayBegin(); }

void Load::Start(const Pace& pace, int64_t count) {
  std::unique_lock<std::mutex> lock(mu_);
  pace_ = pace;
  count_ = count;
  begun_ = 0;
  stopping_ = false;
  measured_ = {};
  cut_ = absl::Now();
  while (static_cast<int>(slots_.size()) < pace.in_flight) {
    slots_.push_back(std::make_unique<Workload::Slot>());
    free_.push_back(slots_.back().get());
  }
  if (pace.rate.has_value()) {
    open_loop_ = std::thread([this] { RunOpenLoop(); });
    return;
  }
  for (int i = 0; i < pace.in_flight && MayBegin(); ++i) {
    Workload::Slot* const slot = free_.back();
    free_.pop_back();
    Begin(lock, slot, absl::Now());
  }
}

void Load::Begin(std::unique_lock<std::mutex>& lock, Workload::Slot* slot,
                 absl::Time intended) {
  ++begun_;
  ++in_flight_;
  const size_t shape = workload_->DrawShape();
  const SgemmCall call = workload_->Call(shape, slot);
  lock.unlock();
  client_->SgemmAsync(
      call, [this, shape, slot, intended](absl::StatusOr<SgemmAnswer> answer) {
        Ended(shape, slot, intended, std::move(answer));
      });
  lock.lock();
}

void Load::Ended(size_t shape, Workload::Slot* slot, absl::Time intended,
                 absl::StatusOr<SgemmAnswer> answer) {
  const absl::Time now = absl::Now();
  std::unique_lock<std::mutex> lock(mu_);
  --in_flight_;
  if (answer.ok()) {
    workload_->Keep(shape, &*answer, slot);
    measured_.AddAnswer(
        *answer, pace_.rate.has_value() ? now - intended : answer->elapsed,
        workload_->Flops(shape), workload_->WireBytes(shape));
  } else {
    measured_.AddError(answer.status());
  }
  if (!pace_.rate.has_value() && MayBegin()) {
    Begin(lock, slot, now);
  } else {
    free_.push_back(slot);
  }
  if (in_flight_ == 0 || pace_.rate.has_value()) changed_.notify_all();
}

void Load::RunOpenLoop() {
  std::unique_lock<std::mutex> lock(mu_);
  const double rate = *pace_.rate;
  std::exponential_distribution<double> exponential(rate);
  absl::Time intended = absl::Now();
  while (MayBegin()) {
    changed_.wait_for(lock, absl::ToChronoNanoseconds(intended - absl::Now()),
                      [&] { return !MayBegin(); });
    if (!MayBegin()) break;
    if (free_.empty()) {
      ++measured_.late;
      changed_.wait(lock, [&] { return !free_.empty() || !MayBegin(); });
      if (!MayBegin()) break;
    }
    Workload::Slot* const slot = free_.back();
    free_.pop_back();
    Begin(lock, slot, intended);
    intended += absl::Seconds(pace_.poisson ? exponential(random_) : 1 / rate);
  }
}

Measurement Load::TakeMeasurement() {
  const absl::Time now = absl::Now();
  const absl::Status error = measured_.first_error;
  Measurement measured = std::exchange(measured_, {});
  measured.elapsed = now - cut_;
  cut_ = now;
  if (!keep_going_) measured_.first_error = error;  // the load stays ended
  return measured;
}

Measurement Load::Cut(absl::Duration duration) {
  std::unique_lock<std::mutex> lock(mu_);
  const absl::Time end = cut_ + duration;
  for (absl::Time now = absl::Now(); now < end && !IsOver();
       now = absl::Now()) {
    changed_.wait_for(lock,
                      std::min(absl::ToChronoNanoseconds(end - now),
                               std::chrono::nanoseconds(kProgressInterval)));
    if (progress_) ShowProgress(measured_, absl::Now() - cut_);
  }
  return TakeMeasurement();
}

Measurement Load::Stop() {
  std::unique_lock<std::mutex> lock(mu_);
  if (count_ == 0) stopping_ = true;
  changed_.notify_all();
  while (!IsOver()) {
    changed_.wait_for(lock, kProgressInterval);
    if (progress_) ShowProgress(measured_, absl::Now() - cut_);
  }
  stopping_ = true;
  changed_.notify_all();
  lock.unlock();
  if (open_loop_.joinable()) open_loop_.join();
  lock.lock();
  return TakeMeasurement();
}

void Load::ShowProgress(const Measurement& measured,
                        absl::Duration elapsed) const {
  const double seconds = absl::ToDoubleSeconds(elapsed);
  std::fprintf(stderr, "\r\x1b[K%.1f s: %lld products, %.0f/s, %d in flight",
               seconds, static_cast<long long>(measured.products()),
               seconds > 0 ? measured.products() / seconds : 0.0, in_flight_);
  std::fflush(stderr);
}

}  // namespace gemmd::gemmctl
