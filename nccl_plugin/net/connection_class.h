// The class of a connection that has one for all its messages (RDMA's queue pairs), by how urgent its communicator is.
#pragma once

#include "nccl_plugin/net/urgency_rules.h"
#include "transport/api/level_classes.h"

namespace clustar::nccl_plugin {

// The byte in the IP header, of which verbs takes the upper three bits as service level, too; -1: none. What of the
// communicator's traffic no rule tells apart counts, as large messages have it: a connection carries more of them.
int connection_class(const transport::LevelClasses& classes, const Urgencies& urgencies);

}  // namespace clustar::nccl_plugin
