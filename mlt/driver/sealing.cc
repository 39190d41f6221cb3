#include "mlt/driver/sealing.h"

#include <algorithm>
#include <cstring>

namespace clustar::mlt::driver {

namespace io = transport::io;

static_assert(kMaxHeader + kSealBytes <= io::Header::kMax);

Sealing::Sealing(const Protection& protection)
    : protection_(protection), encrypts_(protection.mode() == PskMode::kEncrypt) {}

Result<std::unique_ptr<Sealing>> Sealing::create(const Protection& protection, io::PacketIo& io, std::size_t segment,
                                                 std::size_t pending) {
  std::unique_ptr<Sealing> made(new Sealing(protection));
  if (!made->encrypts_) return made;
  auto slots = PayloadSlots::create(io, segment, pending);
  if (!slots) return tl::unexpected(slots.error());
  made->sealed_ = std::move(*slots);
  made->received_.resize(segment);
  return made;
}

void Sealing::add(Endpoint::ConnectionId id, Endpoint::End end, const Session& session, std::uint8_t paths) {
  if (id >= seals_.size()) seals_.resize(id + 1);
  const auto side = end == Endpoint::End::kSends ? Seal::Side::kSender : Seal::Side::kReceiver;
  seals_[id] = std::make_unique<Seal>(protection_.crypto(), session, side, paths);
}

void Sealing::remove(Endpoint::ConnectionId id) { seals_[id].reset(); }

void Sealing::taken(std::span<const io::TxPacket> packets) {
  if (sealed_) sealed_->taken(packets);
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
    packet.payload = sealed_->take(payload.size(), pending);
    cipher = sealed_->at(packet.payload);
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
