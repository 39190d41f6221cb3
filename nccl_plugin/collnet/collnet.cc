#include "nccl_plugin/collnet/collnet.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "nccl_plugin/abi/collnet.h"
#include "nccl_plugin/c_boundary.h"
#include "nccl_plugin/collnet/coll_comm.h"
#include "nccl_plugin/collnet/offer.h"
#include "nccl_plugin/collnet/reductions.h"
#include "nccl_plugin/net/memory.h"
#include "nccl_plugin/net/plugin_state.h"

namespace clustar::nccl_plugin {
namespace {

constexpr std::size_t kTransportBytes = std::tuple_size_v<transport::Handle>;

struct Context {
  std::shared_ptr<PluginState> plugin;
  std::uint64_t comm_id = 0;  // 0: unknown
};

struct ListenComm {
  std::shared_ptr<PluginState> plugin;
  const Context* context = nullptr;  // compared only
  std::uint64_t comm_id = 0;
  int device = 0;
  std::unique_ptr<transport::Listener> listener;  // null after a connect that failed
};

// NCCL forgets the listener of a connect that failed, so they belong to their context.
struct Listeners {
  std::mutex mutex;
  std::set<std::unique_ptr<ListenComm>> all;

  void close(const void* which) {
    const std::lock_guard lock(mutex);
    std::erase_if(all, [&](const auto& one) { return one.get() == which; });
  }
  void close_of(const Context* context) {
    const std::lock_guard lock(mutex);
    std::erase_if(all, [&](const auto& one) { return one->context == context; });
  }
  void* add(std::unique_ptr<ListenComm> one) {
    const std::lock_guard lock(mutex);
    return all.insert(std::move(one)).first->get();
  }
};
Listeners& listeners() {
  static Listeners all;
  return all;
}

std::mutex& slot_mutex() {
  static std::mutex mutex;
  return mutex;
}
std::unique_ptr<Context>& process_slot() {
  static std::unique_ptr<Context> context;
  return context;
}

template <class... Pointers>
bool any_null(const Pointers*... pointers) {
  return (... || (pointers == nullptr));
}

int failed(const PluginState& plugin, const char* call, const Error& error) {
  plugin.log().warn(fmt::format("CollNet {}: {}", call, error.message));
  return to_nccl(error.code);
}

Result<std::unique_ptr<Context>> make_context(std::uint64_t comm_id, nccl_abi::DebugLogger logger) {
  auto plugin = acquire_plugin(logger);
  if (!plugin) return tl::unexpected(plugin.error());
  if (!offers_collnet(**plugin)) return nullptr;
  return std::make_unique<Context>(Context{std::move(*plugin), comm_id});
}

Result<std::vector<transport::Handle>> handles_of(void* const handles[], int ranks, int rank) {
  if (ranks < 2 || ranks > static_cast<int>(paraexpress::kMostRanks) || rank < 0 || rank >= ranks) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("rank {} of {}; allowed: 2 to {} ranks, numbered from 0. On one node NCCL needs no "
                            "collective network",
                            rank, ranks, paraexpress::kMostRanks));
  }
  std::vector<transport::Handle> all(static_cast<std::size_t>(ranks));
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (handles[i] == nullptr) return fail(ErrorCode::kInvalidArgument, "a null handle");
    std::memcpy(all[i].data(), handles[i], kTransportBytes);
  }
  return all;
}

// Starts a collective, as an ncclResult_t.
template <class Start>
int start(CollComm& comm, const char* call, void** request, Start&& begin) {
  auto started = begin();
  if (!started) return failed(comm.plugin(), call, started.error());
  *request = *started;
  return nccl_abi::kSuccess;
}

Result<Arithmetic> arithmetic(int data_type, int red_op) {
  if (const auto how = arithmetic_of(data_type, red_op)) return *how;
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("datatype {} with operator {}; allowed: {}", data_type, red_op, offered_reductions()));
}

Result<void> check_part(const CollPart& part, int parts, const CollWindow& window) {
  if (parts != 1) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("{} parts; allowed: 1, as NCCL gives", parts));
  }
  if (part.size != window.bytes) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a part of {} bytes for a window of {}; allowed: the same", part.size, window.bytes));
  }
  return {};
}

CollRange range_of(void* data, void* mhandle) {
  return {static_cast<std::byte*>(data), static_cast<const CollMemory*>(mhandle)};
}

Window window_of(const CollComm& comm, const CollWindow& window) {
  return {window.bytes_per_rank, window.offset, window.bytes, comm.options().ranks};
}

