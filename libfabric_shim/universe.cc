#include "libfabric_shim/universe.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace clustar::transport::ofi {
namespace {

constexpr const char* kVariable = "FI_UNIVERSE_SIZE";

// Only there the queue is a NIC's.
bool has_rdma_device() {
  std::error_code ignored;
  return std::filesystem::exists("/sys/class/infiniband", ignored) &&
         !std::filesystem::is_empty("/sys/class/infiniband", ignored);
}

}  // namespace

// setenv of a name that is there changes nothing, and says nothing of it.
SmallUniverse::SmallUniverse() {
  if (!has_rdma_device() || ::getenv(kVariable) != nullptr) return;
  set_ = ::setenv(kVariable, "8", 0) == 0;
}

SmallUniverse::~SmallUniverse() {
  if (set_) ::unsetenv(kVariable);
}

}  // namespace clustar::transport::ofi
