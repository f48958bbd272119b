#include "server/status_pages.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/observe/build_info.h"

namespace gemmd {
namespace {

std::string IndexHtml(bool metrics) {
  return absl::StrCat(
      "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">"
      "<title>gemmd</title><h1>gemmd ",
      BuildVersion(), "</h1><p>Revision ", BuildRevision(), ", CUDA ",
      BuildCuda(), ".</p><ul>",
      metrics ? "<li><a href=\"/metrics\">/metrics</a>, for Prometheus" : "",
      "<li><a href=\"/livez\">/livez</a>, whether the process answers"
      "<li><a href=\"/readyz\">/readyz</a>, whether to send it requests"
      "</ul></html>\n");
}

}  // namespace

std::map<std::string, HttpServer::Handler> StatusPages(
    std::function<std::string()> not_ready,
    std::function<std::string()> metrics) {
  std::map<std::string, HttpServer::Handler> pages;
  pages["/"] = [index = IndexHtml(metrics != nullptr)] {
    return HttpResponse{.content_type = "text/html; charset=utf-8",
                        .body = index};
  };
  pages["/livez"] = [] { return HttpResponse{.body = "ok\n"}; };
  pages["/readyz"] = [not_ready = std::move(not_ready)] {
    const std::string reason = not_ready();
    return reason.empty() ? HttpResponse{.body = "ok\n"}
                          : HttpResponse{.status = 503, .body = reason + "\n"};
  };
  if (metrics != nullptr) {
    pages["/metrics"] = [metrics = std::move(metrics)] {
      return HttpResponse{
          .content_type = "text/plain; version=0.0.4; charset=utf-8",
          .body = metrics()};
    };
  }
  return pages;
}

}  // namespace gemmd
