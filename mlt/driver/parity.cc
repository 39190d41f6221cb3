#include "mlt/driver/parity.h"

#include <algorithm>
#include <cstring>

namespace clustar::mlt::driver {

namespace io = transport::io;

static_assert(kParityBlock <= fec::Codec::kMaxPackets && kMaxParity <= fec::Codec::kMaxRows);

std::unique_ptr<Parity> Parity::of(const fec::Codec* codec, io::PacketIo& io, std::size_t segment) {
  const bool host_only = io.writer() == nullptr && !io.capabilities().landing;
  if (codec == nullptr || !host_only) return nullptr;
  return std::unique_ptr<Parity>(new Parity(*codec, segment));
}

Result<void> Parity::open(io::PacketIo& io, std::size_t pending) {
  if (slots_) return {};
  auto made = PayloadSlots::create(io, segment_, pending);
  if (!made) return tl::unexpected(made.error());
  slots_ = std::move(*made);
  return {};
}

io::MemorySlice Parity::encode(const DataHeader& header, std::uint32_t first, const io::MemorySlice& message,
                               std::span<const io::TxPacket> pending) {
  const std::byte* begin = message.mr->memory().address + message.offset;
  const std::uint32_t packets = packet_count(header.message_bytes, header.segment);
  const std::uint32_t block = header.index / kMaxParity;
  const std::uint32_t size = block_packets(block, packets);
  std::array<const std::byte*, kParityBlock> data;
  for (std::uint32_t place = 0; place < size; ++place) {
    const std::uint32_t index = (first + block * kParityBlock + place) % packets;
    data[place] = begin + std::size_t{index} * header.segment;
    const std::uint32_t bytes = packet_bytes(index, header.message_bytes, header.segment);
    if (bytes == header.segment) continue;
    std::memcpy(padded_.data(), data[place], bytes);
    std::fill_n(padded_.begin() + bytes, header.segment - bytes, std::byte{});
    data[place] = padded_.data();
  }
  const io::MemorySlice out = slots_->take(header.segment, pending);
  codec_.encode(std::span(data).first(size), static_cast<std::uint8_t>(header.index % kMaxParity), header.segment,
                slots_->at(out));
  return out;
}

void Parity::rebuild(const Rebuild& what, std::byte* message, std::span<const std::byte* const> parity) {
  const std::uint32_t size = what.block_packets();
  const std::size_t segment = what.segment;
  std::array<const std::byte*, kParityBlock> data;
  std::array<std::uint8_t, kMaxParity> places, rows;
  std::array<std::byte*, kMaxParity> out;
  std::byte* const last = padded_.data() + segment_;
  std::uint32_t missing = 0, cut = 0;
  for (std::uint32_t place = 0; place < size; ++place) {
    const std::uint32_t index = what.index(place);
    std::byte* at = message + index * segment;
    const std::uint32_t bytes = packet_bytes(index, what.bytes, what.segment);
    if (missing < what.count && what.missing[missing].place == place) {
      places[missing] = what.missing[missing].place;
      rows[missing] = what.missing[missing].row;
      out[missing] = bytes == segment ? at : last;
      if (bytes < segment) cut = index;
      data[place] = parity[missing++];
      continue;
    }
    data[place] = at;
    if (bytes == segment) continue;
    std::memcpy(padded_.data(), at, bytes);
    std::fill_n(padded_.begin() + bytes, segment - bytes, std::byte{});
    data[place] = padded_.data();
  }
  codec_.rebuild(std::span(data).first(size), std::span(places).first(missing), std::span(rows).first(missing), segment,
                 std::span(out).first(missing));
  if (cut > 0) std::memcpy(message + cut * segment, last, packet_bytes(cut, what.bytes, what.segment));
}

}  // namespace clustar::mlt::driver
