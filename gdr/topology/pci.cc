#include "gdr/topology/pci.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>

#include "gdr/topology/small_file.h"

namespace clustar::gdr {
namespace {

constexpr std::size_t kConfigBytes = 4096;
constexpr std::size_t kPlainConfigBytes = 256;  // what comes before the extended capabilities
// What the kernel shows of it without CAP_SYS_ADMIN: 64 bytes, of a CardBus bridge 128 (pci_read_config).
constexpr std::size_t kBytesForAnybody = 128;
constexpr std::uint16_t kAcsCapability = 0x000d;
// P2P request redirect, P2P completion redirect, upstream forwarding.
constexpr std::uint16_t kRedirectBits = 0x001c;

// "0x10de". Nothing: no number.
std::optional<std::uint32_t> hex(const std::string& path) {
  const std::string line = first_line(path);
  if (line.size() < 3 || line[0] != '0' || line[1] != 'x') return std::nullopt;
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(line.data() + 2, line.data() + line.size(), number, 16);
  if (error != std::errc() || end != line.data() + line.size()) return std::nullopt;
  return number;
}

std::uint16_t id(const std::string& path) { return static_cast<std::uint16_t>(hex(path).value_or(0)); }

PciIds read_ids(const std::string& path) {
  return {id(path + "/vendor"), id(path + "/device"), id(path + "/subsystem_vendor"), id(path + "/subsystem_device")};
}

int read_node(const std::string& path) {
  const std::string line = first_line(path + "/numa_node");
  int node = -1;
  std::from_chars(line.data(), line.data() + line.size(), node);
  return node < 0 ? -1 : node;
}

void read_iommu(PciDevice& device) {
  const std::string link = device.path + "/iommu_group";
  if (!is_there(link)) {
    device.iommu = Iommu::kOff;
    return;
  }
  const auto group = real_path(link);
  const std::string type = group ? first_line(*group + "/type") : std::string();
  if (type.empty()) return;
  device.iommu = type == "identity" ? Iommu::kPassthrough : Iommu::kTranslates;
  device.iommu_type = fmt::format("{}, {}", printable(group->substr(group->rfind('/') + 1)), type);
}

std::uint32_t load32(std::string_view bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 4; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  return value;
}

}  // namespace

bool is_pci_address(std::string_view text) {
  constexpr std::string_view kShape = "hhhh:hh:hh.h";
  if (text.size() != kShape.size()) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool digit = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
    if (kShape[i] == 'h' ? !digit : c != kShape[i]) return false;
  }
  return true;
}

std::vector<std::string> bridges_of(std::string_view path) {
  std::vector<std::string> bridges;
  bool own = true;
  while (!path.empty()) {
    const std::size_t slash = path.rfind('/');
    const std::string_view name = slash == std::string_view::npos ? path : path.substr(slash + 1);
    if (!is_pci_address(name)) break;
    if (!own) bridges.insert(bridges.begin(), std::string(name));
    own = false;
    path = slash == std::string_view::npos ? std::string_view() : path.substr(0, slash);
  }
  return bridges;
}

Result<PciDevice> read_pci_device(const std::string& path) {
  const auto class_code = hex(path + "/class");
  if (!class_code) return fail(ErrorCode::kSystem, printable(path) + "/class: cannot be read, or is no number");
  PciDevice device{.address = path.substr(path.rfind('/') + 1), .path = path, .bridges = bridges_of(path)};
  device.class_code = *class_code;
  device.ids = read_ids(path);
  device.numa_node = read_node(path);
  read_iommu(device);
  return device;
}

Result<std::optional<std::uint16_t>> acs_control(std::string_view config) {
  if (config.size() <= kPlainConfigBytes) {
    return fail(ErrorCode::kUnavailable, fmt::format("config shows {} bytes only", config.size()));
  }
  std::size_t at = kPlainConfigBytes;
  // A capability takes 8 bytes at least, so this many is all that fit; a chain that is longer bites its tail.
  for (std::size_t left = (kConfigBytes - kPlainConfigBytes) / 8; left > 0; --left) {
    if (at + 8 > config.size()) return fail(ErrorCode::kUnavailable, "config is damaged, or not read to its end");
    const std::uint32_t header = load32(config, at);
    if (header == 0xffffffff) return fail(ErrorCode::kUnavailable, "the device does not answer (asleep, or gone)");
    if (header == 0) return std::optional<std::uint16_t>();
    if ((header & 0xffff) == kAcsCapability) {
      return std::optional<std::uint16_t>(static_cast<std::uint16_t>(load32(config, at + 4) >> 16));
    }
    at = header >> 20 & 0xffc;
    if (at == 0) return std::optional<std::uint16_t>();
    if (at < kPlainConfigBytes) break;
  }
  return fail(ErrorCode::kUnavailable, "config is damaged: its list of capabilities does not end");
}

Bridge read_bridge(const std::string& path) {
  Bridge bridge{.ids = read_ids(path), .numa_node = read_node(path)};
  const auto config = read_small_file(path + "/config", kConfigBytes);
  const auto control = config ? acs_control(*config) : tl::unexpected(config.error());
  if (!control) {
    bridge.acs_problem = control.error().message;
    bridge.acs_needs_root =
        config ? config->size() <= kBytesForAnybody : access((path + "/config").c_str(), R_OK) != 0 && errno == EACCES;
    return bridge;
  }
  bridge.acs_control = control->value_or(0);
  bridge.redirects = (bridge.acs_control & kRedirectBits) != 0 ? Known::kYes : Known::kNo;
  return bridge;
}

}  // namespace clustar::gdr
