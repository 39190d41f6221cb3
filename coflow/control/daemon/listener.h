// A listening socket that a flood of connections neither blocks nor exhausts.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <string>

#include "coflow/control/daemon/address.h"
#include "transport/base/file_descriptor.h"
#include "transport/base/result.h"

namespace clustar::coflow::control {

class Listener {
 public:
  // Takes the connected, non-blocking socket, or says no: then it is closed here.
  using Take = std::function<bool(int fd, const Tcp::endpoint& peer)>;
  // Others get their turn after so many.
  static constexpr int kMostInARow = 64;

  // `option` is for the error.
  static Result<std::unique_ptr<Listener>> open(boost::asio::io_context& io, const Tcp::endpoint& endpoint,
                                                const std::string& option, Take take);
  // Who is in the backlog is sent away.
  void close();
  const Tcp::endpoint& local() const { return local_; }
  // Connections that ended before they were accepted, or for which there was no descriptor or memory.
  std::uint64_t failures() const { return failures_; }

 private:
  Listener(boost::asio::io_context& io, Take take) : acceptor_(io), pause_(io), take_(std::move(take)) {}

  void wait();
  void accept();
  // Whether there may be more.
  bool accept_one();

  Tcp::acceptor acceptor_;
  boost::asio::steady_timer pause_;
  const Take take_;
  Tcp::endpoint local_;
  // Given up for a moment where there is no other one: a connection that is accepted and closed does not make the
  // backlog readable for good.
  FileDescriptor spare_;
  std::uint64_t failures_ = 0;
};

}  // namespace clustar::coflow::control
