// What a stranger says before the first packet of mlt, and the addresses within: nothing is read beyond its end, and
// what is taken is written as it came.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "mlt/driver/handshake.h"
#include "transport/io/udp/address.h"

namespace {

using namespace clustar;
using namespace clustar::mlt::driver;

void require(bool holds) {
  if (!holds) std::abort();
}

// As much of the input as there is, with the right beginning now and then: a magic of 32 bits is not found by chance.
template <std::size_t Size>
std::array<std::byte, Size> filled(std::span<const std::byte> input, std::span<const std::byte> front) {
  std::array<std::byte, Size> bytes{};
  std::copy_n(input.begin(), std::min(input.size(), Size), bytes.begin());
  std::ranges::copy(front, bytes.begin());
  return bytes;
}

template <class Message>
std::array<std::byte, Message::kSize> written(const Message& message) {
  std::array<std::byte, Message::kSize> bytes;
  message.serialize_to(bytes);
  return bytes;
}

template <class Message>
void check(std::span<const std::byte> input, bool genuine) {
  static const auto example = written(Message{});
  const auto bytes = filled<Message::kSize>(input, std::span(example).first(genuine ? 6 : 0));
  const auto message = Message::parse(bytes);
  if (!message) return;
  require(message->address.bytes().size() <= io::AddressBlob::kMax);
  // Fields that are 0 by convention are not looked at, so the second time is compared.
  const auto again = Message::parse(written(*message));
  require(again && written(*again) == written(*message));
}

void check_handle(std::span<const std::byte> input, bool genuine) {
  static const auto example = HandleInfo{}.serialize();
  const auto bytes = filled<std::tuple_size_v<transport::Handle>>(input, std::span(example).first(genuine ? 10 : 0));
  const auto info = HandleInfo::parse(bytes);
  if (!info) return;
  const auto again = HandleInfo::parse(info->serialize());
  require(again && again->serialize() == info->serialize());
}

void check_address(std::span<const std::byte> input) {
  const auto blob = io::AddressBlob::of(input);
  require(blob.has_value() == (input.size() <= io::AddressBlob::kMax));
  if (!blob) return;
  const auto parsed = transport::io::udp::UdpBlob::parse(*blob);
  if (parsed && parsed->ports.size() <= 32) require(parsed->serialize() == *blob);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto input = std::as_bytes(std::span(data, size)).subspan(1);
  const bool genuine = (data[0] & 4) != 0;
  switch (data[0] & 3) {
    case 0: check<Hello>(input, genuine); break;
    case 1: check<Welcome>(input, genuine); break;
    case 2: check_handle(input, genuine); break;
    default: check_address(input);
  }
  return 0;
}
