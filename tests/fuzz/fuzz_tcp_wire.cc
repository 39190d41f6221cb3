// Every parser of the TCP wire: what it accepts is in range and keeps its meaning when it is written again.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "transport/tcp/core/wire.h"

namespace {

using namespace clustar::transport;
using namespace clustar::transport::tcp;

void require(bool holds) {
  if (!holds) std::abort();
}

template <std::size_t Size>
std::array<std::byte, Size> take(std::span<const std::uint8_t> input) {
  std::array<std::byte, Size> bytes{};
  for (std::size_t i = 0; i < std::min(Size, input.size()); ++i) bytes[i] = static_cast<std::byte>(input[i]);
  return bytes;
}

void check_handle(std::span<const std::uint8_t> input) {
  const auto info = HandleInfo::parse(take<std::tuple_size_v<Handle>>(input));
  if (!info) return;
  const auto again = HandleInfo::parse(info->serialize());
  require(again && again->invitation.token == info->invitation.token &&
          again->invitation.endpoints.size() == info->invitation.endpoints.size());
  require(again->invitation.config == info->invitation.config);
}

void check_chunk(std::span<const std::uint8_t> input) {
  auto header = ChunkHeader::parse(take<ChunkHeader::kSize>(input));
  if (!header) return;
  require(header->offset <= header->total && header->length <= header->total - header->offset);
  require(header->total <= kMaxMessageBytes);
  std::array<std::byte, ChunkHeader::kSize> bytes;
  header->serialize_to(bytes);
  auto again = ChunkHeader::parse(bytes);
  require(again->to_string() == header->to_string());
  if (!header->identity.known) return;
  const std::size_t behind = std::min(input.size(), ChunkHeader::kSize);
  if (!header->parse_identity(take<ChunkHeader::kIdentitySize>(input.subspan(behind)))) return;
  std::array<std::byte, ChunkHeader::kIdentitySize> identity;
  header->serialize_identity_to(identity);
  require(again->parse_identity(identity) && again->identity == header->identity);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::span<const std::uint8_t> input(data + 1, size - 1);
  switch (data[0] % 4) {
    case 0: check_handle(input); break;
    case 1: check_chunk(input); break;
    case 2: {
      const auto hello = Hello::parse(take<Hello::kSize>(input));
      if (hello) require(hello->role <= hello->data_sockets && hello->data_sockets <= kMaxDataSockets);
      break;
    }
    default: {
      const auto clear = ClearToSend::parse(take<ClearToSend::kSize>(input));
      if (clear) require(clear->length <= kMaxMessageBytes);
      break;
    }
  }
  return 0;
}
