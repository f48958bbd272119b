#include "server/observe/logging.h"

#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <span>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/monotonic_time.h"
#include "server/mutex.h"

namespace gemmd {
namespace {

// The message already holds its fields, so that a pattern is all that differs.
constexpr const char* kTextPattern = "%Y-%m-%dT%H:%M:%S.%eZ %-5l %v";
constexpr const char* kJsonPattern =
    R"({"time":"%Y-%m-%dT%H:%M:%S.%eZ","level":"%l",%v})";

std::atomic<LogFormat> g_format{LogFormat::kText};

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kTrace:
      return spdlog::level::trace;
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarn:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

void SetPattern(spdlog::logger& logger, const char* pattern) {
  logger.set_formatter(std::make_unique<spdlog::pattern_formatter>(
      pattern, spdlog::pattern_time_type::utc));
}

// Never destroyed: other threads may log while the process exits.
spdlog::logger& Logger() {
  static spdlog::logger* logger = [] {
    auto* made = new spdlog::logger(
        "gemmd", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    SetPattern(*made, kTextPattern);
    made->set_level(spdlog::level::info);
    made->flush_on(spdlog::level::trace);
    return made;
  }();
  return *logger;
}

// The inside of a JSON string. Bytes of 0x80 and above pass: UTF-8 is JSON.
std::string Escape(absl::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '"':
        escaped += "\\\"";
        break;
      case '\\':
        escaped += "\\\\";
        break;
      case '\n':
        escaped += "\\n";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
          absl::StrAppendFormat(&escaped, "\\u%04x", c);
        } else {
          escaped += c;
        }
    }
  }
  return escaped;
}

std::string TextValue(absl::string_view value) {
  const std::string escaped = Escape(value);
  const bool plain = !value.empty() && escaped == value &&
                     value.find_first_of(" =") == absl::string_view::npos;
  return plain ? escaped : absl::StrCat("\"", escaped, "\"");
}

std::string Compose(absl::string_view message,
                    std::span<const LogField> fields) {
  const bool json =
      g_format.load(std::memory_order_relaxed) == LogFormat::kJson;
  std::string line = json
                         ? absl::StrCat("\"message\":\"", Escape(message), "\"")
                         : Escape(message);
  for (const LogField& field : fields) {
    if (json) {
      absl::StrAppend(&line, ",\"", field.name, "\":\"", Escape(field.value),
                      "\"");
    } else {
      absl::StrAppend(&line, " ", field.name, "=", TextValue(field.value));
    }
  }
  return line;
}

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
    if (written_ >= kFailedRequestLines) {
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

void Write(LogLevel level, absl::string_view message,
           std::span<const LogField> fields) {
  spdlog::logger& logger = Logger();
  if (!logger.should_log(ToSpdlog(level))) return;
  const std::string line = Compose(message, fields);
  logger.log(spdlog::source_loc{}, ToSpdlog(level),
             spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace

absl::Status InitLogging(absl::string_view level, absl::string_view format) {
  constexpr std::pair<absl::string_view, LogLevel> kLevels[] = {
      {"trace", LogLevel::kTrace},
      {"debug", LogLevel::kDebug},
      {"info", LogLevel::kInfo},
      {"warn", LogLevel::kWarn},
      {"error", LogLevel::kError}};
  const auto* known = kLevels;
  while (known != std::end(kLevels) && known->first != level) ++known;
  if (known == std::end(kLevels)) {
    return absl::InvalidArgumentError(
        absl::StrCat("log level \"", level,
                     "\" is none of trace, debug, info, warn, error"));
  }
  if (format != "text" && format != "json") {
    return absl::InvalidArgumentError(
        absl::StrCat("log format \"", format, "\" is none of text, json"));
  }
  const bool json = format == "json";
  g_format.store(json ? LogFormat::kJson : LogFormat::kText,
                 std::memory_order_relaxed);
  SetPattern(Logger(), json ? kJsonPattern : kTextPattern);
  SetLogLevel(known->second);
  return absl::OkStatus();
}

void SetLogLevel(LogLevel level) { Logger().set_level(ToSpdlog(level)); }

void Log(LogLevel level, absl::string_view message,
         std::initializer_list<LogField> fields) {
  Write(level, message, {fields.begin(), fields.size()});
}

void LogFailedRequest(const FailedRequest& request,
                      const absl::Status& status) {
  const bool ours = status.code() == absl::StatusCode::kInternal ||
                    status.code() == absl::StatusCode::kUnknown ||
                    status.code() == absl::StatusCode::kDataLoss;
  const LogLevel level = ours ? LogLevel::kError : LogLevel::kInfo;
  if (!Logger().should_log(ToSpdlog(level))) return;
  // Apart, so that refusals cannot crowd out a fault.
  static auto* limits = new std::array<LineLimit, 2>;
  int left_out = 0;
  if (!(*limits)[ours].Allow(MonotonicClock::now(), &left_out)) return;
  std::vector<LogField> fields = {
      {"method", std::string(request.method)},
      {"code", absl::StatusCodeToString(status.code())},
      {"error", std::string(status.message())},
      {"seconds", absl::StrFormat("%.6f", request.seconds)}};
  const auto add = [&fields](absl::string_view name, absl::string_view value) {
    if (!value.empty()) fields.push_back({name, std::string(value)});
  };
  add("client", request.client);
  add("request_id", request.request_id);
  add("shape", request.shape);
  add("kernel", request.kernel);
  if (left_out > 0) add("left_out_before", absl::StrCat(left_out));
  Write(level, "request failed", fields);
}

}  // namespace gemmd
