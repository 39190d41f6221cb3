#include "transport/rendezvous/door.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

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
  if (!write_all(fd_.get(), as_bytes_of(header), deadline, timed_out) ||
      !write_all(fd_.get(), message, deadline, timed_out)) {
    return line_failed(timed_out);
  }
  return {};
}

Result<std::vector<std::byte>> DoorLine::hear(std::size_t most, Deadline deadline) const {
  DoorHeader header;
  bool timed_out = false;
  if (!read_all(fd_.get(), std::as_writable_bytes(std::span(&header, 1)), deadline, timed_out)) {
    return line_failed(timed_out);
  }
  if (header.magic != kDoorMagic || header.length == kKnock || header.length > most) {
    return fail(ErrorCode::kRemote, "its message makes no sense; do all ranks have the same version?");
  }
  std::vector<std::byte> message(header.length);
  if (!read_all(fd_.get(), message, deadline, timed_out)) return line_failed(timed_out);
  return message;
}

bool DoorLine::open() const {
  std::byte one{};
  const auto got = recv(fd_.get(), &one, 1, MSG_PEEK | MSG_DONTWAIT);
  return got < 0 && (errno == EAGAIN || errno == EINTR);
}

void DoorLine::end() { shutdown(fd_.get(), SHUT_RDWR); }

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
  shutdown(listener_.get(), SHUT_RDWR);
  let_go(static_cast<std::uint32_t>(waiting_.size()));
  for (const Stranger& one : strangers_) shutdown(one.fd.get(), SHUT_RDWR);
}

std::uint32_t Door::waiting() {
  while (Fd fd = tcp_accept(listener_.get())) {
    // Silent strangers must not use up the descriptors.
    if (strangers_.size() == kMostWaiting) strangers_.erase(strangers_.begin());
    strangers_.push_back({std::move(fd), steady_clock::now() + kSilence, std::vector<std::byte>(sizeof(DoorHeader))});
  }
  for (Stranger& one : strangers_) {
    const Io state = read_some(one.fd.get(), one.said, one.got);
    if (state == Io::kAgain && steady_clock::now() < one.until) continue;
    DoorHeader header;
    std::memcpy(&header, one.said.data(), sizeof header);
    const bool knocks = state == Io::kDone && header.magic == kDoorMagic && header.length == kKnock;
    if (knocks && waiting_.size() < kMostWaiting) waiting_.emplace_back(std::move(one.fd));
    one.fd.reset();
  }
  std::erase_if(strangers_, [](const Stranger& one) { return !one.fd; });
  std::erase_if(waiting_, [](const DoorLine& one) { return !one.open(); });
  return static_cast<std::uint32_t>(waiting_.size());
}

void Door::let_go(std::uint32_t count) {
  for (std::uint32_t i = 0; i < count; ++i) waiting_[i].end();
  waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(count));
}

Result<DoorLine> knock(const std::vector<std::string>& addresses, Deadline deadline) {
  milliseconds pause(5);
  for (;;) {
    for (const std::string& address : addresses) {
      const auto where = parse_host_port(address);
      if (!where) return tl::unexpected(where.error());
      // A host that swallows packets must not use up the time for those behind it.
      const Deadline soon = std::min<Deadline>(deadline, steady_clock::now() + std::chrono::seconds(3));
      auto fd = tcp_connect(*where, soon);
      if (!fd && fd.error().code != ErrorCode::kRemote) return tl::unexpected(fd.error());
      bool timed_out = false;
      const DoorHeader header{kDoorMagic, kKnock};
      if (fd && write_all(fd->get(), as_bytes_of(header), soon, timed_out)) return DoorLine(std::move(*fd));
    }
    if (steady_clock::now() >= deadline) {
      return fail(ErrorCode::kRemote, fmt::format("nobody listens at {}", fmt::join(addresses, ", ")));
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, milliseconds(100));
  }
}

}  // namespace clustar::rendezvous
