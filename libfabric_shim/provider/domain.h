// Fabric and domain. A domain is one interface with a transport of its own; its lock guards all objects in it.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "libfabric_shim/provider/objects.h"
#include "libfabric_shim/provider/types.h"
#include "transport/base/config.h"
#include "transport/base/system_clock.h"
#include "transport/registry.h"

namespace clustar::libfabric_shim::provider {

class Fabric final : public fid_fabric {
 public:
  static int open(fi_fabric_attr* attr, fid_fabric** made, void* context);
  explicit Fabric(void* context);

  std::atomic<int> children{0};
};

class Domain final : public fid_domain {
 public:
  static int open(fid_fabric* fabric, fi_info* info, fid_domain** made, void* context);
  ~Domain();

  std::mutex& mutex() { return mutex_; }
  transport::Transport& transport() { return *selection_->transport; }
  const Clock& clock() const { return clock_; }
  const Log& log() const { return log_; }
  const ProviderSettings& settings() const { return settings_; }
  AddressBook& book() { return book_; }

  // Endpoints, queues, vectors and regions in it: it closes after them.
  std::atomic<int> children{0};

 private:
  Domain(Fabric& fabric, void* context);
  Result<void> choose(const std::string& interface);

  Fabric& fabric_;
  std::mutex mutex_;
  SystemClock clock_;
  Log log_;
  ProviderSettings settings_;
  AddressBook book_;
  std::optional<transport::Selection> selection_;
};

}  // namespace clustar::libfabric_shim::provider
