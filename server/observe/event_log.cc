#include "server/observe/event_log.h"

#include <array>
#include <chrono>
#include <functional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/monotonic_time.h"
#include "server/mutex.h"

namespace gemmd {
namespace {

// Lets so many lines a second through and counts the rest.
class LineLimit {
 public:
  // True: write, saying that `*left_out` lines were not.
  bool Allow(MonotonicTime now, int* left_out) {
    MutexLock lock(&mu_);
    if (now - second_ >= std::chrono::seconds(1)) {
      second_ = now;
      written_ = 0;
    }
    if (written_ >= kLimitedLines) {
      ++left_out_;
      return false;
    }
    ++written_;
    *left_out = std::exchange(left_out_, 0);
    return true;
  }

 private:
  Mutex mu_;
  MonotonicTime second_ ABSL_GUARDED_BY(mu_){};
  int written_ ABSL_GUARDED_BY(mu_) = 0;
  int left_out_ ABSL_GUARDED_BY(mu_) = 0;
};

using Fields = std::vector<LogField>;

void LogKnown(LogLevel level, absl::string_view message, Fields fields) {
  std::erase_if(fields,
                [](const LogField& field) { return field.value.empty(); });
  Log(level, message, fields);
}

// Lines of one kind, at most kLimitedLines a second.
void LogLimited(LineLimit* limit, LogLevel level, absl::string_view message,
                const std::function<Fields()>& make_fields) {
  int left_out = 0;
  if (!IsLogOn(level) || !limit->Allow(MonotonicClock::now(), &left_out)) {
    return;
  }
  Fields fields = make_fields();
  if (left_out > 0) {
    fields.push_back({"left_out_before", absl::StrCat(left_out)});
  }
  LogKnown(level, message, std::move(fields));
}

std::string InSeconds(double seconds) {
  return absl::StrFormat("%.6f", seconds);
}

Fields FieldsOf(const EndedRequest& request, const absl::Status& status) {
  Fields fields = {{"method", std::string(request.method)},
                   {"code", absl::StatusCodeToString(status.code())},
                   {"error", std::string(status.message())},
                   {"seconds", InSeconds(request.seconds)},
                   {"client", request.client},
                   {"request_id", request.request_id},
                   {"shape", request.shape},
                   {"kernel", request.kernel}};
  if (request.run.has_value()) {
    const StageSeconds& stages = request.run->seconds;
    fields.insert(fields.end(),
                  {{"device", absl::StrCat(request.run->device)},
                   {"batch", absl::StrCat(request.run->batch_size)},
                   {"decode", InSeconds(stages.decode)},
                   {"queue", InSeconds(stages.queue)},
                   {"h2d", InSeconds(stages.h2d)},
                   {"compute", InSeconds(stages.compute)},
                   {"d2h", InSeconds(stages.d2h)},
                   {"encode", InSeconds(request.run->encode_seconds)}});
  }
  fields.insert(fields.end(),
                {{"trace_id", request.trace_id}, {"span_id", request.span_id}});
  return fields;
}

}  // namespace

bool IsRequestLogged(const absl::Status& status) {
  return !status.ok() || IsLogOn(LogLevel::kDebug);
}

void LogRequest(const EndedRequest& request, const absl::Status& status) {
  if (status.ok()) {
    if (!IsLogOn(LogLevel::kDebug)) return;
    return LogKnown(LogLevel::kDebug, "request", FieldsOf(request, status));
  }
  constexpr char kFailed[] = "request failed";
  const bool ours = status.code() == absl::StatusCode::kInternal ||
                    status.code() == absl::StatusCode::kUnknown ||
                    status.code() == absl::StatusCode::kDataLoss;
  const LogLevel level = ours ? LogLevel::kError : LogLevel::kInfo;
  if (IsLogOn(LogLevel::kDebug)) {
    return LogKnown(level, kFailed, FieldsOf(request, status));
  }
  // Apart, so that refusals cannot crowd out a fault.
  static auto* limits = new std::array<LineLimit, 2>;
  LogLimited(&(*limits)[ours], level, kFailed,
             [&] { return FieldsOf(request, status); });
}

void LogGrpc(LogLevel level, absl::string_view detail, absl::string_view at) {
  // Apart, so that debug lines cannot crowd out errors.
  static auto* limits = new std::array<LineLimit, 2>;
  LogLimited(&(*limits)[level >= LogLevel::kWarn], level, "grpc", [&] {
    return Fields{{"detail", std::string(detail)}, {"at", std::string(at)}};
  });
}

void LogFailedLaunch(absl::string_view kernel, int device,
                     const absl::Status& status) {
  static auto* limit = new LineLimit;
  LogLimited(limit, LogLevel::kError, "launch failed", [&] {
    return Fields{{"kernel", std::string(kernel)},
                  {"device", absl::StrCat(device)},
                  {"error", std::string(status.message())}};
  });
}

}  // namespace gemmd
