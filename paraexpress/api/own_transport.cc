#include "paraexpress/api/own_transport.h"

#include <fmt/format.h>

#include <mutex>
#include <utility>

#include "coflow/enforce/host_policies.h"
#include "nccl_plugin/settings/all_settings.h"
#include "transport/api/settings.h"

namespace clustar::paraexpress {

// Written by any thread that is inside a call of the transport.
struct OwnTransport::Warnings {
  std::mutex mutex;
  std::vector<std::string> texts;
};

OwnTransport::OwnTransport() : warnings_(std::make_shared<Warnings>()) {}

Result<std::unique_ptr<OwnTransport>> OwnTransport::choose(int number) {
  std::unique_ptr<OwnTransport> made(new OwnTransport);
  auto config = load_settings();
  if (!config) return tl::unexpected(config.error());
  const Log log([warnings = made->warnings_](LogLevel level, const std::string& text) {
    if (level != LogLevel::kWarn) return;
    const std::lock_guard lock(warnings->mutex);
    warnings->texts.push_back(text);
  });
  const auto order = config->get<SendOrderSettings>();
  made->job_ = static_cast<std::uint32_t>(order.job);
  auto policies = coflow::enforce::host_policies(order, log);
  if (!policies) return tl::unexpected(policies.error());
  auto selected = transport::select_transport({*config, made->clock_, log, std::move(*policies)});
  if (!selected) {
    std::string message = selected.error().message;
    for (const std::string& warning : made->take_warnings()) message += "\n  warned: " + warning;
    return fail(selected.error().code, std::move(message));
  }
  made->selection_ = std::move(*selected);
  const std::size_t devices = made->transport().devices().size();
  if (devices == 0) {
    return fail(ErrorCode::kUnavailable, fmt::format("transport {} has no device", made->transport().name()));
  }
  made->device_ = static_cast<int>(static_cast<std::size_t>(number) % devices);
  return made;
}

std::vector<std::string> OwnTransport::take_warnings() {
  const std::lock_guard lock(warnings_->mutex);
  return std::exchange(warnings_->texts, {});
}

}  // namespace clustar::paraexpress
