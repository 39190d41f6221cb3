#include "libfabric_shim/provider/reception.h"

#include <algorithm>

#include "libfabric_shim/provider/address.h"

namespace clustar::libfabric_shim::provider {

namespace net = transport::net;

Result<Reception> Reception::open(const net::Address& address, const transport::Handle& handle,
                                  std::uint32_t eager_bytes, const Clock& clock) {
  auto listening = listen_at(address);
  if (!listening) return tl::unexpected(listening.error());
  Reception made(std::move(*listening), clock);
  Answer answer{.eager_bytes = eager_bytes};
  std::copy(handle.begin(), handle.end(), answer.handle.begin());
  answer.serialize_to(made.answer_);
  return made;
}

Result<void> Reception::progress() {
  for (;;) {
    net::Address peer;
    auto socket = net::accept_from(listening_, &peer);
    if (!socket) return tl::unexpected(socket.error());
    if (!*socket) break;
    if (guests_.size() == kMaxGuests) guests_.erase(guests_.begin());
    guests_.push_back({std::move(*socket), clock_->now() + kPatience});
  }
  std::erase_if(guests_, [this](Guest& guest) { return serve(guest); });
  return {};
}

bool Reception::serve(Guest& guest) const {
  const auto got = net::read_some(guest.socket.fd(), std::span(guest.question).subspan(guest.heard));
  if (got.kind == net::IoResult::Kind::kWouldBlock) return clock_->now() > guest.until;
  if (got.kind != net::IoResult::Kind::kBytes) return true;
  guest.heard += got.bytes;
  if (guest.heard < guest.question.size()) return false;
  // It fits the socket's empty buffer.
  if (Question::parse(guest.question)) (void)net::write_some(guest.socket.fd(), std::span<const std::byte>(answer_));
  return true;
}

}  // namespace clustar::libfabric_shim::provider
