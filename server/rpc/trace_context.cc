#include "server/rpc/trace_context.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

namespace gemmd {
namespace {

constexpr absl::string_view kKey = "traceparent";
// "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
constexpr size_t kTrace = 3, kTraceDigits = 32;
constexpr size_t kSpan = 36, kSpanDigits = 16;
constexpr size_t kFlags = 53, kFlagsDigits = 2;
constexpr size_t kSize = kFlags + kFlagsDigits;

bool IsHex(absl::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
  });
}

bool IsId(absl::string_view text) {
  return IsHex(text) && text.find_first_not_of('0') != absl::string_view::npos;
}

}  // namespace

TraceContext ParseTraceparent(absl::string_view header) {
  if (header.size() < kSize) return {};
  const absl::string_view version = header.substr(0, 2);
  const absl::string_view trace_id = header.substr(kTrace, kTraceDigits);
  const absl::string_view span_id = header.substr(kSpan, kSpanDigits);
  const bool whole =
      header.size() == kSize || (version != "00" && header[kSize] == '-');
  const bool valid =
      whole && IsHex(version) && version != "ff" && header[kTrace - 1] == '-' &&
      IsId(trace_id) && header[kSpan - 1] == '-' && IsId(span_id) &&
      header[kFlags - 1] == '-' && IsHex(header.substr(kFlags, kFlagsDigits));
  if (!valid) return {};
  return {.trace_id = std::string(trace_id), .span_id = std::string(span_id)};
}

void AddTraceContext(const grpc::ServerContext& context,
                     EndedRequest* request) {
  const auto [begin, end] = context.client_metadata().equal_range(
      grpc::string_ref(kKey.data(), kKey.size()));
  if (begin == end || std::next(begin) != end) return;
  TraceContext trace =
      ParseTraceparent({begin->second.data(), begin->second.size()});
  request->trace_id = std::move(trace.trace_id);
  request->span_id = std::move(trace.span_id);
}

}  // namespace gemmd
