#include "tests/rdma/cable.h"

#include <array>

#include "tests/rdma/link.h"
#include "transport/api/settings.h"
#include "transport/base/system_clock.h"
#include "transport/net/settings.h"

namespace clustar::tests {

using transport::ChannelOptions;
using transport::Handle;
using transport::Listener;
using transport::PendingConnect;
using transport::verbs::Settings;
using transport::verbs::VerbsTransport;

Result<std::unique_ptr<Cable>> Cable::make(const Change& change, Log log, const std::string& send_order) {
  if (const std::string reason = why_no_devices(); !reason.empty()) return fail(ErrorCode::kUnavailable, reason);
  static const SystemClock clock;
  Config config;
  config.edit<NetworkSettings>()->interfaces = "=lo";
  config.edit<SendOrderSettings>()->order = send_order;
  Settings settings(config);
  settings.hca_filter = "=rxe_a,rxe_b";
  // A dead peer is found out by other means; what the emulated network delays must not end a connection.
  settings.retry.timeout = 16;
  change(settings);
  auto inner = VerbsTransport::create(settings, {config, clock, std::move(log)});
  if (!inner) return tl::unexpected(inner.error());
  std::unique_ptr<Cable> made(new Cable(std::move(*inner)));
  made->connects_ = made->devices()[0].name == "rxe_a" ? 0 : 1;
  made->listens_ = 1 - made->connects_;
  return made;
}

Result<void> Cable::fuse_both() {
  const std::array<int, 2> both{connects_, listens_};
  const auto fused = inner_->fuse(both);
  if (!fused) return tl::unexpected(fused.error());
  connects_ = listens_ = *fused;
  return {};
}

Result<std::unique_ptr<Listener>> Cable::listen(int device, const ChannelOptions& options) {
  return inner_->listen(device == 0 ? listens_ : device, options);
}

Result<std::unique_ptr<PendingConnect>> Cable::connect(int device, const Handle& handle,
                                                       const ChannelOptions& options) {
  return inner_->connect(device == 0 ? connects_ : device, handle, options);
}

}  // namespace clustar::tests
