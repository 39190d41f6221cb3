// A fabric described in a TOML file: switches, hosts, links. The format is in docs/fabric.md.
#pragma once

#include <string>

#include "bench/fabric/spec.h"
#include "transport/base/result.h"

namespace clustar::bench::fabric {

// The fabric `name` as the file says, checked(). kInvalidArgument: "FILE:LINE: key: what is wrong; allowed: ...", with
// the line where one is to blame.
Result<FabricSpec> read_topology_file(const std::string& path, const std::string& name);
// The same of a file's content; `path` is only for the messages.
Result<FabricSpec> parse_topology(const std::string& content, const std::string& path, const std::string& name);

}  // namespace clustar::bench::fabric
