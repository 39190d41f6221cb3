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
#include <utility>
#include <vector>

#include "gdr/memory.h"
#include "nccl_plugin/collnet/control_ring.h"
#include "nccl_plugin/collnet/reductions.h"
#include "nccl_plugin/collnet/window.h"
#include "nccl_plugin/net/plugin_state.h"
#include "paraexpress/engine/engine.h"
#include "transport/api/transport.h"
#include "transport/base/result.h"

namespace clustar::nccl_plugin {

// As NCCL registered it: its mhandle.
struct CollMemory {
  gdr::MemoryRef memory{};
};
// Where a call reads or writes.
struct CollRange {
  std::byte* data = nullptr;
  const CollMemory* memory = nullptr;
};

class CollComm;

class CollRequest {
 public:
  CollComm& owner() const { return owner_; }
  std::size_t bytes() const { return bytes_; }

 private:
  friend class CollComm;
  explicit CollRequest(CollComm& owner, std::size_t bytes) : owner_(owner), bytes_(bytes) {}

  CollComm& owner_;
  const std::size_t bytes_;
  std::vector<std::unique_ptr<paraexpress::Operation>> operations_{};
  // NCCL's memory that is written, by the engine itself or at the end.
  std::span<std::byte> used_{};
  // Of the comm, as long as the request: where the engine works instead.
  std::span<std::byte> room_{};
  // Copied to NCCL's memory at the end.
  std::span<const std::byte> result_{};
  std::byte* result_to_ = nullptr;
  bool taken_back_ = false;  // NCCL's memory, before the end
};

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

  Result<CollMemory*> reg_mr(const gdr::MemoryRef& memory);
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

  // Of the process: when the library is unloaded, its code must not run any more.
  static void abort_all();

 private:
  using Place = std::pair<std::byte*, std::size_t>;
  struct Room {
    std::unique_ptr<std::byte[]> memory;
    std::size_t bytes = 0;
    bool taken = false;
  };
  CollComm(std::shared_ptr<PluginState> plugin, const Options& options);

  Result<void> set_up(transport::Listener& listener, std::span<const transport::Handle> handles);
  CollRequest* add(std::unique_ptr<CollRequest> request);
  void tell(std::uint32_t kind, Arithmetic how, std::size_t bytes, const Window& window);
  std::span<std::byte> take_room(std::size_t bytes);
  void finish(CollRequest* request);
  void compare();
  // What was started, and what will be, fails when it is tested.
  void fail_all(const Error& why);
  void list();
  void unlist();

  const std::shared_ptr<PluginState> plugin_;  // its transport goes last
  const Options options_;
  std::mutex mutex_;
  std::unique_ptr<ControlRing> ring_;
  std::vector<Room> rooms_;  // registered with the engine, so they go after it
  std::unique_ptr<paraexpress::Engine> engine_;
  std::list<std::unique_ptr<CollMemory>> memories_;
  std::map<Place, int> registered_;  // with the engine: NCCL registers the same memory for each of its connections
  std::list<std::unique_ptr<CollRequest>> requests_;
  std::uint64_t started_ = 0;
  std::optional<Error> found_;  // by this rank, before the engine
  bool told_ = false;           // why it failed
  CollComm* next_ = nullptr;
};

}  // namespace clustar::nccl_plugin
