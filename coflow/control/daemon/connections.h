// The connections of agents and standbys: bytes between sockets and sessions. Output is kept until flush(), so that a
// connection is written to once in a turn of the loop, however much there is to tell.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "coflow/control/core/coordinator.h"
#include "coflow/control/core/session.h"
#include "coflow/control/daemon/address.h"
#include "coflow/control/daemon/daemon_log.h"
#include "coflow/control/daemon/strangers.h"
#include "transport/base/system_clock.h"

namespace clustar::coflow::control {

class Connections {
 public:
  using Link = Coordinator::Link;
  struct Events {
    std::function<void(Link, const Message&)> message;
    std::function<void(Link)> closed;  // once, of those that said a message
  };
  struct Counters {
    std::uint64_t accepted = 0;
    std::uint64_t turned_away = 0;  // too many strangers
    std::uint64_t wrong_key = 0;    // or none, or one where this side has none
    std::uint64_t nonsense = 0;     // bytes of another protocol or version, or messages that make no sense
    std::uint64_t timed_out = 0;    // strangers that said no hello
    std::uint64_t too_slow = 0;     // that did not read what they were told
  };
  static constexpr std::size_t kMostUnsent = 1 << 20;  // bytes of one connection
  static constexpr std::size_t kMostLeaving = 256;     // that were told their last message, and have not closed yet
  static constexpr Duration kLeave = std::chrono::seconds(1);

  Connections(boost::asio::io_context& io, SessionKey key, const DaemonLog& log, Events events)
      : io_(io), key_(std::move(key)), log_(log), events_(std::move(events)), buffer_(64 * 1024) {}

  // See Listener::Take.
  bool take(int fd, const Tcp::endpoint& peer);
  void send(const Coordinator::Outgoing& outgoing);
  void flush();
  void on_timeout(TimePoint now);
  std::optional<TimePoint> next_timeout() const;
  // Of which nothing is known yet.
  void close_strangers();
  void close_all() { connections_.clear(); }

  std::size_t count() const { return connections_.size(); }
  std::size_t strangers() const { return strangers_.count(); }
  const Counters& counters() const { return counters_; }

 private:
  struct Connection {
    Connection(boost::asio::io_context& io, Session made) : socket(io), session(std::move(made)) {}
    Tcp::socket socket;
    Session session;
    Tcp::endpoint peer{};
    bool dirty = false;        // in dirty_
    bool waits_write = false;  // for room in the socket
    bool last = false;         // nothing is to be sent behind what there is
    bool leaving = false;      // all is sent: the peer closes, or its time ends
    bool known = false;        // it said a message
  };

  void wait_read(Link link, Connection& connection);
  void on_readable(Link link);
  void on_session_failed(Link link, Connection& connection);
  void mark(Link link, Connection& connection);
  void write(Link link, Connection& connection);
  void leave(Link link, Connection& connection);
  void close(Link link, const char* why);

  boost::asio::io_context& io_;
  const SessionKey key_;
  const DaemonLog& log_;
  const Events events_;
  const SystemClock clock_{};
  std::vector<std::byte> buffer_;  // of whichever connection is read
  std::unordered_map<Link, std::unique_ptr<Connection>> connections_;
  std::vector<Link> dirty_;
  Strangers strangers_;
  struct Leaving {
    TimePoint until{};
    Link link = 0;
  };
  std::deque<Leaving> leaving_;
  Link next_link_ = 1;
  Counters counters_;
};

// Of the kernel's random numbers. Nothing: there are none.
std::optional<Nonce16> fresh_nonce();
// A peer whose host is gone is noticed within 10 s.
void notice_dead_host(int fd);

}  // namespace clustar::coflow::control
