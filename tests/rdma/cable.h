// The verbs transport over the cable between the two SoftRoCE devices, as one transport: what connects is rxe_a, what
// listens is rxe_b.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "transport/api/transport.h"
#include "transport/base/log.h"
#include "transport/verbs/verbs_transport.h"

namespace clustar::tests {

class Cable final : public transport::Transport {
 public:
  using Change = std::function<void(transport::verbs::Settings&)>;
  // `change`: of the settings.
  static Result<std::unique_ptr<Cable>> make(const Change& change, Log log, const std::string& send_order = "fifo");

  const char* name() const override { return "verbs"; }
  std::span<const transport::DeviceProperties> devices() const override { return inner_->devices(); }
  Result<std::unique_ptr<transport::Listener>> listen(int device, const transport::ChannelOptions& options) override;
  Result<std::unique_ptr<transport::PendingConnect>> connect(int device, const transport::Handle& handle,
                                                             const transport::ChannelOptions& options) override;
  transport::Counters counters() const override { return inner_->counters(); }
  // From now on both are the device that has both ports.
  Result<void> fuse_both();

 private:
  explicit Cable(std::unique_ptr<transport::verbs::VerbsTransport> inner) : inner_(std::move(inner)) {}

  std::unique_ptr<transport::verbs::VerbsTransport> inner_;
  int connects_ = 0;
  int listens_ = 1;
};

}  // namespace clustar::tests
