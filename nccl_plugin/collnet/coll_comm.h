// The ranks of one collective network: an engine of ParaExpress, the memory that NCCL registered, what is under way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <tuple>

#include "gdr/memory.h"
#include "nccl_plugin/collnet/coll_request.h"
#include "nccl_plugin/collnet/control_ring.h"
#include "nccl_plugin/collnet/host_twin.h"
#include "nccl_plugin/collnet/reductions.h"
#include "nccl_plugin/collnet/window.h"
#include "nccl_plugin/net/plugin_state.h"
#include "paraexpress/engine/engine.h"
#include "paraexpress/engine/staging.h"
#include "transport/api/transport.h"
#include "transport/base/result.h"

namespace clustar::nccl_plugin {

// Thread rule: any thread. NCCL's progress thread starts and tests, its service thread registers.
class CollComm {
 public:
  struct Options {
    std::uint32_t rank = 0;
    std::uint32_t ranks = 2;
    int device = 0;
    std::uint64_t comm_id = 0;  // 0: unknown
  };
  // Each wait in it, and all of it: a service thread of NCCL's waits for it.
  static constexpr Duration kSetUp = std::chrono::seconds(30);

  // Blocks until all ranks are connected and have measured the network, for kSetUp at most. `handles`: of all ranks'
  // listeners, in their order.
  static Result<std::unique_ptr<CollComm>> connect(std::shared_ptr<PluginState> plugin, transport::Listener& listener,
                                                   std::span<const transport::Handle> handles, const Options& options);
  ~CollComm();
  CollComm(const CollComm&) = delete;
  CollComm& operator=(const CollComm&) = delete;

  const PluginState& plugin() const { return *plugin_; }
  const Options& options() const { return options_; }

  // GPU memory gets a twin, as long as it is registered, which may wait for the GPU; nothing else waits meanwhile.
  // Error: more of it than kMostTwins together, or its twin cannot be made.
  Result<CollMemory*> reg_mr(const gdr::MemoryRef& memory);
  static constexpr std::size_t kMostTwins = std::size_t{4} << 30;  // bytes
  // Nothing reads or writes the memory when it returns: where something is under way there, all of it fails. Then it
  // blocks, for some seconds at most.
  void dereg_mr(CollMemory* memory);

  // The request is this comm's until it is done or fails.
  Result<CollRequest*> all_reduce(const CollRange& send, const CollRange& recv, std::size_t count, Arithmetic how);
  Result<CollRequest*> all_gather(const CollRange& send, const CollRange& recv, const Window& window);
  Result<CollRequest*> reduce_scatter(const CollRange& send, const CollRange& recv, const Window& window,
                                      Arithmetic how);
  // True: it is done, and gone. After an error it is gone, too.
  Result<bool> test(CollRequest* request);

  // Fails what is under way, on all ranks, and ends the engine's thread. Idempotent.
  void abort(const std::string& why);

 private:
  // NCCL registers the same memory for each of its connections.
  using Place = std::tuple<std::byte*, std::size_t, bool>;  // of a GPU
  struct Region {
    int users = 0;
    std::unique_ptr<HostTwin> twin{};
  };
  CollComm(std::shared_ptr<PluginState> plugin, const Options& options);

  Result<void> set_up(transport::Listener& listener, std::span<const transport::Handle> handles);
  Result<std::unique_ptr<HostTwin>> make_twin(const gdr::MemoryRef& memory);
  Result<void> with_engine(const gdr::MemoryRef& memory, HostTwin* twin);
  CollRequest* add(std::unique_ptr<CollRequest> request);
  void tell(CollRequest& request, std::uint32_t kind, Arithmetic how, const Window& window);
  // As far as it goes. True: it is done.
  Result<bool> advance(CollRequest& request);
  bool is_next(const CollRequest& request) const;
  void settle(CollRequest& request);
  void finish(CollRequest* request);
  void compare();
  // What was started, and what will be, fails when it is tested.
  void fail_all(const Error& why);

  const std::shared_ptr<PluginState> plugin_;  // its transport goes last
  const Options options_;
  // Of who registers and deregisters, all the time: NCCL's kernels may wait for the progress thread, and the GPU, which
  // pins and frees memory, for them.
  std::mutex registering_;
  std::mutex mutex_;
  std::unique_ptr<ControlRing> ring_;
  std::unique_ptr<paraexpress::Staging> rooms_;  // registered with the engine, so they go after it
  std::unique_ptr<paraexpress::Engine> engine_;
  std::map<Place, Region> regions_;
  std::size_t twins_bytes_ = 0;
  bool any_twins_ = false;  // at any time
  std::list<std::unique_ptr<CollMemory>> memories_;
  std::list<std::unique_ptr<CollRequest>> requests_;  // in the order of their calls, in which they start
  std::uint64_t started_ = 0;
  std::optional<Error> found_;  // why all fails
  bool told_ = false;           // why it failed
};

}  // namespace clustar::nccl_plugin
