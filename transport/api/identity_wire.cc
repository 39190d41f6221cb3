#include "transport/api/identity_wire.h"

#include "transport/base/bytes.h"

namespace clustar::transport {
namespace {

constexpr unsigned kSenderBits = 16;  // behind the number, in one word

}  // namespace

void parse_identity(std::span<const std::byte, kIdentityWireSize> bytes, MessageIdentity& identity) {
  const WireReader reader(bytes);
  identity.communicator = reader.load<std::uint64_t, 0>();
  const auto number = reader.load<std::uint64_t, 8>();
  identity.number = number >> kSenderBits;
  identity.sender = static_cast<std::uint16_t>(number);
  identity.total_bytes = reader.load<std::uint64_t, 16>();
  identity.transfer = reader.load<std::uint32_t, 24>();
  identity.channel = reader.load<std::uint16_t, 28>();
  identity.function = reader.load<std::uint8_t, 30>();
  identity.datatype = reader.load<std::uint8_t, 31>();
  identity.algorithm = reader.load<std::uint8_t, 32>();
  identity.protocol = reader.load<std::uint8_t, 33>();
}

void serialize_identity(const MessageIdentity& identity, std::span<std::byte, kIdentityWireSize> bytes) {
  WireWriter writer(bytes);
  writer.store<0>(identity.communicator);
  writer.store<8>(identity.number << kSenderBits | identity.sender);
  writer.store<16>(identity.total_bytes);
  writer.store<24>(identity.transfer);
  writer.store<28>(identity.channel);
  writer.store<30>(identity.function);
  writer.store<31>(identity.datatype);
  writer.store<32>(identity.algorithm);
  writer.store<33>(identity.protocol);
}

}  // namespace clustar::transport
