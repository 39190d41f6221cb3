#include "coflow/control/daemon/http_server.h"

#include <array>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <list>
#include <optional>
#include <string_view>
#include <utility>

#include "coflow/control/daemon/page.h"

namespace clustar::coflow::control {
namespace {

namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;

constexpr int kMostUnread = 64;  // pieces of a request that was refused

// "[::1]:80" -> "::1"
bool is_address_or_localhost(std::string_view host) {
  if (host.starts_with('[')) {
    host = host.substr(1, host.find(']') - 1);
  } else {
    host = host.substr(0, host.find(':'));
  }
  error_code error;
  boost::asio::ip::make_address(std::string(host), error);
  return !error || host == "localhost";
}

}  // namespace

class HttpConnection;

struct HttpServer::Shared {
  Answers answers;
  bool anyone = false;
  std::size_t connections = 0;
  std::list<HttpConnection*> idle{};  // between two requests, the longest first
};

// Keeps itself alive by the handlers that wait.
class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(Tcp::socket socket, std::shared_ptr<HttpServer::Shared> shared)
      : stream_(std::move(socket)), shared_(std::move(shared)) {
    ++shared_->connections;
  }
  ~HttpConnection() {
    --shared_->connections;
    shared_->idle.remove(this);
  }
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  void read() {
    parser_.emplace();
    parser_->header_limit(HttpServer::kMostHeader);
    stream_.expires_after(HttpServer::kTimeout);
    shared_->idle.push_back(this);
    http::async_read_header(
        stream_, buffer_, *parser_,
        [self = shared_from_this()](const error_code& error, std::size_t) { self->on_read(error); });
  }

  // It asked for nothing for longest, and another wants to.
  void give_way() {
    shared_->idle.remove(this);
    stream_.close();
  }

 private:
  void on_read(const error_code& error) {
    shared_->idle.remove(this);
    if (error == http::error::header_limit || error == http::error::buffer_overflow) {
      return refuse(http::status::request_header_fields_too_large, "a header of at most 8 KiB is allowed\n");
    }
    const bool of_http = error.category() == http::make_error_code(http::error::bad_method).category();
    if (error && (!of_http || error == http::error::end_of_stream)) return;  // closed, or too slow
    if (error) return refuse(http::status::bad_request, "this is no HTTP request\n");
    answer();
  }

  void answer() {
    const auto& request = parser_->get();
    const auto length = parser_->content_length();
    if (parser_->chunked() || (length && *length > 0)) {
      return refuse(request.method() == http::verb::get ? http::status::bad_request : http::status::method_not_allowed,
                    "a request with a body is not taken; allowed: GET, HEAD\n");
    }
    if (request.method() != http::verb::get && request.method() != http::verb::head) {
      return refuse(http::status::method_not_allowed, "allowed: GET, HEAD\n");
    }
    const auto host = request[http::field::host];
    if (!shared_->anyone && !is_address_or_localhost(std::string_view(host.data(), host.size()))) {
      return refuse(http::status::misdirected_request,
                    "ask for this page by an address or by localhost, or start the coordinator with --http-anyone\n");
    }
    const auto target = std::string_view(request.target().data(), request.target().size());
    const auto path = target.substr(0, target.find('?'));
    if (path == "/") return respond(http::status::ok, "text/html; charset=utf-8", page_html());
    if (path == "/state.json") return respond(http::status::ok, "application/json", shared_->answers.state());
    if (path == "/healthz") {
      const Health health = shared_->answers.health();
      return respond(health.good ? http::status::ok : http::status::service_unavailable, "text/plain; charset=utf-8",
                     health.text + "\n");
    }
    respond(http::status::not_found, "text/plain; charset=utf-8", "there are: / /state.json /healthz\n");
  }

  void refuse(http::status status, const char* text) {
    refused_ = true;
    respond(status, "text/plain; charset=utf-8", text);
  }

  void respond(http::status status, const char* type, std::string body) {
    const bool head = !refused_ && parser_->get().method() == http::verb::head;
    response_.emplace();
    response_->version(11);
    response_->result(status);
    response_->set(http::field::content_type, type);
    response_->set(http::field::cache_control, "no-store");
    response_->set("X-Content-Type-Options", "nosniff");
    response_->set("Referrer-Policy", "no-referrer");
    response_->set("Content-Security-Policy",
                   "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; "
                   "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
    if (status == http::status::method_not_allowed) response_->set(http::field::allow, "GET, HEAD");
    response_->keep_alive(!refused_ && parser_->get().keep_alive());
    response_->content_length(body.size());
    if (!head) response_->body() = std::move(body);
    stream_.expires_after(HttpServer::kTimeout);
    http::async_write(stream_, *response_,
                      [self = shared_from_this()](const error_code& error, std::size_t) { self->on_written(error); });
  }

  void on_written(const error_code& error) {
    if (error) return;
    if (response_->keep_alive()) return read();
    error_code ignored;
    stream_.socket().shutdown(Tcp::socket::shutdown_send, ignored);
    drain(kMostUnread);
  }

  // Closed with bytes that nobody read, the socket would take the answer with it.
  void drain(int left) {
    if (left == 0) return;
    stream_.async_read_some(boost::asio::buffer(rest_),
                            [self = shared_from_this(), left](const error_code& error, std::size_t) {
                              if (!error) self->drain(left - 1);
                            });
  }

  beast::tcp_stream stream_;
  const std::shared_ptr<HttpServer::Shared> shared_;
  beast::flat_buffer buffer_{2 * HttpServer::kMostHeader};
  std::optional<http::request_parser<http::empty_body>> parser_;
  std::optional<http::response<http::string_body>> response_;
  std::array<char, 1024> rest_{};
  bool refused_ = false;
};

HttpServer::HttpServer(boost::asio::io_context& io, Answers answers, bool anyone)
    : io_(io), shared_(std::make_shared<Shared>(Shared{std::move(answers), anyone, 0})) {}

bool HttpServer::take(int fd, const Tcp::endpoint& peer) {
  if (shared_->connections >= kMostConnections) {
    if (shared_->idle.empty()) return false;
    shared_->idle.front()->give_way();
  }
  Tcp::socket socket(io_);
  error_code error;
  socket.assign(peer.protocol(), fd, error);
  if (error) return false;
  std::make_shared<HttpConnection>(std::move(socket), shared_)->read();
  return true;
}

}  // namespace clustar::coflow::control
