#include "transport/rendezvous/door.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "transport/base/file_descriptor.h"

namespace clustar::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

struct DoorHeader {
  std::uint64_t magic = 0;
  std::uint64_t length = 0;
};
constexpr std::uint64_t kDoorMagic = 0x70782d646f6f7231;
constexpr std::uint64_t kKnock = 0;  // its length: a message is longer

std::span<const std::byte> as_bytes_of(const DoorHeader& header) { return std::as_bytes(std::span(&header, 1)); }

tl::unexpected<Error> line_failed(bool timed_out) {
  return fail(ErrorCode::kRemote, timed_out ? "it does not answer" : "it closed its connection: it died or gave up");
}

}  // namespace

Result<void> DoorLine::say(std::span<const std::byte> message, Deadline deadline) const {
  const DoorHeader header{kDoorMagic, message.size()};
  bool timed_out = false;
  if (!write_all(fd_.fd(), as_bytes_of(header), deadline, timed_out) ||
      !write_all(fd_.fd(), message, deadline, timed_out)) {
    return line_failed(timed_out);
  }
  return {};
}

Result<std::vector<std::byte>> DoorLine::hear(std::size_t most, Deadline deadline) const {
  DoorHeader header;
  bool timed_out = false;
  if (!read_all(fd_.fd(), std::as_writable_bytes(std::span(&header, 1)), deadline, timed_out)) {
    return line_failed(timed_out);
  }
  if (header.magic != kDoorMagic || header.length == kKnock || header.length > most) {
    return fail(ErrorCode::kRemote, "its message makes no sense; do all ranks have the same version?");
  }
  std::vector<std::byte> message(header.length);
  if (!read_all(fd_.fd(), message, deadline, timed_out)) return line_failed(timed_out);
  return message;
}

bool DoorLine::open() const {
  std::byte one{};
  const auto got = recv(fd_.fd(), &one, 1, MSG_PEEK | MSG_DONTWAIT);
  return got < 0 && (errno == EAGAIN || errno == EINTR);
}

void DoorLine::end() { shutdown(fd_.fd(), SHUT_RDWR); }

Result<std::unique_ptr<Door>> Door::at(const std::string& address) {
  const auto where = parse_host_port(address);
  if (!where) return tl::unexpected(where.error());
  auto listener = tcp_listen(*where);
  if (listener) return std::unique_ptr<Door>(new Door(std::move(*listener)));
  for (const char* any : {"::", "0.0.0.0"}) {
    auto at_all = tcp_listen({any, where->port});
    if (at_all) return std::unique_ptr<Door>(new Door(std::move(*at_all)));
  }
  return tl::unexpected(listener.error());
}

Door::~Door() {
  shutdown(listener_.fd(), SHUT_RDWR);
  let_go(static_cast<std::uint32_t>(waiting_.size()));
  for (const Stranger& one : strangers_) shutdown(one.fd.fd(), SHUT_RDWR);
}

std::uint32_t Door::waiting() {
  hear();
  // A flood must not keep rank 0 here.
  for (std::size_t accepted = 0; accepted < kMostWaiting; ++accepted) {
    FileDescriptor fd = tcp_accept(listener_.fd());
    if (!fd) break;
    if (strangers_.size() == kMostWaiting) hear();
    // Silent strangers must not use up the descriptors.
    if (strangers_.size() == kMostWaiting) strangers_.erase(strangers_.begin());
    strangers_.push_back({std::move(fd), steady_clock::now() + kSilence, std::vector<std::byte>(sizeof(DoorHeader))});
  }
  hear();
  std::erase_if(waiting_, [](const DoorLine& one) { return !one.open(); });
  return static_cast<std::uint32_t>(waiting_.size());
}

