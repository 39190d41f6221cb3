// NCCL's variables that count for us where ours are not set: what users have already told NCCL of their network.
// Meanings and defaults: NCCL v2.28.9 src/transport/net_ib.cc, src/misc/socket.cc; docs/verbs.md has the table.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>

namespace clustar::config_keys {

struct NcclVariable {
  const char* name;
  const char* key;      // ours; null: only checked
  const char* allowed;  // for a person
  // The same in our words; empty: it leaves the default. Nothing: it says what we cannot take.
  std::function<std::optional<std::string>(const std::string&)> translate;
};

std::span<const NcclVariable> nccl_variables();

}  // namespace clustar::config_keys
