// A standby's connection to its primary, made again whenever it is lost.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coflow/control/core/session.h"
#include "coflow/control/daemon/address.h"
#include "coflow/control/daemon/daemon_log.h"
#include "transport/base/system_clock.h"

namespace clustar::coflow::control {

class PrimaryLink {
 public:
  struct Options {
    std::string name{};                      // as it was given
    std::vector<Tcp::endpoint> endpoints{};  // tried in turn
    Duration interval{0};                    // between attempts
    Duration lease{0};                       // a primary that is silent for so long is lost
    std::string host{};                      // of this one, for people
  };
  // What this standby ordered itself, if it is in charge: a primary that comes back goes on above it.
  using Seen = std::function<Version()>;
  // It said something, of its term.
  using Heard = std::function<void(std::uint64_t term)>;

  PrimaryLink(boost::asio::io_context& io, SessionKey key, Options options, const DaemonLog& log, Seen seen,
              Heard heard);

  void on_timeout(TimePoint now);
  TimePoint next_timeout() const { return deadline_; }
  void flush();
  void close();
  // It was heard within the lease.
  bool alive() const { return state_ == State::kOpen && welcome_; }

 private:
  enum class State : std::uint8_t { kWaiting, kConnecting, kOpen };

  void start(TimePoint now);
  void on_connected();
  void wait_read();
  void on_readable();
  void on_message(const Message& message);
  void lose(const std::string& why);

  boost::asio::io_context& io_;
  const SessionKey key_;
  const Options options_;
  const DaemonLog& log_;
  const Seen seen_;
  const Heard heard_;
  const SystemClock clock_{};
  const std::uint64_t agent_;
  State state_ = State::kWaiting;
  std::size_t next_endpoint_ = 0;
  std::uint64_t attempt_ = 0;  // handlers of earlier ones are stale
  TimePoint deadline_;         // of the next attempt, of this one, or of the next word
  bool welcome_ = false;
  bool writes_ = false;       // waits for room in the socket
  std::string complained_{};  // once, until it is heard again
  std::optional<Tcp::socket> socket_;
  std::optional<Session> session_;
};

}  // namespace clustar::coflow::control
