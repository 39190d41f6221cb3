// What parses is written as the same bytes again, and parses to the same packet.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "mlt/core/wire.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace clustar::mlt;
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto packet = parse(bytes);
  if (!packet) return 0;
  require(peek_secret(bytes).has_value());
  std::array<std::byte, kMaxHeader> out{};
  const std::size_t length = serialize(*packet, out);
  require(length == size && std::equal(bytes.begin(), bytes.end(), out.begin()));
  require(parse(std::span(out).first(length)) == packet);
  if (const auto* header = std::get_if<DataHeader>(&*packet)) {
    const std::uint32_t packets = packet_count(header->message_bytes, header->segment);
    if (header->parity) {
      require(packets > 1 && header->index < block_count(packets) * kMaxParity);
    } else {
      require(header->index < packets);
      require(std::uint64_t{header->index} * header->segment + payload_bytes(*header) <= kMaxMessageBytes);
    }
  }
  return 0;
}
