// What the HTTP port answers: metrics, probes, and an index for people.

#pragma once

#include <functional>
#include <map>
#include <string>

#include "server/observe/http_server.h"

namespace gemmd {

// The pages by path. `not_ready` tells why requests should go elsewhere
// ("starting", "draining"); empty when the server is ready. /livez says that
// the process answers, whatever its load or state. `metrics` renders /metrics;
// empty: there is no such page.
std::map<std::string, HttpServer::Handler> StatusPages(
    std::function<std::string()> not_ready,
    std::function<std::string()> metrics);

}  // namespace gemmd
