// CLUSTAR_SEND_ORDER=coflow: a HostPolicy for each NIC.
#pragma once

#include <memory>

#include "transport/api/send_policy.h"
#include "transport/api/settings.h"
#include "transport/base/log.h"
#include "transport/base/result.h"

namespace clustar::coflow::enforce {

// For all that make a transport by settings. Null: they name another order, which transports have themselves. Errors:
// a coordinator's address or key that cannot be used.
// `log`: told of NICs whose processes do not hear of each other, and why.
Result<std::shared_ptr<transport::SendPolicies>> host_policies(const SendOrderSettings& settings, Log log);

}  // namespace clustar::coflow::enforce
