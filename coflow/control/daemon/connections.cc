#include "coflow/control/daemon/connections.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <utility>
#include <variant>

namespace clustar::coflow::control {
namespace {

using boost::system::error_code;

bool would_block(const error_code& error) {
  return error == boost::asio::error::would_block || error == boost::asio::error::try_again;
}

}  // namespace

std::optional<Nonce16> fresh_nonce() {
  Nonce16 nonce;
  if (::getrandom(nonce.data(), nonce.size(), 0) != static_cast<ssize_t>(nonce.size())) return std::nullopt;
  return nonce;
}

void notice_dead_host(int fd) {
  const auto set = [&](int level, int name, int value) { setsockopt(fd, level, name, &value, sizeof value); };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 4);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 2);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 10'000);
}

bool Connections::take(int fd, const Tcp::endpoint& peer) {
  const Link link = next_link_++;
  const auto nonce = fresh_nonce();
  const auto entry = nonce ? strangers_.admit(link, source_of(peer.address()), clock_.now()) : Strangers::Entry{};
  if (!entry.admitted) {
    ++counters_.turned_away;
    return false;
  }
  if (entry.instead) {
    ++counters_.turned_away;
    close(*entry.instead, "it said no hello, and others wait");
  }
  auto made = std::make_unique<Connection>(io_, Session(Session::Side::kCoordinator, key_, *nonce));
  error_code error;
  made->socket.assign(peer.protocol(), fd, error);
  if (error) {
    strangers_.remove(link);
    return false;
  }
  made->socket.non_blocking(true, error);
  made->peer = peer;
  notice_dead_host(fd);
  ++counters_.accepted;
  Connection& connection = *connections_.emplace(link, std::move(made)).first->second;
  if (log_.debugs()) log_.debug(fmt::format("connection {} from {}", link, to_text(peer)));
  wait_read(link, connection);
  return true;
}

void Connections::wait_read(Link link, Connection& connection) {
  connection.socket.async_wait(Tcp::socket::wait_read, [this, link](const error_code& error) {
    if (!error) on_readable(link);
  });
}

void Connections::on_readable(Link link) {
  const auto found = connections_.find(link);
  if (found == connections_.end()) return;
  Connection& connection = *found->second;
  error_code error;
  const std::size_t got = connection.socket.read_some(boost::asio::buffer(buffer_), error);
  if (error && !would_block(error)) return close(link, "its peer closed it");
  // What is said behind its last message counts for nothing.
  if (!error && !connection.last) {
    const bool good = connection.session.on_bytes(std::span(buffer_).first(got));
    while (const auto message = connection.session.next()) {
      if (!std::exchange(connection.known, true)) strangers_.remove(link);
      events_.message(link, *message);
      // It is forgotten, so that a peer that stays all the same must not count for nothing.
      if (std::holds_alternative<Bye>(*message)) connection.last = true;
    }
    if (!good) return on_session_failed(link, connection);
    if (connection.last || !connection.session.to_send().empty()) mark(link, connection);
  }
  wait_read(link, connection);
}

void Connections::on_session_failed(Link link, Connection& connection) {
  const Session& session = connection.session;
  ++(session.wrong_key() ? counters_.wrong_key : counters_.nonsense);
  if (log_.debugs()) {
    log_.debug(fmt::format("connection {} from {}: {}", link, to_text(connection.peer), session.failure()));
  }
  // Its proof, most of all: then the peer can say that the key is another one.
  error_code ignored;
  const auto rest = session.to_send();
  if (!rest.empty()) connection.socket.write_some(boost::asio::buffer(rest.data(), rest.size()), ignored);
  close(link, "its session failed");
}

void Connections::mark(Link link, Connection& connection) {
  if (!std::exchange(connection.dirty, true)) dirty_.push_back(link);
}

void Connections::send(const Coordinator::Outgoing& outgoing) {
  const auto found = connections_.find(outgoing.link);
  if (found == connections_.end() || found->second->last) return;
  Connection& connection = *found->second;
  connection.session.send(outgoing.message);
  connection.last = outgoing.last;
  mark(outgoing.link, connection);
}

void Connections::flush() {
  // Nothing below marks a connection.
  for (const Link link : dirty_) {
    const auto found = connections_.find(link);
    if (found == connections_.end()) continue;
    found->second->dirty = false;
    write(link, *found->second);
  }
  dirty_.clear();
}

void Connections::write(Link link, Connection& connection) {
  const auto bytes = connection.session.to_send();
  if (!connection.waits_write && !bytes.empty()) {
    error_code error;
    const std::size_t sent = connection.socket.write_some(boost::asio::buffer(bytes.data(), bytes.size()), error);
    if (error && !would_block(error)) return close(link, "its peer is gone");
    connection.session.sent(sent);
  }
  const std::size_t left = connection.session.to_send().size();
  if (left == 0) {
    if (connection.last && !connection.leaving) leave(link, connection);
    return;
  }
  if (left > kMostUnsent) {
    ++counters_.too_slow;
    return close(link, "it does not read what it is told");
  }
  if (std::exchange(connection.waits_write, true)) return;
  connection.socket.async_wait(Tcp::socket::wait_write, [this, link](const error_code& error) {
    const auto found = connections_.find(link);
    if (error || found == connections_.end()) return;
    found->second->waits_write = false;
    mark(link, *found->second);
  });
}

// Closed at once, a socket with bytes that nobody read takes what was sent with it.
void Connections::leave(Link link, Connection& connection) {
  if (leaving_.size() >= kMostLeaving) return close(link, "it was told its last message");
  connection.leaving = true;
  error_code ignored;
  connection.socket.shutdown(Tcp::socket::shutdown_send, ignored);
  leaving_.push_back({clock_.now() + kLeave, link});
}

void Connections::close(Link link, const char* why) {
  const auto found = connections_.find(link);
  if (found == connections_.end()) return;
  if (log_.debugs()) log_.debug(fmt::format("connection {} ends: {}", link, why));
  const bool known = found->second->known;
  connections_.erase(found);
  strangers_.remove(link);
  if (known) events_.closed(link);
}

void Connections::close_strangers() {
  std::vector<Link> strangers;
  for (const auto& [link, connection] : connections_) {
    if (!connection->known) strangers.push_back(link);
  }
  for (const Link link : strangers) close(link, "the coordinator ends");
}

void Connections::on_timeout(TimePoint now) {
  while (const auto link = strangers_.expired(now)) {
    ++counters_.timed_out;
    close(*link, "it said no hello in time");
  }
  while (!leaving_.empty() && leaving_.front().until <= now) {
    close(leaving_.front().link, "it was told its last message");
    leaving_.pop_front();
  }
}

std::optional<TimePoint> Connections::next_timeout() const {
  const auto strangers = strangers_.next_timeout();
  if (leaving_.empty()) return strangers;
  return strangers ? std::min(*strangers, leaving_.front().until) : leaving_.front().until;
}

}  // namespace clustar::coflow::control
