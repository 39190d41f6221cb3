// Gradients summed by ParaExpress's tolerant contract, over the transport that the environment's settings choose.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/proxy/bootstrap.h"
#include "bench/trainer/collective.h"
#include "paraexpress/api/own_transport.h"
#include "paraexpress/tolerant/tolerant.h"
#include "transport/base/result.h"

namespace clustar::bench::trainer {

class TolerantCollective final : public Collective {
 public:
  struct Options {
    paraexpress::tolerant::Tolerance tolerance{};
    std::uint32_t buckets = 1;
    std::uint64_t comm_id = 0;                        // the same on all ranks
    std::chrono::milliseconds stall_timeout{120000};  // 0: forever
  };
  // All ranks call it; `bootstrap` is used during the call only.
  static Result<std::unique_ptr<TolerantCollective>> create(proxy::Bootstrap& bootstrap, const Options& options);
  ~TolerantCollective() override { (void)close(); }

  int size() const override { return size_; }
  Buffer map(void* host, std::size_t) override { return {static_cast<std::byte*>(host)}; }
  bool begin_step() override;
  // Each buffer is a bucket of its own, numbered by first use, which is the same order on all ranks.
  // Of float32 only.
  std::unique_ptr<Pending> all_reduce(Buffer values, std::size_t count, Precision type, Event ready,
                                      float* lost) override;
  std::unique_ptr<Pending> all_gather(Buffer own, Buffer all, std::size_t bytes, Event ready) override;
  void abort() override;
  Result<void> close() override;
  std::optional<Traffic> traffic() const override;

  std::string transport() const { return own_->transport().name(); }
  const std::string& device() const { return own_->device_name(); }
  std::vector<std::string> take_warnings() { return own_->take_warnings(); }

 private:
  explicit TolerantCollective(proxy::Bootstrap& bootstrap) : rank_(bootstrap.rank()), size_(bootstrap.size()) {}

  int rank_;
  int size_;
  bool gives_ = true;  // in this step
  std::map<const std::byte*, std::uint32_t> buckets_{};
  std::unique_ptr<paraexpress::OwnTransport> own_;  // outlives the group
  std::unique_ptr<paraexpress::tolerant::Group> group_;
};

}  // namespace clustar::bench::trainer
