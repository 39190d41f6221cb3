// A transport over host memory as one over GPU memory, too: messages of GPU memory are copied by way of pinned host
// memory. Host memory goes through untouched, and the wire is the inner transport's: the peer may be that without this.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "transport/api/transport.h"
#include "transport/staged/options.h"

namespace clustar::transport::staged {

class StagedTransport final : public Transport {
 public:
  // Outlives nothing: `inner` belongs to it. `clock` outlives it.
  StagedTransport(std::unique_ptr<Transport> inner, Options options, const Clock& clock, Log log);

  const char* name() const override { return name_.c_str(); }  // "tcp+staged"
  // The inner transport's, with Options::kinds among their memory_kinds.
  std::span<const DeviceProperties> devices() const override;
  Result<int> fuse(std::span<const int> devices) override;
  Result<std::unique_ptr<Listener>> listen(int device, const ChannelOptions& options) override;
  Result<std::unique_ptr<PendingConnect>> connect(int device, const Handle& handle,
                                                  const ChannelOptions& options) override;
  transport::Counters counters() const override;

 private:
  // Of devices that fuse() adds; as DeviceTable::kMostFused.
  static constexpr std::size_t kMostFused = 64;

  DeviceProperties describe(const DeviceProperties& inner) const;

  const std::unique_ptr<Transport> inner_;
  const std::string name_;
  Context context_;
  const std::size_t room_;
  const std::unique_ptr<DeviceProperties[]> table_;
  std::atomic<std::size_t> count_{0};
};

// Does a device of it reach GPU memory by itself?
bool reaches_gpus(const Transport& transport);

}  // namespace clustar::transport::staged
