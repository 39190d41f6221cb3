#include "transport/io/dpdk/core/device_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>

namespace clustar::transport::io::dpdk {
namespace {

constexpr std::uint32_t kMostQueues = 64;
constexpr const char* kAllowed =
    "allowed is DEVICE[@ADDRESS/PREFIX[>GATEWAY]], several separated by ';', as "
    "0000:65:00.0@10.0.0.1/24 or net_af_packet0,iface=eth1";

bool is_hex(std::string_view text, std::size_t digits) {
  constexpr std::string_view kDigits = "0123456789abcdefABCDEF";
  return text.size() == digits && text.find_first_not_of(kDigits) == std::string_view::npos;
}

// "0000:65:00.0", or "65:00.0".
bool is_pci(std::string_view name) {
  if (std::ranges::count(name, ':') == 2) {
    if (!is_hex(name.substr(0, 4), 4) || name[4] != ':') return false;
    name.remove_prefix(5);
  }
  return name.size() == 7 && is_hex(name.substr(0, 2), 2) && name[2] == ':' && is_hex(name.substr(3, 2), 2) &&
         name[5] == '.' && name[6] >= '0' && name[6] <= '7';
}

Result<Subnet> parse_subnet(std::string_view text) {
  const auto wrong = [&](const char* what) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("'{}': {}; {}", text, what, kAllowed));
  };
  Subnet subnet;
  std::string_view rest = text;
  if (const auto mark = rest.find('>'); mark != std::string_view::npos) {
    subnet.gateway = parse_ipv4_address(rest.substr(mark + 1));
    if (!subnet.gateway) return wrong("the gateway is no IPv4 address");
    rest = rest.substr(0, mark);
  }
  const auto slash = rest.find('/');
  const auto address = parse_ipv4_address(rest.substr(0, slash));
  if (!address || *address == 0 || *address >> 28 >= 14) return wrong("the address is no IPv4 address of one host");
  if (slash == std::string_view::npos) return wrong("the address has no prefix");
  const std::string_view prefix = rest.substr(slash + 1);
  unsigned bits = 0;
  const auto [end, error] = std::from_chars(prefix.data(), prefix.data() + prefix.size(), bits);
  if (error != std::errc() || end != prefix.data() + prefix.size() || bits < 1 || bits > 31) {
    return wrong("the prefix is no number from 1 to 31");
  }
  subnet.address = *address;
  subnet.prefix = static_cast<std::uint8_t>(bits);
  if (subnet.gateway && (!subnet.contains(*subnet.gateway) || *subnet.gateway == subnet.address)) {
    return wrong("the gateway is not another address of the subnet");
  }
  return subnet;
}

Result<DeviceSpec> parse_device(std::string_view text) {
  DeviceSpec spec;
  std::string_view device = text;
  if (const auto mark = text.find('@'); mark != std::string_view::npos) {
    device = text.substr(0, mark);
    const auto subnet = parse_subnet(text.substr(mark + 1));
    if (!subnet) return tl::unexpected(subnet.error());
    spec.subnet = *subnet;
  }
  const auto comma = device.find(',');
  spec.name = std::string(device.substr(0, comma));
  if (comma != std::string_view::npos) spec.arguments = std::string(device.substr(comma + 1));
  spec.pci = is_pci(spec.name);
  if (!spec.pci && (!spec.name.starts_with("net_") || spec.driver() == spec.name)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' is neither a place on the PCI bus nor a virtual device as net_af_packet0; {}",
                            spec.name, kAllowed));
  }
  const std::string_view queues = spec.queues_argument();
  if (const auto told = queues.empty() ? std::nullopt : spec.argument(queues)) {
    std::uint32_t count = 0;
    const auto [end, error] = std::from_chars(told->data(), told->data() + told->size(), count);
    if (error != std::errc() || end != told->data() + told->size() || count < 1 || count > kMostQueues) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("'{}={}' is no number of queues; allowed is 1 to {}", queues, *told, kMostQueues));
    }
  }
  if (!spec.subnet && !spec.argument("iface")) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("'{}' has no address, and no interface of the kernel that has one (iface=); {}", text, kAllowed));
  }
  return spec;
}

}  // namespace

std::optional<std::string> DeviceSpec::argument(std::string_view key) const {
  for (std::string_view rest = arguments; !rest.empty();) {
    const std::string_view one = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), one.size() + 1));
    if (one.size() > key.size() && one.starts_with(key) && one[key.size()] == '=') {
      return std::string(one.substr(key.size() + 1));
    }
  }
  return std::nullopt;
}

std::string_view DeviceSpec::driver() const {
  const std::string_view text = name;
  const auto last = text.find_last_not_of("0123456789");
  return text.substr(0, last + 1);
}

std::string_view DeviceSpec::queues_argument() const {
  if (driver() == "net_af_packet") return "qpairs";
  return driver() == "net_af_xdp" ? "queue_count" : "";
}

std::uint32_t DeviceSpec::queues(std::uint32_t usual) const {
  if (pci) return usual;
  const std::string_view key = queues_argument();
  const auto told = key.empty() ? std::string("1") : argument(key).value_or(std::to_string(usual));
  std::uint32_t count = 1;
  std::from_chars(told.data(), told.data() + told.size(), count);
  return std::max(count, 1u);
}

std::uint32_t buffers_of_port(std::uint32_t queues, std::uint32_t descriptors, std::uint32_t held) {
  constexpr std::uint32_t kBurst = 64;
  return queues * (descriptors + 2 * kBurst) + 2 * held + 6 * kBurst;
}

std::uint32_t buffers_of_xdp_port(std::uint32_t queues, std::uint32_t descriptors, std::uint32_t held) {
  constexpr std::uint32_t kRing = 2048;
  const std::uint32_t each = std::max(std::bit_ceil(descriptors), kRing);
  return buffers_of_port(queues, 2 * each, held);
}

Result<std::vector<DeviceSpec>> parse_devices(std::string_view text) {
  std::vector<DeviceSpec> devices;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view one = rest.substr(0, rest.find(';'));
    rest.remove_prefix(std::min(rest.size(), one.size() + 1));
    if (one.empty()) continue;
    auto device = parse_device(one);
    if (!device) return tl::unexpected(device.error());
    if (std::ranges::find(devices, device->name, &DeviceSpec::name) != devices.end()) {
      return fail(ErrorCode::kInvalidArgument, fmt::format("'{}' is named twice", device->name));
    }
    devices.push_back(std::move(*device));
  }
  if (devices.empty()) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("no device is named; {}", kAllowed));
  }
  return devices;
}

}  // namespace clustar::transport::io::dpdk
