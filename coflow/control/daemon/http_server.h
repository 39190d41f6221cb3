// The page and what it asks for: GET over HTTP/1.1, few clients, small requests.
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <string>

#include "coflow/control/daemon/address.h"
#include "transport/base/time.h"

namespace clustar::coflow::control {

struct Health {
  bool good = false;
  std::string text{};
};

class HttpServer {
 public:
  static constexpr std::size_t kMostConnections = 64;
  static constexpr std::size_t kMostHeader = 8 * 1024;
  static constexpr std::chrono::seconds kTimeout{5};  // of a request, of an answer, and between two

  struct Answers {
    std::function<std::string()> state;  // of /state.json
    std::function<Health()> health;      // of /healthz
  };

  // `anyone`: requests may name any host. Otherwise a name that is no address, and not localhost, is refused: a web
  // site whose name leads to this host would read the page in its visitor's browser (DNS rebinding).
  HttpServer(boost::asio::io_context& io, Answers answers, bool anyone);

  // See Listener::Take.
  bool take(int fd, const Tcp::endpoint& peer);

  struct Shared;  // with the connections, which may outlive the server

 private:
  boost::asio::io_context& io_;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace clustar::coflow::control
