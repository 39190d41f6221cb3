// Hosts that a command made for itself and left behind.
#pragma once

#include <string>

#include "tests/run_command.h"

namespace clustar::tests {

// Of fabrics `clustar-PREFIX-<process id>` (bench/fabric/process_fabric.h) whose maker is gone; "": none. Makers of
// other tests run beside, and may end between two looks: with their hosts.
inline std::string left_hosts(const std::string& prefix) {
  const std::string list = "ip netns list 2>/dev/null | grep ";
  return run_command("for pid in $(" + list + "-o 'clustar-" + prefix +
                     "-[0-9]*' | grep -o '[0-9]*$' | sort -u); do test -d /proc/$pid || ! " + list + "\"clustar-" +
                     prefix + "-$pid-\"; done")
      .text;
}

}  // namespace clustar::tests
