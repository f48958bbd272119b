// What the HTTP port answers: metrics, probes, and an index for people.

#pragma once

#include <functional>
#include <map>
#include <string>

#include "server/observe/http_server.h"
#include "server/observe/metrics.h"

namespace gemmd {

// The pages by path. `not_ready` tells why requests should go elsewhere
// ("warming up", "draining"); empty when the server is ready. /livez says that
// the process answers, whatever its load or state. /metrics is there if metrics
// are on.
//
// `metrics` and what `not_ready` holds outlive the server that is given these.
std::map<std::string, HttpServer::Handler> StatusPages(
    const Metrics* metrics, std::function<std::string()> not_ready);

}  // namespace gemmd
