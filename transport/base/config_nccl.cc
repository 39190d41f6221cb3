#include "transport/base/config_nccl.h"

#include <cerrno>
#include <cstdlib>
#include <utility>
#include <vector>

namespace clustar::config_keys {
namespace {

using Text = std::optional<std::string>;
using Translate = decltype(NcclVariable::translate);

// As NCCL reads numbers: decimal, 0x.., 0.. octal. It takes "7x" for 7 and "x" for 0; those are nothing here.
std::optional<long long> nccl_number(const std::string& text) {
  char* end = nullptr;
  errno = 0;
  const long long value = std::strtoll(text.c_str(), &end, 0);
  if (text.empty() || errno != 0 || *end != '\0') return std::nullopt;
  return value;
}

// A number in [low, high]; `unset` is NCCL's word for "not set".
Translate number_in(long long low, long long high, std::optional<long long> unset = std::nullopt) {
  return [=](const std::string& text) -> Text {
    const auto value = nccl_number(text);
    if (value && value == unset) return "";
    if (!value || *value < low || *value > high) return std::nullopt;
    return std::to_string(*value);
  };
}

// For NCCL every number but 0 is yes.
Translate yes_or_no(const char* yes, const char* no, std::optional<long long> unset = std::nullopt) {
  return [=](const std::string& text) -> Text {
    const auto value = nccl_number(text);
    if (!value) return std::nullopt;
    if (value == unset) return "";
    return *value == 0 ? no : yes;
  };
}

Translate one_of_words(std::vector<std::pair<std::string, std::string>> words) {
  return [words = std::move(words)](const std::string& text) -> Text {
    for (const auto& [theirs, ours] : words) {
      if (text == theirs) return ours;
    }
    return std::nullopt;
  };
}

Text as_it_is(const std::string& text) { return text; }

}  // namespace

std::span<const NcclVariable> nccl_variables() {
  static const std::vector<NcclVariable> variables{
      {"NCCL_SOCKET_IFNAME", "socket_ifname", "interfaces", as_it_is},
      {"NCCL_SOCKET_FAMILY", "socket_family", "AF_INET | AF_INET6",
       one_of_words({{"AF_INET", "ipv4"}, {"AF_INET6", "ipv6"}})},
      {"NCCL_IB_DISABLE", "ib_disable", "a number", yes_or_no("1", "0")},
      {"NCCL_IB_HCA", "ib_hca", "devices", as_it_is},
      {"NCCL_IB_GID_INDEX", "ib_gid_index", "a number from 0 to 255, or -1", number_in(0, 255, -1)},
      {"NCCL_IB_ADDR_FAMILY", "ib_addr_family", "AF_INET | AF_INET6",
       one_of_words({{"AF_INET", "ipv4"}, {"AF_INET6", "ipv6"}})},
      {"NCCL_IB_ROCE_VERSION_NUM", nullptr, "2: clustar speaks RoCE v2 only", one_of_words({{"2", ""}})},
      {"NCCL_IB_PKEY", "ib_pkey_index", "a number from 0 to 65535", number_in(0, 65535)},
      {"NCCL_IB_TC", "ib_tc", "a number from 0 to 255, or -1", number_in(0, 255, -1)},
      {"NCCL_IB_SL", "ib_sl", "a number from 0 to 15, or -1", number_in(0, 15, -1)},
      {"NCCL_IB_TIMEOUT", "ib_timeout", "a number from 1 to 22", number_in(1, 22)},
      {"NCCL_IB_RETRY_CNT", "ib_retry_cnt", "a number from 0 to 7", number_in(0, 7)},
      {"NCCL_IB_QPS_PER_CONNECTION", "ib_qps", "a number from 1 to 8", number_in(1, 8)},
      {"NCCL_IB_PCI_RELAXED_ORDERING", "ib_relaxed_ordering", "0 (off) | 1 (on) | 2 (auto)",
       one_of_words({{"0", "off"}, {"1", "on"}, {"2", "auto"}})},
      {"NCCL_IB_ADAPTIVE_ROUTING", "ib_adaptive_routing", "0 (off) | 1 (on), or -2", yes_or_no("on", "off", -2)},
      {"NCCL_IB_AR_THRESHOLD", "ib_ar_threshold", "bytes from 0 to 1073741824", number_in(0, 1 << 30)},
      {"NCCL_IB_MERGE_NICS", "ib_merge_nics", "a number", yes_or_no("1", "0")},
  };
  return variables;
}

}  // namespace clustar::config_keys
