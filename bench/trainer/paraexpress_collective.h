// ParaExpress's collectives, over the transport that the environment's settings choose; no net plugin is in between.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/proxy/bootstrap.h"
#include "bench/trainer/collective.h"
#include "bench/trainer/paraexpress_options.h"
#include "paraexpress/api/own_transport.h"
#include "paraexpress/communicator/communicator.h"
#include "paraexpress/engine/engine.h"
#include "transport/base/result.h"
#include "transport/base/time.h"

namespace clustar::bench::trainer {

class ParaexpressCollective final : public Collective {
 public:
  struct Options {
    ParaexpressOptions plan{};  // completed
    std::uint64_t comm_id = 0;  // the same on all ranks
    // The longest that nothing of a collective moves; 0: forever.
    std::chrono::milliseconds stall_timeout{120000};
    bool exchanges = false;  // connects for all_to_all(), too
  };
  // All ranks call it; `bootstrap` is used during the call only. Errors carry what the transport warned of.
  static Result<std::unique_ptr<ParaexpressCollective>> create(proxy::Bootstrap& bootstrap, const Options& options);
  ~ParaexpressCollective() override { (void)close(); }

  int size() const override { return size_; }
  Buffer map(void* host, std::size_t bytes) override;
  // There is no device here, so an event or a buffer of one is a mistake of the caller.
  std::unique_ptr<Pending> all_reduce(Buffer values, std::size_t count, Precision type, Event ready,
                                      float* lost) override;
  std::unique_ptr<Pending> all_gather(Buffer own, Buffer all, std::size_t bytes, Event ready) override;
  std::unique_ptr<Pending> reduce_scatter(Buffer values, std::size_t count, Precision type, Event ready) override;
  // By messages of a communicator of its own, through memory that it stages. Needs Options::exchanges.
  std::unique_ptr<Pending> all_to_all(Buffer send, Buffer recv, const BlockSizes& bytes) override;
  void abort() override;
  Result<void> close() override;
  // Without what the engine sent to measure the network, and without exchanges.
  std::optional<Traffic> traffic() const override;

  std::string transport() const { return own_->transport().name(); }
  const std::string& device() const { return own_->device_name(); }
  paraexpress::Plan plan_for(std::uint64_t bytes) const { return engine_->plan_for(bytes); }
  std::string regions() const { return engine_->regions(); }
  std::string regions_found() const { return engine_->regions_found(); }
  // What the transport warned of since the call before; once, helpers that did not come.
  std::vector<std::string> take_warnings();
  std::uint32_t helpers() const { return engine_->helpers(); }

 private:
  explicit ParaexpressCollective(proxy::Bootstrap& bootstrap);
  Result<void> connect(proxy::Bootstrap& bootstrap, const Options& options);
  Result<void> connect_exchanges(proxy::Bootstrap& bootstrap);

  int rank_;
  int size_;
  std::optional<Error> error_;  // of mapping
  std::optional<std::string> warning_;
  bool closed_ = false;
  std::unique_ptr<paraexpress::OwnTransport> own_;  // outlives the engine
  std::unique_ptr<paraexpress::Engine> engine_;
  std::unique_ptr<paraexpress::Communicator> exchanges_;  // null: none
  Duration stall_{};
  paraexpress::EngineTraffic measuring_;
};

}  // namespace clustar::bench::trainer
