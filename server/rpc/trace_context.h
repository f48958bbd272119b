// The W3C trace context of a call, so that its lines in the log can be found
// from the caller's trace.

#pragma once

#include <grpcpp/server_context.h>

#include <string>

#include "absl/strings/string_view.h"
#include "server/observe/event_log.h"

namespace gemmd {

// In lower-case hex, as in the header; both empty: there is none.
struct TraceContext {
  std::string trace_id;  // 32 digits
  std::string span_id;   // 16 digits: the caller's span
};

// Of "VERSION-TRACE-SPAN-FLAGS" as the recommendation's version 00 has it, and
// of later versions as far as it says how to read them. Anything else, zero ids
// and upper case included, is no trace context.
TraceContext ParseTraceparent(absl::string_view header);

// Adds that of the call's metadata `traceparent`. One that is malformed, or
// there twice, is ignored, as the recommendation wants it, and no id is made
// up: this server writes logs, not spans.
void AddTraceContext(const grpc::ServerContext& context, EndedRequest* request);

}  // namespace gemmd