int register_memory(CollComm& comm, const char* call, const Result<gdr::MemoryRef>& memory, void** mhandle) {
  if (!memory) return failed(comm.plugin(), call, memory.error());
  const auto made = comm.reg_mr(*memory);
  if (!made) return failed(comm.plugin(), call, made.error());
  *mhandle = *made;
  return nccl_abi::kSuccess;
}

transport::DeviceProperties device_of(const CollComm& comm) {
  return comm.plugin().properties(static_cast<std::size_t>(comm.options().device));
}

}  // namespace

int collnet_init(void** context, std::uint64_t comm_id, nccl_abi::DebugLogger logger) {
  return guarded([&] {
    if (any_null(context)) return int{nccl_abi::kInvalidArgument};
    *context = nullptr;
    auto made = make_context(comm_id, logger);
    if (!made) return to_nccl(made.error().code);
    *context = made->release();
    return int{nccl_abi::kSuccess};
  });
}

int collnet_init_process(nccl_abi::DebugLogger logger) {
  return guarded([&] {
    const std::lock_guard lock(slot_mutex());
    if (process_slot()) return int{nccl_abi::kSuccess};
    auto made = make_context(0, logger);
    if (!made) return to_nccl(made.error().code);
    process_slot() = std::move(*made);
    return int{nccl_abi::kSuccess};
  });
}

void* collnet_process_context() {
  const std::lock_guard lock(slot_mutex());
  return process_slot().get();
}

int collnet_finalize(void* context) {
  return guarded([&] {
    if (context == nullptr) return int{nccl_abi::kSuccess};
    listeners().close_of(static_cast<Context*>(context));
    delete static_cast<Context*>(context);
    return int{nccl_abi::kSuccess};
  });
}

int collnet_devices(int* count) {
  return guarded([&] {
    if (any_null(count)) return int{nccl_abi::kInvalidArgument};
    const auto plugin = current_plugin();
    *count = plugin && offers_collnet(*plugin) ? static_cast<int>(plugin->device_count()) : 0;
    return int{nccl_abi::kSuccess};
  });
}

std::optional<NetDevice> collnet_device(int device) {
  const auto plugin = current_plugin();
  auto found = net_device(device);
  if (!plugin || !found || !offers_collnet(*plugin)) return std::nullopt;
  found->properties = plugin->properties(static_cast<std::size_t>(device));
  return found;
}

int collnet_listen(void* context, int device, void* handle, void** listen_comm) {
  return guarded([&] {
    if (any_null(context, handle, listen_comm)) return int{nccl_abi::kInvalidArgument};
    *listen_comm = nullptr;
    const Context& from = *static_cast<Context*>(context);
    const PluginState& plugin = *from.plugin;
    transport::ChannelOptions options = collnet_channel(plugin, from.comm_id, -1);
    auto listener = plugin.transport()->listen(device, options);
    if (!listener) return failed(plugin, "listen", listener.error());
    std::memset(handle, 0, nccl_abi::kHandleBytes);
    std::memcpy(handle, (*listener)->handle().data(), kTransportBytes);
    *listen_comm = listeners().add(
        std::make_unique<ListenComm>(ListenComm{from.plugin, &from, from.comm_id, device, std::move(*listener)}));
    return int{nccl_abi::kSuccess};
  });
}

int collnet_connect(void* handles[], int ranks, int rank, void* listen_comm, void** coll_comm) {
  return guarded([&] {
    if (any_null(coll_comm)) return int{nccl_abi::kInvalidArgument};
    *coll_comm = nullptr;
    // NCCL tries again for its other connections with the listener that it forgot.
    if (any_null(handles, listen_comm)) return int{nccl_abi::kInvalidArgument};
    ListenComm& listen = *static_cast<ListenComm*>(listen_comm);
    if (listen.listener == nullptr) return int{nccl_abi::kInvalidUsage};
    const auto given = handles_of(handles, ranks, rank);
    auto comm = given ? CollComm::connect(listen.plugin, *listen.listener, *given,
                                          {static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(ranks),
                                           listen.device, listen.comm_id})
                      : tl::unexpected(given.error());
    if (!comm) {
      listen.listener.reset();
      return failed(*listen.plugin, "connect", comm.error());
    }
    *coll_comm = comm->release();
    return int{nccl_abi::kSuccess};
  });
}

int collnet_reduce_support(int data_type, int red_op, int* supported) {
  if (supported == nullptr) return nccl_abi::kInvalidArgument;
  *supported = arithmetic_of(data_type, red_op) ? 1 : 0;
  return nccl_abi::kSuccess;
}

int collnet_reg_mr(void* coll_comm, void* data, std::size_t size, int type, void** mhandle) {
  return guarded([&] {
    if (any_null(coll_comm, mhandle)) return int{nccl_abi::kInvalidArgument};
    *mhandle = nullptr;
    CollComm& comm = *static_cast<CollComm*>(coll_comm);
    return register_memory(comm, "regMr", memory_of(device_of(comm), data, size, type), mhandle);
  });
}

