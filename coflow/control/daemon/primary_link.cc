#include "coflow/control/daemon/primary_link.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <cstring>
#include <utility>
#include <variant>

#include "coflow/control/daemon/connections.h"

namespace clustar::coflow::control {
namespace {

using boost::system::error_code;

// A host that does not answer must not take a lease for each attempt, nor one across an ocean fail each time.
constexpr Duration kMostConnect = std::chrono::seconds(2);

std::uint64_t random_number() {
  std::uint64_t number = 1;
  if (const auto nonce = fresh_nonce()) std::memcpy(&number, nonce->data(), sizeof number);
  return number;
}

}  // namespace

PrimaryLink::PrimaryLink(boost::asio::io_context& io, SessionKey key, Options options, const DaemonLog& log, Seen seen,
                         Heard heard)
    : io_(io),
      key_(std::move(key)),
      options_(std::move(options)),
      log_(log),
      seen_(std::move(seen)),
      heard_(std::move(heard)),
      agent_(random_number()),
      deadline_(clock_.now()) {}

void PrimaryLink::on_timeout(TimePoint now) {
  if (now < deadline_) return;
  switch (state_) {
    case State::kWaiting: return start(now);
    case State::kConnecting: return lose("it does not answer");
    case State::kOpen: return lose("it is silent");
  }
}

void PrimaryLink::start(TimePoint now) {
  const auto nonce = fresh_nonce();
  const Tcp::endpoint& endpoint = options_.endpoints[next_endpoint_++ % options_.endpoints.size()];
  socket_.emplace(io_);
  error_code error;
  socket_->open(endpoint.protocol(), error);
  if (!error) socket_->non_blocking(true, error);
  state_ = State::kConnecting;
  if (!nonce || error) return lose(error ? error.message() : "there are no random numbers");
  notice_dead_host(socket_->native_handle());
  session_.emplace(Session::Side::kAgent, key_, *nonce);
  deadline_ = now + std::max(kMostConnect, options_.interval);
  socket_->async_connect(endpoint, [this, attempt = ++attempt_](const error_code& failed) {
    if (attempt != attempt_ || state_ != State::kConnecting) return;
    if (failed) return lose(failed.message());
    on_connected();
  });
}

void PrimaryLink::on_connected() {
  state_ = State::kOpen;
  welcome_ = false;
  writes_ = false;
  deadline_ = clock_.now() + std::max(kMostConnect, options_.lease);
  Hello hello;
  hello.role = Role::kStandby;
  hello.agent = agent_;
  hello.seen = seen_();
  hello.host = options_.host;
  session_->send(hello);
  wait_read();
  flush();
}

void PrimaryLink::flush() {
  if (state_ != State::kOpen || writes_ || session_->to_send().empty()) return;
  const auto bytes = session_->to_send();
  error_code error;
  const std::size_t sent = socket_->write_some(boost::asio::buffer(bytes.data(), bytes.size()), error);
  if (error && error != boost::asio::error::would_block) return lose(error.message());
  session_->sent(sent);
  if (session_->to_send().empty()) return;
  writes_ = true;
  socket_->async_wait(Tcp::socket::wait_write, [this, attempt = attempt_](const error_code& failed) {
    if (failed || attempt != attempt_) return;
    writes_ = false;
    flush();
  });
}

void PrimaryLink::wait_read() {
  socket_->async_wait(Tcp::socket::wait_read, [this, attempt = attempt_](const error_code& error) {
    if (!error && attempt == attempt_ && state_ == State::kOpen) on_readable();
  });
}

void PrimaryLink::on_readable() {
  std::array<std::byte, 4096> bytes;
  error_code error;
  const std::size_t got = socket_->read_some(boost::asio::buffer(bytes), error);
  if (error && error != boost::asio::error::would_block) return lose("it closed the connection");
  const bool good = error || session_->on_bytes(std::span(bytes).first(got));
  while (state_ == State::kOpen) {
    const auto message = session_->next();
    if (!message) break;
    on_message(*message);
  }
  if (state_ != State::kOpen) return;
  if (!good) return lose(session_->failure());
  flush();
  if (state_ == State::kOpen) wait_read();
}

void PrimaryLink::on_message(const Message& message) {
  if (const auto* refusal = std::get_if<Refusal>(&message)) {
    // It is alive, and stands by for somebody itself: two that are in charge would be worse than none.
    if (refusal->reason == RefusalReason::kStandby) heard_(0);
    return lose(fmt::format("it refuses: {} {}", to_string(refusal->reason), printable(refusal->text)));
  }
  const auto* welcome = std::get_if<Welcome>(&message);
  const auto* order = std::get_if<Order>(&message);
  if (welcome == nullptr && order == nullptr) return;
  if (!std::exchange(welcome_, true)) log_.info(fmt::format("the primary {} is there", options_.name));
  complained_.clear();
  deadline_ = clock_.now() + options_.lease;
  heard_(welcome != nullptr ? welcome->term : order->version.term);
}

void PrimaryLink::lose(const std::string& why) {
  if (why != std::exchange(complained_, why)) log_.warn(fmt::format("the primary {}: {}", options_.name, why));
  state_ = State::kWaiting;
  welcome_ = false;
  ++attempt_;
  socket_.reset();
  deadline_ = clock_.now() + options_.interval;
}

void PrimaryLink::close() {
  ++attempt_;
  state_ = State::kWaiting;
  deadline_ = TimePoint::max();
  socket_.reset();
}

}  // namespace clustar::coflow::control
