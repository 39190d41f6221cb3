// libclustar-compare.so: recoveries of others, which the registry opens only where a setting asks for one.
#include "transport/module.h"

#include <cstring>

#include "mlt/compare/recoveries.h"
#include "mlt/compare/settings.h"
#include "mlt/driver/recovery_module.h"

namespace clustar::mlt::compare {
namespace {

Result<std::unique_ptr<Recovery>> open(const Config& config) {
  const Duration deadline = config.get<CompareSettings>().static_deadline;
  if (deadline > Duration::zero()) return std::make_unique<StaticDeadline>(deadline);
  return fail(ErrorCode::kInvalidArgument, "no setting asks for another recovery; CLUSTAR_STATIC_DEADLINE does");
}

Result<std::unique_ptr<transport::Transport>> create(const transport::TransportContext&) {
  return fail(ErrorCode::kUnavailable, "libclustar-compare.so is no transport");
}

transport::ModuleEntry::Function find(const char* name) {
  constexpr driver::OpenRecovery kOpens = open;
  if (std::strcmp(name, driver::kOpenRecovery) != 0) return nullptr;
  return reinterpret_cast<transport::ModuleEntry::Function>(kOpens);
}

}  // namespace
}  // namespace clustar::mlt::compare

extern "C" __attribute__((visibility("default"))) const clustar::transport::ModuleEntry clustar_module;
const clustar::transport::ModuleEntry clustar_module = {.create = clustar::mlt::compare::create,
                                                        .find = clustar::mlt::compare::find};