void Door::hear() {
  for (Stranger& one : strangers_) {
    const Io state = read_some(one.fd.fd(), one.said, one.got);
    if (state == Io::kAgain && steady_clock::now() < one.until) continue;
    DoorHeader header;
    std::memcpy(&header, one.said.data(), sizeof header);
    const bool knocks = state == Io::kDone && header.magic == kDoorMagic && header.length == kKnock;
    if (knocks && waiting_.size() < kMostWaiting) waiting_.emplace_back(std::move(one.fd));
    one.fd.close();
  }
  std::erase_if(strangers_, [](const Stranger& one) { return !one.fd; });
}

void Door::let_go(std::uint32_t count) {
  for (std::uint32_t i = 0; i < count; ++i) waiting_[i].end();
  waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(count));
}

Result<DoorLine> knock(const std::string& address, Deadline deadline) {
  const auto where = parse_host_port(address);
  if (!where) return tl::unexpected(where.error());
  auto fd = tcp_connect(*where, deadline);
  if (!fd) return tl::unexpected(fd.error());
  bool timed_out = false;
  const DoorHeader header{kDoorMagic, kKnock};
  if (!write_all(fd->fd(), as_bytes_of(header), deadline, timed_out)) return line_failed(timed_out);
  return DoorLine(std::move(*fd));
}

namespace {

// At one address.
struct Knocking {
  std::string address{};
  std::optional<DoorLine> line{};
  Deadline next{};
  milliseconds pause{5};
};

// Those that are open for `some` at most. Whose line says something, if one does; lines that end or talk rubbish close.
std::optional<Answered> listen_for(std::vector<Knocking>& all, std::size_t most, milliseconds some) {
  std::vector<pollfd> entries;
  for (const Knocking& one : all) entries.push_back({one.line ? one.line->descriptor() : -1, POLLIN, 0});
  if (poll(entries.data(), entries.size(), static_cast<int>(some.count())) <= 0) return std::nullopt;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (entries[i].revents == 0) continue;
    auto message = all[i].line->hear(most, steady_clock::now() + milliseconds(1000));
    if (message) return Answered{std::move(*all[i].line), std::move(*message)};
    // Rank 0 met others there, or has left: the next one may be on its way.
    all[i].line.reset();
    all[i].next = steady_clock::now() + milliseconds(20);
  }
  return std::nullopt;
}

}  // namespace

Result<Answered> knock_at_all(const std::vector<std::string>& addresses, std::size_t most, Deadline deadline) {
  std::vector<Knocking> all;
  for (const std::string& address : addresses) {
    const auto where = parse_host_port(address);
    if (!where) return tl::unexpected(where.error());
    // Several ranks of one host have one door.
    const bool again = std::ranges::any_of(all, [&](const Knocking& one) { return one.address == address; });
    if (!again) all.push_back({.address = address});
  }
  std::string why;
  bool opened = false;
  do {
    for (Knocking& one : all) {
      const auto now = steady_clock::now();
      if (one.line || now < one.next) continue;
      auto line = knock(one.address, std::min<Deadline>(deadline, now + milliseconds(1000)));
      if (line) {
        one.line = std::move(*line);
        one.pause = milliseconds(5);
        opened = true;
      } else {
        why = line.error().message;
        // A slow one more seldom, as meanwhile nobody hears the others.
        const bool slow = steady_clock::now() - now > milliseconds(200);
        one.pause = slow ? milliseconds(5000) : std::min(one.pause * 2, milliseconds(100));
        one.next = steady_clock::now() + one.pause;
      }
      if (auto answered = listen_for(all, most, milliseconds(0))) return std::move(*answered);
    }
    Deadline next = std::min<Deadline>(deadline, steady_clock::now() + milliseconds(1000));
    for (const Knocking& one : all) {
      if (!one.line) next = std::min(next, one.next);
    }
    if (auto answered = listen_for(all, most, milliseconds(poll_timeout_ms(next)))) return std::move(*answered);
  } while (steady_clock::now() < deadline);
  if (opened) return fail(ErrorCode::kRemote, "rank 0 lets newcomers in when all ranks call resize()");
  return fail(ErrorCode::kRemote, fmt::format("nobody listens at {}: {}", fmt::join(addresses, ", "), why));
}

}  // namespace clustar::rendezvous
