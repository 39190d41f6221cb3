// A collective that failed before it started.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "bench/trainer/collective.h"

namespace clustar::bench::trainer {

inline std::unique_ptr<Pending> failed_pending(Error error) {
  class Failed final : public Pending {
   public:
    explicit Failed(Error error) : error_(std::move(error)) {}
    Result<CollectiveOutcome> wait() override { return tl::unexpected(error_); }
    Result<void> hold_back(Stream) override { return tl::unexpected(error_); }

   private:
    Error error_;
  };
  return std::make_unique<Failed>(std::move(error));
}

// `who`: a collective that knows no 16-bit types.
inline std::unique_ptr<Pending> sums_float32_only(const char* who) {
  return failed_pending({ErrorCode::kUnavailable, std::string("16-bit gradients are not for ") + who +
                                                      "; allowed: proxy, nccl, and paraexpress"});
}

}  // namespace clustar::bench::trainer
