// The rendezvous of ranks, under the name that bench knows it by.
#pragma once

#include "transport/rendezvous/bootstrap.h"

namespace clustar::bench::proxy {

using rendezvous::Bootstrap;

}  // namespace clustar::bench::proxy
