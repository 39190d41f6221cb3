#include "tests/conformance/own_network.h"

#include <fmt/format.h>
#include <sched.h>

#include <cerrno>

#include "tests/run_command.h"
#include "transport/base/file_descriptor.h"

namespace clustar::transport::conformance {

Result<void> enter_own_network() {
  static const Result<void> entered = []() -> Result<void> {
    if (::unshare(CLONE_NEWNET) != 0) {
      return fail(ErrorCode::kUnavailable, "may make no network namespace: " + describe_errno(errno));
    }
    return shell("ip link set lo up");
  }();
  return entered;
}

Result<void> shell(const std::string& command) {
  const tests::Outcome done = tests::run_command(command);
  if (done.status == 0) return {};
  return fail(ErrorCode::kUnavailable, fmt::format("'{}' failed: {}", command, done.text));
}

}  // namespace clustar::transport::conformance
