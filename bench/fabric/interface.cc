#include "bench/fabric/interface.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>

namespace clustar::bench::fabric {
namespace {

class ControlSocket {
 public:
  ControlSocket() : fd_(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {}
  ~ControlSocket() {
    if (fd_ >= 0) close(fd_);
  }
  ControlSocket(const ControlSocket&) = delete;
  ControlSocket& operator=(const ControlSocket&) = delete;
  bool ask(unsigned long request, ifreq& argument) const { return ioctl(fd_, request, &argument) == 0; }

 private:
  int fd_;
};

ifreq request_for(const std::string& interface) {
  ifreq request{};
  interface.copy(request.ifr_name, IFNAMSIZ - 1);
  return request;
}

tl::unexpected<Error> failed(const std::string& interface, const char* what) {
  return fail(ErrorCode::kSystem, fmt::format("{}: cannot {}: {}", interface, what, std::strerror(errno)));
}

// Words of 32 bits, since the kernel's structs end in arrays of them.
bool ethtool(const std::string& interface, std::vector<std::uint32_t>& words) {
  ifreq request = request_for(interface);
  request.ifr_data = reinterpret_cast<char*>(words.data());
  return ControlSocket().ask(SIOCETHTOOL, request);
}

// Names of all features, in the kernel's order: a feature is a bit number.
std::vector<std::string> feature_names(const std::string& interface) {
  // ethtool_sset_info: cmd, reserved, 64-bit mask of string sets, one count.
  std::vector<std::uint32_t> info{ETHTOOL_GSSET_INFO, 0, 1U << ETH_SS_FEATURES, 0, 0};
  if (!ethtool(interface, info) || info[2] == 0 || info[4] > 4096) return {};
  const std::size_t count = info[4];
  // ethtool_gstrings: cmd, set, count, then strings of 32 bytes.
  std::vector<std::uint32_t> strings(3 + count * ETH_GSTRING_LEN / sizeof(std::uint32_t));
  strings[0] = ETHTOOL_GSTRINGS;
  strings[1] = ETH_SS_FEATURES;
  strings[2] = static_cast<std::uint32_t>(count);
  if (!ethtool(interface, strings)) return {};
  std::vector<std::string> names;
  const char* text = reinterpret_cast<const char*>(strings.data() + 3);
  for (std::size_t i = 0; i < count; ++i, text += ETH_GSTRING_LEN) {
    names.emplace_back(text, strnlen(text, ETH_GSTRING_LEN));
  }
  return names;
}

bool merges(const std::string& feature, Merging direction) {
  if (direction == Merging::kReceiving) {
    return feature == "rx-gro" || feature == "rx-gro-list" || feature == "rx-gro-hw" ||
           feature == "rx-udp-gro-forwarding" || feature == "rx-lro";
  }
  return feature == "tx-gso-list" || (feature.starts_with("tx-") && feature.ends_with("-segmentation"));
}

// The bits of all features that merge in this direction and are on; one word per 32 features.
Result<std::vector<std::uint32_t>> merging_bits(const std::string& interface, Merging direction,
                                                const std::vector<std::string>& names) {
  const std::size_t blocks = (names.size() + 31) / 32;
  if (blocks == 0) return failed(interface, "read the offload features (ethtool)");
  // ethtool_gfeatures: cmd, blocks, then {available, requested, active, never_changed} per block.
  std::vector<std::uint32_t> state(2 + blocks * 4);
  state[0] = ETHTOOL_GFEATURES;
  state[1] = static_cast<std::uint32_t>(blocks);
  if (!ethtool(interface, state)) return failed(interface, "read the offload features (ethtool)");
  std::vector<std::uint32_t> bits(blocks);
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::uint32_t bit = 1U << (i % 32);
    if (merges(names[i], direction) && (state[2 + i / 32 * 4 + 2] & bit) != 0) bits[i / 32] |= bit;
  }
  return bits;
}

}  // namespace

Result<void> set_up(const std::string& interface) {
  const ControlSocket socket;
  ifreq request = request_for(interface);
  if (!socket.ask(SIOCGIFFLAGS, request)) return failed(interface, "read the flags");
  request.ifr_flags |= IFF_UP;
  if (!socket.ask(SIOCSIFFLAGS, request)) return failed(interface, "set it up");
  return {};
}

Result<void> set_address(const std::string& interface, const std::string& address, int prefix_length) {
  const ControlSocket socket;
  const auto set = [&](unsigned long call, in_addr value) {
    ifreq request = request_for(interface);
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_addr = value;
    std::memcpy(&request.ifr_addr, &in, sizeof(in));
    return socket.ask(call, request);
  };
  in_addr value{};
  if (inet_pton(AF_INET, address.c_str(), &value) != 1) {
    return fail(ErrorCode::kInternal, fmt::format("{} is no IPv4 address", address));
  }
  const in_addr mask{htonl(~std::uint32_t{0} << (32 - prefix_length))};
  if (!set(SIOCSIFADDR, value) || !set(SIOCSIFNETMASK, mask)) return failed(interface, "set the address");
  return {};
}

std::string address_of(const std::string& interface) {
  ifreq request = request_for(interface);
  if (!ControlSocket().ask(SIOCGIFADDR, request)) return {};
  sockaddr_in in{};
  std::memcpy(&in, &request.ifr_addr, sizeof(in));
  std::array<char, INET_ADDRSTRLEN> text{};
  return inet_ntop(AF_INET, &in.sin_addr, text.data(), text.size()) == nullptr ? "" : text.data();
}

std::string read_ipv4_setting(const std::string& name) {
  std::ifstream in("/proc/sys/net/ipv4/" + name);
  std::string value;
  std::getline(in, value);
  return value;
}

bool write_ipv4_setting(const std::string& name, const std::string& value) {
  std::ofstream out("/proc/sys/net/ipv4/" + name);
  out << value << "\n";
  out.close();
  return !out.fail();
}

void keep_new_interfaces_silent() {
  // Missing in a kernel without IPv6, which is silent anyway.
  std::ofstream("/proc/sys/net/ipv6/conf/default/addr_gen_mode") << "1\n";
}

Result<std::vector<std::string>> merging_features(const std::string& interface, Merging direction) {
  const std::vector<std::string> names = feature_names(interface);
  const auto bits = merging_bits(interface, direction, names);
  if (!bits) return tl::unexpected(bits.error());
  std::vector<std::string> found;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (((*bits)[i / 32] >> (i % 32) & 1) != 0) found.push_back(names[i]);
  }
  return found;
}

Result<void> forbid_merging(const std::string& interface, Merging direction) {
  const auto bits = merging_bits(interface, direction, feature_names(interface));
  if (!bits) return tl::unexpected(bits.error());
  // ethtool_sfeatures: cmd, blocks, then {valid, requested} per block.
  std::vector<std::uint32_t> request{ETHTOOL_SFEATURES, static_cast<std::uint32_t>(bits->size())};
  for (const std::uint32_t word : *bits) request.insert(request.end(), {word, 0});
  if (!ethtool(interface, request)) return failed(interface, "change the offload features (ethtool)");
  const auto left = merging_features(interface, direction);
  if (!left) return tl::unexpected(left.error());
  if (left->empty()) return {};
  return fail(ErrorCode::kUnavailable, fmt::format("{}: the kernel keeps {} on; queues would hold 64 KB super-packets",
                                                   interface, fmt::join(*left, ", ")));
}

}  // namespace clustar::bench::fabric
