// A collective that failed before it started.
#pragma once

#include <memory>
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

}  // namespace clustar::bench::trainer
