#include "server/observe/http_server.h"

#include <civetweb.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/mutex.h"
#include "server/observe/logging.h"

namespace gemmd {
namespace {

// A scrape and a few probes at once; more wait in the accept queue.
constexpr const char* kThreads = "4";
// A client that does not send or read for so long is dropped.
constexpr const char* kTimeoutMs = "5000";

const char* ReasonPhrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 503:
      return "Service Unavailable";
    default:
      return "Error";
  }
}

class CivetHttpServer : public HttpServer {
 public:
  explicit CivetHttpServer(std::map<std::string, Handler> handlers)
      : handlers_(std::move(handlers)) {}

  ~CivetHttpServer() override {
    if (context_ != nullptr) Stop();
    mg_exit_library();
  }

  absl::Status Listen(const std::string& address) {
    mg_init_library(MG_FEATURES_DEFAULT);
    host_ = address.substr(0, address.rfind(':'));
    if (absl::StartsWith(host_, "[")) host_ = host_.substr(1, host_.size() - 2);
    const char* options[] = {"listening_ports",
                             address.c_str(),
                             "num_threads",
                             kThreads,
                             "request_timeout_ms",
                             kTimeoutMs,
                             "enable_keep_alive",
                             "no",
                             nullptr};
    mg_callbacks callbacks{};
    callbacks.begin_request = &CivetHttpServer::OnRequest;
    callbacks.log_message = &CivetHttpServer::OnLog;
    char text[256] = "";
    mg_init_data init{&callbacks, this, options};
    mg_error_data error{nullptr, text, sizeof(text)};
    context_ = mg_start2(&init, &error);
    MutexLock lock(&mu_);
    started_ = true;
    if (context_ == nullptr) {
      return absl::UnavailableError(absl::StrCat(
          "cannot listen for HTTP on ", address, ": ", StartError(text),
          "; stop what uses it, or name another address with --http-listen "
          "(port 0 picks a free one)"));
    }
    mg_server_port bound{};
    if (mg_get_server_ports(context_, 1, &bound) < 1) {
      return absl::InternalError(
          absl::StrCat("no HTTP port is bound for ", address));
    }
    port_ = bound.port;
    return absl::OkStatus();
  }

  int port() const override { return port_; }

 private:
  // The library's accepting thread looks for the end every 2 s, or when
  // somebody connects: so somebody does.
  void Stop() {
    std::atomic<bool> stopped{false};
    std::thread waker([this, &stopped] {
      while (!stopped.load()) {
        char error[64];
        mg_connection* connection = mg_connect_client(
            host_.c_str(), port_, /*use_ssl=*/0, error, sizeof(error));
        if (connection != nullptr) mg_close_connection(connection);
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    });
    mg_stop(context_);
    stopped.store(true);
    waker.join();
  }

  // The library says why a port is not to be had in a log line alone, on the
  // thread that calls mg_start2.
  std::string StartError(absl::string_view text) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (start_log_.find("98 (") != std::string::npos) {
      return "address already in use";
    }
    return start_log_.empty() ? std::string(text) : start_log_;
  }

  static int OnLog(const mg_connection* connection, const char* message) {
    const mg_context* context = mg_get_context(connection);
    auto* self = static_cast<CivetHttpServer*>(mg_get_user_data(context));
    if (self == nullptr || !self->KeepStartError(message)) {
      Log(LogLevel::kDebug, "http", {{"detail", message}});
    }
    return 1;  // not to stderr
  }

  bool KeepStartError(const char* message) {
    MutexLock lock(&mu_);
    if (started_) return false;
    if (start_log_.empty()) start_log_ = message;
    return true;
  }

  static int OnRequest(mg_connection* connection) {
    const mg_request_info* request = mg_get_request_info(connection);
    const auto* self = static_cast<CivetHttpServer*>(request->user_data);
    const HttpResponse response =
        self->Respond(request->request_method, request->local_uri);
    mg_printf(connection,
              "HTTP/1.1 %d %s\r\n"
              "Content-Type: %s\r\n"
              "Content-Length: %zu\r\n"
              "Cache-Control: no-store\r\n"
              "X-Content-Type-Options: nosniff\r\n"
              "Connection: close\r\n\r\n",
              response.status, ReasonPhrase(response.status),
              response.content_type.c_str(), response.body.size());
    if (std::strcmp(request->request_method, "HEAD") != 0) {
      mg_write(connection, response.body.data(), response.body.size());
    }
    return response.status;  // answered
  }

  HttpResponse Respond(absl::string_view method, absl::string_view path) const {
    if (method != "GET" && method != "HEAD") {
      return {.status = 405, .body = "only GET and HEAD are answered here\n"};
    }
    const auto handler = handlers_.find(std::string(path));
    if (handler == handlers_.end()) {
      std::string body = "no such page; there are:";
      for (const auto& [known, unused] : handlers_) {
        absl::StrAppend(&body, " ", known);
      }
      return {.status = 404, .body = body + "\n"};
    }
    return handler->second();
  }

  // Constant after Listen.
  const std::map<std::string, Handler> handlers_;
  mg_context* context_ = nullptr;
  std::string host_;
  int port_ = 0;

  Mutex mu_;
  bool started_ ABSL_GUARDED_BY(mu_) = false;
  std::string start_log_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(
    absl::string_view address, std::map<std::string, Handler> handlers) {
  auto server = std::make_unique<CivetHttpServer>(std::move(handlers));
  const absl::Status status = server->Listen(std::string(address));
  if (!status.ok()) return status;
  return server;
}

}  // namespace gemmd
