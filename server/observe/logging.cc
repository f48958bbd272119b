#include "server/observe/logging.h"

#include <spdlog/async.h>
#include <spdlog/async_logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <span>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "server/monotonic_time.h"

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

// Lines that wait for stderr; past them the oldest are lost.
constexpr size_t kWaitingLines = 8192;

// Counts what it has written, which spdlog does not.
class CountedStderr final : public spdlog::sinks::stderr_sink_mt {
 public:
  void log(const spdlog::details::log_msg& message) override {
    spdlog::sinks::stderr_sink_mt::log(message);
    written_.fetch_add(1, std::memory_order_release);
  }
  size_t written() const { return written_.load(std::memory_order_acquire); }

 private:
  std::atomic<size_t> written_{0};
};

// A logger with one thread of its own that writes, so that nobody else waits
// for stderr.
struct Writer {
  Writer() {
    SetPattern(kTextPattern);
    logger->set_level(spdlog::level::info);
  }

  void SetPattern(const char* pattern) {
    logger->set_formatter(std::make_unique<spdlog::pattern_formatter>(
        pattern, spdlog::pattern_time_type::utc));
  }

  bool Idle() const {
    return sink->written() + pool->overrun_counter() >= posted.load();
  }

  const std::shared_ptr<CountedStderr> sink = std::make_shared<CountedStderr>();
  const std::shared_ptr<spdlog::details::thread_pool> pool =
      std::make_shared<spdlog::details::thread_pool>(kWaitingLines, 1);
  const std::shared_ptr<spdlog::async_logger> logger =
      std::make_shared<spdlog::async_logger>(
          "gemmd", sink, pool, spdlog::async_overflow_policy::overrun_oldest);
  std::atomic<size_t> posted{0};
  std::atomic<size_t> lost_told{0};
};

// Never destroyed: other threads may log while the process exits.
Writer& TheWriter() {
  static auto* writer = [] {
    std::atexit([] { FlushLog(); });
    return new Writer;
  }();
  return *writer;
}

// The inside of a JSON string.
std::string Escape(absl::string_view text) {
  return OneLine(absl::StrReplaceAll(text, {{"\"", "\\\""}, {"\\", "\\\\"}}));
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

void Post(LogLevel level, absl::string_view message,
          std::span<const LogField> fields) {
  Writer& writer = TheWriter();
  const std::string line = Compose(message, fields);
  writer.posted.fetch_add(1);
  writer.logger->log(spdlog::source_loc{}, ToSpdlog(level),
                     spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace

// Bytes of 0x80 and above pass: UTF-8.
std::string OneLine(absl::string_view text) {
  std::string line;
  for (const char c : text) {
    if (c == '\n') {
      line += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      absl::StrAppendFormat(&line, "\\u%04x", c);
    } else {
      line += c;
    }
  }
  return line;
}

absl::StatusOr<LogLevel> ParseLogLevel(absl::string_view level) {
  constexpr std::pair<absl::string_view, LogLevel> kLevels[] = {
      {"trace", LogLevel::kTrace},
      {"debug", LogLevel::kDebug},
      {"info", LogLevel::kInfo},
      {"warn", LogLevel::kWarn},
      {"error", LogLevel::kError}};
  for (const auto& [name, known] : kLevels) {
    if (name == level) return known;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "log level \"", level, "\" is none of trace, debug, info, warn, error"));
}

absl::Status InitLogging(absl::string_view level, absl::string_view format) {
  const absl::StatusOr<LogLevel> known = ParseLogLevel(level);
  if (!known.ok()) return known.status();
  if (format != "text" && format != "json") {
    return absl::InvalidArgumentError(
        absl::StrCat("log format \"", format, "\" is none of text, json"));
  }
  const bool json = format == "json";
  g_format.store(json ? LogFormat::kJson : LogFormat::kText,
                 std::memory_order_relaxed);
  TheWriter().SetPattern(json ? kJsonPattern : kTextPattern);
  SetLogLevel(*known);
  return absl::OkStatus();
}

void SetLogLevel(LogLevel level) {
  TheWriter().logger->set_level(ToSpdlog(level));
}

bool FlushLog(std::chrono::milliseconds timeout) {
  const MonotonicTime deadline = MonotonicClock::now() + timeout;
  while (!TheWriter().Idle()) {
    if (MonotonicClock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

bool IsLogOn(LogLevel level) {
  return TheWriter().logger->should_log(ToSpdlog(level));
}

void Log(LogLevel level, absl::string_view message,
         std::span<const LogField> fields) {
  if (!IsLogOn(level)) return;
  Writer& writer = TheWriter();
  const size_t lost = writer.pool->overrun_counter();
  if (const size_t told = writer.lost_told.exchange(lost); lost > told) {
    const LogField count{"lines", absl::StrCat(lost - told)};
    Post(LogLevel::kWarn, "log lines lost: stderr was not read", {&count, 1});
  }
  Post(level, message, fields);
}

void Log(LogLevel level, absl::string_view message,
         std::initializer_list<LogField> fields) {
  Log(level, message, std::span(fields.begin(), fields.size()));
}

}  // namespace gemmd
