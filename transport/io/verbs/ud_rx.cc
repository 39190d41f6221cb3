#include "transport/io/verbs/ud_rx.h"

#include <algorithm>
#include <utility>

namespace clustar::transport::io::verbs {
namespace {

constexpr std::size_t kLine = 64;  // of a cache: neighbours do not share one

}  // namespace

UdRx::UdRx(std::vector<std::byte> slots, std::size_t stride, MemoryRegion region, CompletionQueue completions,
           SharedReceiveQueue receives)
    : slots_(std::move(slots)),
      stride_(stride),
      region_(std::move(region)),
      completions_(std::move(completions)),
      receives_(std::move(receives)) {}

Result<std::unique_ptr<UdRx>> UdRx::make(const Device& device, const ProtectionDomain& domain, std::uint32_t slots,
                                         std::size_t most) {
  const std::size_t stride = (kNetworkHeader + most + kLine - 1) / kLine * kLine;
  std::vector<std::byte> memory(slots * stride);
  auto region = MemoryRegion::make(domain, gdr::MemoryRef::host(memory.data(), memory.size()), IBV_ACCESS_LOCAL_WRITE);
  if (!region) return tl::unexpected(region.error());
  auto completions = CompletionQueue::make(device, static_cast<int>(slots), true);
  if (!completions) return tl::unexpected(completions.error());
  auto receives = SharedReceiveQueue::make(domain, slots);
  if (!receives) return tl::unexpected(receives.error());
  std::unique_ptr<UdRx> made(
      new UdRx(std::move(memory), stride, std::move(*region), std::move(*completions), std::move(*receives)));
  for (std::uint32_t slot = 0; slot < slots; ++slot) made->returned_.push_back(slot);
  if (auto posted = made->post(); !posted) return tl::unexpected(posted.error());
  return made;
}

Result<std::span<const ibv_wc>> UdRx::take(std::size_t most) {
  if (done_next_ == done_count_) {
    done_next_ = done_count_ = 0;
    const auto polled = completions_.poll(std::span(done_).first(std::min(most, done_.size())));
    if (!polled) return tl::unexpected(polled.error());
    done_count_ = *polled;
    posted_ -= std::min(posted_, done_count_);
  }
  const std::size_t count = std::min(most, done_count_ - done_next_);
  done_next_ += count;
  return std::span<const ibv_wc>(done_).subspan(done_next_ - count, count);
}

void UdRx::give_back(std::uint64_t slot) { returned_.push_back(static_cast<std::uint32_t>(slot)); }

Result<void> UdRx::post() {
  std::array<ibv_recv_wr, kBurst> requests;
  std::array<ibv_sge, kBurst> pieces;
  while (!returned_.empty()) {
    const std::size_t count = std::min(returned_.size(), kBurst);
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint32_t slot = returned_[returned_.size() - 1 - i];
      pieces[i] = region_.slice(slot * stride_, stride_);
      requests[i] = {
          .wr_id = slot, .next = i + 1 < count ? &requests[i + 1] : nullptr, .sg_list = &pieces[i], .num_sge = 1};
    }
    if (auto posted = receives_.post(requests[0]); !posted) return posted;
    returned_.resize(returned_.size() - count);
    posted_ += count;
  }
  return {};
}

Result<bool> UdRx::arm() {
  // Events of what was taken meanwhile would end the next sleep.
  const auto drained = completions_.wait(Duration(0));
  if (!drained) return drained;
  if (auto armed = completions_.arm(); !armed) return tl::unexpected(armed.error());
  if (done_next_ < done_count_) return false;
  done_next_ = done_count_ = 0;
  const auto polled = completions_.poll(done_);
  if (!polled) return tl::unexpected(polled.error());
  done_count_ = *polled;
  posted_ -= std::min(posted_, done_count_);
  return done_count_ == 0;
}

}  // namespace clustar::transport::io::verbs
