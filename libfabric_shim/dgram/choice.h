// Which provider's datagrams carry MLT's packets, and why no other's. Pure.
#pragma once

#include <string>
#include <vector>

#include "libfabric_shim/choice.h"
#include "transport/base/result.h"

namespace clustar::transport::ofi {

// `there`: the names of the providers that have datagrams (FI_EP_DGRAM), without repetition. `forced`:
// OfiSettings::provider, a whole name; empty: the best. `no_rdma`: what forbids RDMA NICs, as a person set it; empty:
// nothing does. Errors list what is there: kInvalidArgument for a name that is not, or that is forbidden; kUnavailable
// if none can be taken.
Result<Choice> choose_datagrams(const std::vector<std::string>& there, const std::string& forced,
                                const std::string& no_rdma);

}  // namespace clustar::transport::ofi
