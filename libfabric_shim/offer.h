// What libfabric has for us, and what is taken of it.
#pragma once

#include <string>
#include <vector>

#include "libfabric_shim/choice.h"
#include "libfabric_shim/info.h"

namespace clustar::transport::ofi {

struct Offer {
  std::vector<Info> infos;
  Choice choice;
};

// `provider`, `progress`: as in OfiSettings. Errors as of find_infos() and choose(), and kInvalidArgument where only
// `progress` is in the way.
Result<Offer> find_offer(const std::string& provider, const std::string& progress);

}  // namespace clustar::transport::ofi
