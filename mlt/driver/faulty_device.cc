#include "mlt/driver/faulty_device.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "transport/io/decorators/faulty_io.h"

namespace clustar::mlt::driver {
namespace {

// FNV-1a. Ranks on one host share the address, so the ports are what tells their devices apart.
std::uint64_t seed_of(std::uint64_t seed, const net::Address& local, const Ports& ports) {
  std::string text = local.with_port(0).to_string();
  for (const std::uint32_t port : ports.all()) text += fmt::format(",{}", port);
  std::uint64_t hash = 0xcbf29ce484222325 ^ seed;
  for (const unsigned char byte : text) hash = (hash ^ byte) * 0x100000001b3;
  return hash;
}

std::string describe(const io::FaultyIo& io, const std::string& as_given) {
  const io::FaultCounters& count = io.counters();
  std::string text = fmt::format("faults injected on purpose ({}): {} of {} packets lost", as_given,
                                 count.lost + count.burst_lost, count.taken);
  const auto add = [&text](std::uint64_t value, std::string_view what) {
    if (value > 0) text += fmt::format(", {} {}", value, what);
  };
  add(count.reordered, "reordered");
  add(count.duplicated, "duplicated");
  add(count.corrupted, "corrupted");
  add(count.delayed, "delayed");
  add(count.received_lost, "lost on the way in");
  add(count.not_copied, "from GPU memory left as they were, but for losses");
  return text;
}

Result<Device> wrap(Device device, const net::Address& local, const io::FaultSpec& given) {
  io::FaultSpec spec = given;
  spec.seed = seed_of(given.seed, local, device.ports);
  auto faulty = io::FaultyIo::create(std::move(device.io), spec);
  if (!faulty) return tl::unexpected(faulty.error());
  // A packet that is held back leaves inside of a later call, and no descriptor becomes readable for it: whoever sleeps
  // must look in between.
  if (spec.copies()) device.readable_fds.clear();
  device.describe = [io = faulty->get(), inner = std::move(device.describe), text = given.to_string()] {
    return (inner ? inner() + "; " : std::string()) + describe(*io, text);
  };
  device.io = std::move(*faulty);
  return device;
}

}  // namespace

OpenDevice with_faults(OpenDevice open, const io::FaultSpec& spec) {
  return [open = std::move(open), spec](const net::Interface& interface, const net::Address& local) -> Result<Device> {
    auto device = open(interface, local);
    if (!device) return device;
    return wrap(std::move(*device), local, spec);
  };
}

}  // namespace clustar::mlt::driver
