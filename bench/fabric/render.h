// A fabric's state as text for people and as JSON for tools.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "bench/fabric/fabric.h"

namespace clustar::bench::fabric {

std::string up_text(const Fabric& fabric, const UpReport& report);
nlohmann::json up_json(const Fabric& fabric, const UpReport& report);

std::string removed_text(const std::string& name, const Removed& removed);
nlohmann::json removed_json(const std::string& name, const Removed& removed);

// `proof` is nothing when it was not asked for.
std::string status_text(const FabricStatus& status, const std::optional<PacketProof>& proof);
nlohmann::json status_json(const FabricStatus& status, const std::optional<PacketProof>& proof);

}  // namespace clustar::bench::fabric
