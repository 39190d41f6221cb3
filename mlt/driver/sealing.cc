#include "mlt/driver/sealing.h"

#include <algorithm>
#include <cstring>

namespace clustar::mlt::driver {

namespace io = transport::io;

static_assert(kMaxHeader + kSealBytes <= io::Header::kMax);

Sealing::Sealing(const Protection& protection, std::size_t segment, std::size_t pending, std::size_t in_flight)
    : protection_(protection),
      encrypts_(protection.mode() == PskMode::kEncrypt),
      segment_(segment),
      in_flight_(in_flight) {
  if (!encrypts_) return;
  sealed_.resize(segment * (pending + in_flight));
  slots_.resize(pending + in_flight);
  received_.resize(segment);
}

Result<std::unique_ptr<Sealing>> Sealing::create(const Protection& protection, io::PacketIo& io, std::size_t segment,
                                                 std::size_t pending) {
  const std::size_t in_flight = io.capabilities().copies ? 0 : io.capabilities().in_flight;
  std::unique_ptr<Sealing> made(new Sealing(protection, segment, pending, in_flight));
  if (!made->encrypts_) return made;
  auto mr = io.reg_mr(gdr::MemoryRef::host(made->sealed_.data(), made->sealed_.size()));
  if (!mr) return tl::unexpected(mr.error());
  made->sealed_mr_ = std::move(*mr);
  return made;
}

void Sealing::add(Endpoint::ConnectionId id, Endpoint::End end, const Session& session, std::uint8_t paths) {
  if (id >= seals_.size()) seals_.resize(id + 1);
  const auto side = end == Endpoint::End::kSends ? Seal::Side::kSender : Seal::Side::kReceiver;
  seals_[id] = std::make_unique<Seal>(protection_.crypto(), session, side, paths);
}

void Sealing::remove(Endpoint::ConnectionId id) { seals_[id].reset(); }

void Sealing::taken(std::span<const io::TxPacket> packets) {
  for (const io::TxPacket& packet : packets) {
    ++taken_;
    if (packet.payload.mr == nullptr || packet.payload.mr != sealed_mr_.get()) continue;
    slots_[packet.payload.offset / segment_] = {false, taken_ + in_flight_};
  }
}

std::optional<std::size_t> Sealing::find_free() {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const std::size_t slot = (next_slot_ + i) % slots_.size();
    if (!slots_[slot].pending && slots_[slot].free_at <= taken_) return slot;
  }
  return std::nullopt;
}

// Packets leave in order, so the next slot is the oldest; but a message that ended takes its own with it: who holds a
// slot is looked up when all seem to be held.
std::size_t Sealing::take_slot(std::span<const io::TxPacket> pending) {
  auto found = find_free();
  if (!found) {
    for (Slot& slot : slots_) slot.pending = false;
    for (const io::TxPacket& packet : pending) {
      if (packet.payload.mr == sealed_mr_.get()) slots_[packet.payload.offset / segment_].pending = true;
    }
    found = find_free();  // fewer are pending or in flight than there are slots
  }
  slots_[*found].pending = true;
  next_slot_ = (*found + 1) % slots_.size();
  return *found;
}

bool Sealing::seal(Endpoint::ConnectionId id, io::TxPacket& packet, std::span<const io::TxPacket> pending) {
  const auto bare = packet.header.bytes();
  io::Header header(bare.size() + kSealBytes);
  std::memcpy(header.bytes().data(), bare.data(), bare.size());
  packet.header = header;
  std::span<const std::byte> payload;
  if (packet.payload.length > 0) {
    payload = {packet.payload.mr->memory().address + packet.payload.offset, packet.payload.length};
  }
  std::byte* cipher = nullptr;
  if (encrypts_ && !payload.empty()) {
    const std::size_t offset = take_slot(pending) * segment_;
    cipher = sealed_.data() + offset;
    packet.payload = {sealed_mr_.get(), offset, payload.size()};
  }
  // Without encryption the device reads payload where it lies, and one that does not copy reads it later: a needless
  // repetition may leave after its request's end, with other bytes under this tag. Its receiver counts it as forged.
  return seals_[id]->seal(packet.path, packet.header.bytes(), payload, cipher);
}

bool Sealing::count(Seal::Opened opened) {
  if (opened == Seal::Opened::kReplayed) ++counters_.replayed;
  if (opened == Seal::Opened::kForged) ++counters_.unauthenticated;
  return opened == Seal::Opened::kGenuine;
}

bool Sealing::open(const Endpoint& core, const io::RxPacket& packet, std::span<const std::byte>& header,
                   std::span<const std::byte>& payload) {
  const auto id = core.find(header);
  if (!id) return true;
  const bool encrypted = encrypts_ && !payload.empty();
  const bool fits = !encrypted || payload.size() <= received_.size();
  if (!fits || packet.path >= kMaxPaths) return count(Seal::Opened::kForged);
  std::byte* plain = encrypted ? received_.data() : nullptr;
  if (!count(seals_[*id]->open(packet.path, header, payload, plain))) return false;
  header = header.first(header.size() - kSealBytes);
  if (encrypted) payload = std::span<const std::byte>(received_).first(payload.size());
  return true;
}

std::size_t Sealing::seal_control(Endpoint::ConnectionId id, std::span<std::byte> bytes, std::size_t size,
                                  std::span<const std::byte> payload, std::byte* cipher) {
  const bool encrypted = encrypts_ && !payload.empty();
  const bool sealed =
      seals_[id]->seal(Seal::kControlPath, bytes.first(size + kSealBytes), payload, encrypted ? cipher : nullptr);
  return sealed ? size + kSealBytes : 0;
}

std::optional<std::span<const std::byte>> Sealing::open_control(Endpoint::ConnectionId id,
                                                                std::span<const std::byte> bytes,
                                                                std::span<const std::byte> payload, std::byte* plain) {
  const bool encrypted = encrypts_ && !payload.empty();
  if (bytes.size() < kSealBytes) return std::nullopt;
  if (!count(seals_[id]->open(Seal::kControlPath, bytes, payload, encrypted ? plain : nullptr))) return std::nullopt;
  return bytes.first(bytes.size() - kSealBytes);
}

}  // namespace clustar::mlt::driver
