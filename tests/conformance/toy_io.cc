#include "tests/conformance/toy_io.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "transport/base/bytes.h"
#include "transport/base/system_clock.h"

namespace clustar::transport::conformance {

struct ToyIo::Registry {
  std::mutex mutex;
  std::map<std::uint32_t, std::weak_ptr<Mailbox>> mailboxes;  // by number
  static Registry& one() {
    static Registry registry;
    return registry;
  }
};

std::shared_ptr<ToyIo::Mailbox> ToyIo::open() {
  auto made = std::make_shared<Mailbox>();
  made->event = FileDescriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  Registry& all = Registry::one();
  const std::lock_guard lock(all.mutex);
  made->number = static_cast<std::uint32_t>(all.mailboxes.size() + 1);
  all.mailboxes[made->number] = made;
  return made;
}

std::shared_ptr<ToyIo::Mailbox> ToyIo::find(std::uint32_t number) {
  Registry& all = Registry::one();
  const std::lock_guard lock(all.mutex);
  const auto found = all.mailboxes.find(number);
  return found == all.mailboxes.end() ? nullptr : found->second.lock();
}

void ToyIo::Mailbox::put(std::unique_ptr<Packet> packet) {
  const std::lock_guard lock(mutex);
  if (packets.size() == kMost) return;
  packets.push_back(std::move(packet));
  ::eventfd_write(event.fd(), 1);
}

io::AddressBlob ToyIo::local_address() const {
  std::array<std::byte, 4> bytes;
  WireWriter(std::span(bytes)).store<0>(mailbox_->number);
  return io::AddressBlob::of(bytes).value();
}

Result<io::PeerId> ToyIo::add_peer(const io::AddressBlob& address, const net::Endpoint&) {
  if (address.bytes().size() != 4) return fail(ErrorCode::kRemote, "toy: the peer's address is damaged");
  const auto number = WireReader(address.bytes().first<4>()).load<std::uint32_t, 0>();
  auto mailbox = find(number);
  if (mailbox == nullptr) return fail(ErrorCode::kRemote, "toy: there is no mailbox " + std::to_string(number));
  peers_[number] = std::move(mailbox);
  return number;
}

Result<void> ToyIo::remove_peer(io::PeerId peer) {
  if (peers_.erase(peer) == 0) return fail(ErrorCode::kInvalidArgument, "toy: there is no peer");
  const std::lock_guard lock(mailbox_->mutex);
  std::erase_if(mailbox_->packets, [peer](const auto& packet) { return packet->from == peer; });
  return {};
}

Result<std::unique_ptr<io::Mr>> ToyIo::reg_mr(const gdr::MemoryRef& memory) {
  if (memory.kind != gdr::MemoryKind::kHost || (memory.address == nullptr && memory.length > 0)) {
    return fail(ErrorCode::kInvalidArgument, "toy: host memory only");
  }
  return std::make_unique<io::Mr>(memory);
}

const char* ToyIo::wrong_with(const io::TxPacket& packet) const {
  const io::MemorySlice& slice = packet.payload;
  const std::size_t header = packet.header.bytes().size();
  if (header == 0) return "toy: no header";
  if (slice.length > capabilities_.max_packet || header + slice.length > capabilities_.max_packet) {
    return "toy: too long";
  }
  if (packet.path >= capabilities_.paths || packet.traffic_class > 7) return "toy: no such path or class";
  if (!peers_.contains(packet.peer)) return "toy: no such peer";
  const std::size_t memory = slice.mr == nullptr ? 0 : slice.mr->memory().length;
  return slice.offset > memory || slice.length > memory - slice.offset ? "toy: not registered" : nullptr;
}

Result<std::size_t> ToyIo::send(std::span<const io::TxPacket> packets) {
  std::size_t taken = 0;
  for (const io::TxPacket& packet : packets) {
    if (const char* wrong = wrong_with(packet)) {
      if (taken > 0) break;
      return fail(ErrorCode::kInvalidArgument, wrong);
    }
    ++taken;
    const auto to = peers_.at(packet.peer).lock();
    if (to == nullptr) continue;  // lost with its owner
    auto copy = std::make_unique<Packet>();
    copy->from = mailbox_->number;
    const auto header = packet.header.bytes();
    copy->bytes.assign(header.begin(), header.end());
    if (packet.payload.length > 0) {
      const std::byte* from = packet.payload.mr->memory().address + packet.payload.offset;
      copy->bytes.insert(copy->bytes.end(), from, from + packet.payload.length);
    }
    copy->info = {.path = packet.path,
                  .traffic_class = packet.traffic_class,
                  .ecn = packet.ect ? io::Ecn::kEct0 : io::Ecn::kNotEct,
                  .rx_time = SystemClock().now(),
                  .header = std::span(copy->bytes).first(header.size()),
                  .payload = std::span(copy->bytes).subspan(header.size())};
    to->put(std::move(copy));
  }
  return taken;
}

Result<std::size_t> ToyIo::receive(std::span<io::RxPacket> packets) {
  const std::lock_guard lock(mailbox_->mutex);
  std::size_t filled = 0;
  while (filled < packets.size() && !mailbox_->packets.empty()) {
    auto packet = std::move(mailbox_->packets.front());
    mailbox_->packets.pop_front();
    if (!peers_.contains(packet->from)) continue;  // a stranger's
    packets[filled] = packet->info;
    packets[filled].peer = packet->from;
    packets[filled++].cookie = reinterpret_cast<std::uintptr_t>(packet.release());
  }
  eventfd_t events = 0;
  if (mailbox_->packets.empty()) ::eventfd_read(ready_, &events);
  return filled;
}

void ToyIo::release(std::span<const io::RxPacket> packets) {
  for (const io::RxPacket& packet : packets) delete reinterpret_cast<Packet*>(packet.cookie);
}

void ToyIo::wait(Duration timeout) {
  pollfd waited{ready_, POLLIN, 0};
  const timespec limit{timeout.count() / 1'000'000'000, timeout.count() % 1'000'000'000};
  ::ppoll(&waited, 1, &limit, nullptr);
}

}  // namespace clustar::transport::conformance
