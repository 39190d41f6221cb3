#include "bench/coflow/traits.h"

#include <algorithm>
#include <utility>

namespace clustar::bench::coflow {

Traits traits_of(std::string_view spec) {
  static constexpr std::pair<std::string_view, Traits> kTraits[] = {
      {"dark", {.clairvoyant = false, .work_conserving = false}},
      {"dclas", {.clairvoyant = false, .shares_ports = true, .reads = Reads::kSent}},
      {"fair", {.clairvoyant = false, .work_conserving = false, .shares_ports = true, .reads = Reads::kNone}},
      {"maxmin", {.clairvoyant = false, .shares_ports = true, .reads = Reads::kNone}},
      {"bssi", {.shares_ports = true, .reads = Reads::kNone}},
      {"pfp", {.one_at_a_time = true, .reads = Reads::kNone}},
      {"match", {.one_at_a_time = true}},
      {"turns", {.one_at_a_time = true}},
  };
  const std::string_view name = spec.substr(0, spec.find(':'));
  const auto found = std::ranges::find(kTraits, name, [](const auto& one) { return one.first; });
  return found == std::end(kTraits) ? Traits{} : found->second;  // those that are served by MADD have none
}

}  // namespace clustar::bench::coflow
