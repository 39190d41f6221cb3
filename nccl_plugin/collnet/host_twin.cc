#include "nccl_plugin/collnet/host_twin.h"

#include <utility>

namespace clustar::nccl_plugin {

Result<std::unique_ptr<HostTwin>> HostTwin::make(const gdr::MakeCopy& make_copy, const gdr::MemoryRef& memory) {
  auto copies = make_copy(memory);
  if (!copies) return tl::unexpected(copies.error());
  auto host = (*copies)->host_buffer(memory.length);
  if (!host) return tl::unexpected(host.error());
  return std::unique_ptr<HostTwin>(new HostTwin(memory.address, std::move(*copies), std::move(*host)));
}

Result<bool> TwinCopy::advance() {
  if (ended_) return true;
  gdr::DeviceCopy& copies = twin_.copies();
  if (!since_) since_ = std::chrono::steady_clock::now();
  if (!ticket_) {
    auto begun = direction_ == Direction::kToHost ? copies.to_host(host_, device_, bytes_)
                                                  : copies.to_device(device_, host_, bytes_);
    if (!begun) return tl::unexpected(begun.error());
    ticket_ = *begun;
  }
  if (!ticket_) return false;
  const auto done = copies.done(*ticket_);
  ended_ = done && *done;
  return done;
}

bool TwinCopy::stands_still() {
  if (told_ || ended_ || !since_ || std::chrono::steady_clock::now() - *since_ < kLong) return false;
  told_ = true;
  return true;
}

}  // namespace clustar::nccl_plugin
