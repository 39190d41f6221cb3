#include "transport/io/decorators/faulty_backend.h"

#include <span>

#include "transport/io/decorators/faulty_io.h"

namespace clustar::transport::io {
namespace {

// FNV-1a. Ranks on one host share the control address, so the device's own address is what tells theirs apart.
std::uint64_t mixed(std::uint64_t hash, std::span<const std::byte> bytes) {
  for (const std::byte byte : bytes) hash = (hash ^ std::to_integer<std::uint64_t>(byte)) * 0x100000001b3;
  return hash;
}

}  // namespace

Result<std::unique_ptr<PacketIo>> FaultyBackend::open(std::size_t device) {
  const auto infos = inner_->devices();
  if (!infos) return tl::unexpected(infos.error());
  auto opened = inner_->open(device);
  if (!opened) return opened;
  FaultSpec own = spec_;
  own.seed = mixed(mixed(0xcbf29ce484222325 ^ spec_.seed, infos->at(device).control.address),
                   (*opened)->local_address().bytes());
  auto faulty = FaultyIo::create(std::move(*opened), own, {.name = spec_.to_string()});
  if (!faulty) return tl::unexpected(faulty.error());
  return std::move(*faulty);
}

}  // namespace clustar::transport::io