int collnet_reg_mr_dma_buf(void* coll_comm, void* data, std::size_t size, int type, std::uint64_t offset, int fd,
                           void** mhandle) {
  return guarded([&] {
    if (any_null(coll_comm, mhandle)) return int{nccl_abi::kInvalidArgument};
    *mhandle = nullptr;
    CollComm& comm = *static_cast<CollComm*>(coll_comm);
    return register_memory(comm, "regMrDmaBuf", dma_buf_of(device_of(comm), data, size, type, offset, fd), mhandle);
  });
}

int collnet_dereg_mr(void* coll_comm, void* mhandle) {
  return guarded([&] {
    if (any_null(coll_comm)) return int{nccl_abi::kInvalidArgument};
    if (mhandle != nullptr) static_cast<CollComm*>(coll_comm)->dereg_mr(static_cast<CollMemory*>(mhandle));
    return int{nccl_abi::kSuccess};
  });
}

int collnet_iallreduce(void* coll_comm, void* send, void* recv, std::size_t count, int data_type, int red_op,
                       void* send_mhandle, void* recv_mhandle, void** request) {
  return guarded([&] {
    if (any_null(coll_comm, request)) return int{nccl_abi::kInvalidArgument};
    *request = nullptr;
    CollComm& comm = *static_cast<CollComm*>(coll_comm);
    return start(comm, "iallreduce", request, [&]() -> Result<CollRequest*> {
      const auto how = arithmetic(data_type, red_op);
      if (!how) return tl::unexpected(how.error());
      return comm.all_reduce(range_of(send, send_mhandle), range_of(recv, recv_mhandle), count, *how);
    });
  });
}

int collnet_iallgather(void* coll_comm, void* send, int parts, const CollPart& recv, const CollWindow& window,
                       void* send_mhandle, void** request) {
  return guarded([&] {
    if (any_null(coll_comm, request)) return int{nccl_abi::kInvalidArgument};
    *request = nullptr;
    CollComm& comm = *static_cast<CollComm*>(coll_comm);
    return start(comm, "iallgather", request, [&]() -> Result<CollRequest*> {
      if (const auto ok = check_part(recv, parts, window); !ok) return tl::unexpected(ok.error());
      return comm.all_gather(range_of(send, send_mhandle), range_of(recv.address, recv.mhandle),
                             window_of(comm, window));
    });
  });
}

int collnet_ireducescatter(void* coll_comm, int parts, const CollPart& send, void* recv, const CollWindow& window,
                           int data_type, int red_op, void* recv_mhandle, void** request) {
  return guarded([&] {
    if (any_null(coll_comm, request)) return int{nccl_abi::kInvalidArgument};
    *request = nullptr;
    CollComm& comm = *static_cast<CollComm*>(coll_comm);
    return start(comm, "ireducescatter", request, [&]() -> Result<CollRequest*> {
      if (const auto ok = check_part(send, parts, window); !ok) return tl::unexpected(ok.error());
      const auto how = arithmetic(data_type, red_op);
      if (!how) return tl::unexpected(how.error());
      return comm.reduce_scatter(range_of(send.address, send.mhandle), range_of(recv, recv_mhandle),
                                 window_of(comm, window), *how);
    });
  });
}

int collnet_iflush(void* coll_comm, void* /*data*/, int /*size*/, void* /*mhandle*/, void** request) {
  if (any_null(coll_comm, request)) return nccl_abi::kInvalidArgument;
  *request = nullptr;
  return nccl_abi::kSuccess;
}

int collnet_test(void* request, int* done, int* size) {
  return guarded([&] {
    if (any_null(request, done)) return int{nccl_abi::kInvalidArgument};
    *done = 0;
    auto* const one = static_cast<CollRequest*>(request);
    const std::size_t bytes = one->bytes();
    const auto ended = one->owner().test(one);
    if (!ended) return to_nccl(ended.error().code);
    if (!*ended) return int{nccl_abi::kSuccess};
    if (size != nullptr) *size = static_cast<int>(std::min<std::size_t>(bytes, INT_MAX));
    *done = 1;
    return int{nccl_abi::kSuccess};
  });
}

int collnet_close_coll(void* coll_comm) {
  return guarded([&] {
    delete static_cast<CollComm*>(coll_comm);
    return int{nccl_abi::kSuccess};
  });
}

int collnet_close_listen(void* listen_comm) {
  return guarded([&] {
    listeners().close(listen_comm);
    return int{nccl_abi::kSuccess};
  });
}

}  // namespace clustar::nccl_plugin
