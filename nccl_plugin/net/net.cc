#include "nccl_plugin/net/net.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "nccl_plugin/c_boundary.h"
#include "nccl_plugin/net/failed_requests.h"
#include "nccl_plugin/net/fusion.h"
#include "nccl_plugin/net/memory.h"
#include "nccl_plugin/net/message_flow.h"
#include "nccl_plugin/net/plugin_state.h"
#include "nccl_plugin/process.h"

namespace clustar::nccl_plugin {
namespace {

using transport::RecvPart;

// NCCL gives one `void* comm` to regMr for both directions, so both begin with the same base.
struct Comm {
  Comm(std::shared_ptr<PluginState> state, const transport::DeviceProperties& of)
      : plugin(std::move(state)), device(of) {}
  virtual ~Comm() = default;
  virtual Result<std::unique_ptr<transport::Mr>> reg_mr(const gdr::MemoryRef& memory) = 0;

  std::shared_ptr<PluginState> plugin;        // declared first: the channels below go before their transport
  const transport::DeviceProperties& device;  // the transport's, as long as it lives
  FailedRequests failed;
};
struct SendComm final : Comm {
  using Comm::Comm;
  Result<std::unique_ptr<transport::Mr>> reg_mr(const gdr::MemoryRef& memory) override {
    return channel->reg_mr(memory);
  }
  std::unique_ptr<transport::SendChannel> channel;
  std::uint8_t traffic_class = 0;
  Urgencies urgencies;
  std::uint64_t context = 0;  // whose connection it is: CommContext::serial()
  nccl_abi::ProfilerCallback callback = nullptr;
  ChannelFacts facts;
};
struct RecvComm final : Comm {
  using Comm::Comm;
  Result<std::unique_ptr<transport::Mr>> reg_mr(const gdr::MemoryRef& memory) override {
    return channel->reg_mr(memory);
  }
  std::unique_ptr<transport::RecvChannel> channel;
};
struct ListenComm {
  std::shared_ptr<PluginState> plugin;
  int device;
  std::unique_ptr<transport::Listener> listener;
};

// The last 8 bytes of NCCL's handle are ours between two calls of connect; 0 = not begun.
constexpr std::size_t kTransportBytes = std::tuple_size_v<transport::Handle>;
static_assert(kTransportBytes + sizeof(std::uint64_t) == nccl_abi::kHandleBytes);

int refuse(const PluginState& plugin, const char* call) {
  plugin.log().warn(fmt::format("{} refused: {}", call, plugin.refusal().message));
  return nccl_abi::kSystemError;
}

int failed(const PluginState& plugin, const char* call, const Error& error) {
  plugin.log().warn(fmt::format("{}: {}", call, error.message));
  return to_nccl(error.code);
}

// What the connection could not take, unless the caller is wrong, fails when it is tested. It was logged when it
// happened.
int fail_at_test(Comm& comm, const char* call, const Error& error, void** request) {
  if (error.code == ErrorCode::kInvalidArgument) return failed(*comm.plugin, call, error);
  *request = comm.failed.take(error);
  return nccl_abi::kSuccess;
}

// Null: there is no such device.
const transport::DeviceProperties* properties_of(const PluginState& plugin, int device) {
  const auto devices = plugin.transport()->devices();
  return device >= 0 && static_cast<std::size_t>(device) < devices.size() ? &devices[static_cast<std::size_t>(device)]
                                                                          : nullptr;
}

// Null pointers where NCCL's contract has none come from a broken caller; there may be nothing to log with.
template <class... Pointers>
bool any_null(const Pointers*... pointers) {
  return (... || (pointers == nullptr));
}

struct Range {
  const transport::Mr* mr;
  std::size_t offset;
};

// Where [data, data + size) lies in a registration. An empty message needs no memory.
Result<Range> locate(const char* call, void* data, std::size_t size, void* mhandle) {
  const auto* mr = static_cast<const transport::Mr*>(mhandle);
  if (size == 0) return Range{mr, 0};
  if (mr == nullptr) return fail(ErrorCode::kInvalidArgument, fmt::format("{}: memory that is not registered", call));
  const gdr::MemoryRef& memory = mr->memory();
  const auto* start = static_cast<const std::byte*>(data);
  const bool inside = start >= memory.address && size <= memory.length &&
                      static_cast<std::size_t>(start - memory.address) <= memory.length - size;
  if (!inside) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: {} bytes at {} are outside the registered {} bytes at {}", call, size,
                            static_cast<const void*>(data), memory.length, static_cast<const void*>(memory.address)));
  }
  return Range{mr, static_cast<std::size_t>(start - memory.address)};
}

// NCCL counts the whole group: a receive of it that got nothing has size 0, and perhaps no memory (v2.28.9
// src/transport/net.cc recvProxyProgress). Without sizes it is all that is registered from `data` on.
std::size_t flushed_bytes(const int* size, const void* data, void* mhandle) {
  if (size != nullptr) return static_cast<std::size_t>(std::max(*size, 0));
  if (mhandle == nullptr) return 0;
  const gdr::MemoryRef& memory = static_cast<const transport::Mr*>(mhandle)->memory();
  const auto* start = static_cast<const std::byte*>(data);
  const bool inside = start >= memory.address && start < memory.address + memory.length;
  return inside ? static_cast<std::size_t>(memory.address + memory.length - start) : 1;
}

int register_memory(Comm& owner, const char* call, const Result<gdr::MemoryRef>& memory, void** mhandle) {
  if (!memory) return failed(*owner.plugin, call, memory.error());
  auto mr = owner.reg_mr(*memory);
  if (!mr) return failed(*owner.plugin, call, mr.error());
  *mhandle = mr->release();
  return nccl_abi::kSuccess;
}

const transport::Mr& empty_mr() {
  static const transport::Mr mr(gdr::MemoryRef::host(nullptr, 0));
  return mr;
}

std::mutex& statics_mutex() {
  static std::mutex mutex;
  return mutex;
}

// NCCL keeps the pointers that getProperties gave it.
const char* interned(const std::string& text) {
  static std::set<std::string> texts;
  const std::lock_guard lock(statics_mutex());
  return texts.insert(text).first->c_str();
}

// What setNetAttr said last on this thread. NCCL calls it from the progress thread just before isend, and with
// undefined values from the service thread (v2.28.9 src/transport/net.cc setXferNetAttrs).
struct ThreadAttributes {
  std::uint64_t context = 0;  // CommContext::serial(); an address might come back
  std::uint32_t op = nccl_abi::kNetAttrUndefined;
  std::uint32_t algo = nccl_abi::kNetAttrUndefined;
  std::uint32_t proto = nccl_abi::kNetAttrUndefined;
};
thread_local ThreadAttributes thread_attributes;

NetGuard guard_of(const SendComm& comm) {
  const ThreadAttributes& told = thread_attributes;
  return {comm.facts.knows_comm, told.context != 0 && told.context == comm.context, told.op, told.algo, told.proto};
}

// So many messages without one that is identified mean that no profiler of ours is loaded.
constexpr std::uint64_t kUnidentifiedWarning = 256;

void count_sent(const SendComm& comm, const MessageFlow& flow) {
  SendCounters& sends = process_sends();
  const std::uint64_t sent = sends.add(flow);
  if (sent != kUnidentifiedWarning || comm.plugin->policy().off() || sends.identified() > 0) return;
  comm.plugin->log().warn(fmt::format(
      "loss is allowed by the settings, but none of the first {} messages could be matched to its collective, so "
      "nothing is lost: NCCL 2.28 takes this library's profiler by itself, unless NCCL_PROFILER_PLUGIN names another "
      "one or a libnccl-profiler.so is found first (clustar doctor nccl shows which); NCCL 2.27 needs this file's path "
      "in "
      "NCCL_PROFILER_PLUGIN; older ones cannot",
      kUnidentifiedWarning));
}

std::unique_ptr<CommContext>& process_context_slot() {
  static std::unique_ptr<CommContext> context;
  return context;
}

}  // namespace

int net_init(void** context, const CommInit& init, nccl_abi::DebugLogger logger) {
  return guarded([&] {
    if (any_null(context)) return int{nccl_abi::kInvalidArgument};
    *context = nullptr;
    auto plugin = acquire_plugin(logger);
    if (!plugin) return to_nccl(plugin.error().code);
    *context = new CommContext(std::move(*plugin), init);
    return int{nccl_abi::kSuccess};
  });
}

int net_init_process(nccl_abi::DebugLogger logger, nccl_abi::ProfilerCallback callback) {
  return guarded([&] {
    const std::lock_guard lock(statics_mutex());
    if (process_context_slot()) return int{nccl_abi::kSuccess};
    auto plugin = acquire_plugin(logger);
    if (!plugin) return to_nccl(plugin.error().code);
    CommInit init;
    init.callback = callback;
    process_context_slot() = std::make_unique<CommContext>(std::move(*plugin), init);
    return int{nccl_abi::kSuccess};
  });
}

void* process_context() {
  const std::lock_guard lock(statics_mutex());
  return process_context_slot().get();
}

int net_finalize(void* context) {
  return guarded([&] {
    // NCCL calls this after a failed init too, with what init left: null.
    delete static_cast<CommContext*>(context);
    return int{nccl_abi::kSuccess};
  });
}

int net_devices(int* count) {
  return guarded([&] {
    if (any_null(count)) return int{nccl_abi::kInvalidArgument};
    const auto plugin = current_plugin();
    *count = plugin ? static_cast<int>(plugin->device_count()) : 0;
    return plugin ? int{nccl_abi::kSuccess} : int{nccl_abi::kInvalidUsage};
  });
}

std::optional<NetDevice> net_device(int device) {
  const auto plugin = current_plugin();
  if (!plugin || device < 0 || !find_device(plugin, static_cast<std::size_t>(device))) return std::nullopt;
  NetDevice found{nullptr, nullptr, plugin->properties(static_cast<std::size_t>(device))};
  found.name = interned(found.properties.name);
  if (!found.properties.pci_path.empty()) found.pci_path = interned(found.properties.pci_path);
  return found;
}

int net_make_v_device(int* device, const int* members, int count, std::size_t most) {
  return guarded([&] {
    if (any_null(device, members)) return int{nccl_abi::kInvalidArgument};
    const auto plugin = current_plugin();
    if (!plugin || count < 0 || static_cast<std::size_t>(count) > most) return int{nccl_abi::kInvalidUsage};
    const auto fused = fuse_devices(plugin, {members, static_cast<std::size_t>(count)});
    if (!fused) {
      plugin->log().info("not fused: " + fused.error().message);
      return int{nccl_abi::kInvalidUsage};
    }
    *device = *fused;
    const auto made = plugin->properties(static_cast<std::size_t>(*fused));
    plugin->log().info(fmt::format("device {}: {} ({} Mbit/s)", *fused, made.name, made.speed_mbps));
    return int{nccl_abi::kSuccess};
  });
}

int net_listen(void* context, int device, void* handle, void** listen_comm) {
  return guarded([&] {
    if (any_null(context, handle, listen_comm)) return int{nccl_abi::kInvalidArgument};
    *listen_comm = nullptr;
    const CommContext& comm = *static_cast<CommContext*>(context);
    if (comm.plugin()->transport() == nullptr) return refuse(*comm.plugin(), "listen");
    auto listener = comm.plugin()->transport()->listen(device, comm.options());
    if (!listener) return failed(*comm.plugin(), "listen", listener.error());
    std::memset(handle, 0, nccl_abi::kHandleBytes);
    std::memcpy(handle, (*listener)->handle().data(), kTransportBytes);
    *listen_comm = new ListenComm{comm.plugin(), device, std::move(*listener)};
    return int{nccl_abi::kSuccess};
  });
}

int net_connect(void* context, int device, void* handle, void** send_comm, int traffic_class) {
  return guarded([&] {
    if (any_null(context, handle, send_comm)) return int{nccl_abi::kInvalidArgument};
    *send_comm = nullptr;
    CommContext& comm = *static_cast<CommContext*>(context);
    if (comm.plugin()->transport() == nullptr) return refuse(*comm.plugin(), "connect");
    transport::ChannelOptions options = comm.options();
    if (traffic_class != nccl_abi::kTrafficClassUndefined) options.traffic_class = traffic_class;
    auto* state = static_cast<std::byte*>(handle) + kTransportBytes;
    std::uint64_t id = 0;
    std::memcpy(&id, state, sizeof id);
    if (id == 0) {
      transport::Handle target;
      std::memcpy(target.data(), handle, kTransportBytes);
      auto pending = comm.plugin()->transport()->connect(device, target, options);
      if (!pending) return failed(*comm.plugin(), "connect", pending.error());
      id = comm.add_pending(std::move(*pending));
      std::memcpy(state, &id, sizeof id);
    }
    transport::PendingConnect* pending = comm.find_pending(id);
    if (pending == nullptr) {
      comm.plugin()->log().warn("connect: the handle is damaged: it names no connection attempt of this communicator");
      return int{nccl_abi::kInvalidArgument};
    }
    auto channel = pending->poll();
    if (channel && *channel == nullptr) return int{nccl_abi::kSuccess};
    comm.erase_pending(id);
    std::memset(state, 0, sizeof id);
    if (!channel) return failed(*comm.plugin(), "connect", channel.error());
    const transport::DeviceProperties* const properties = properties_of(*comm.plugin(), device);
    if (properties == nullptr) return int{nccl_abi::kInvalidArgument};  // another one than the attempt began with
    auto send = std::make_unique<SendComm>(comm.plugin(), *properties);
    send->channel = std::move(*channel);
    send->traffic_class = static_cast<std::uint8_t>(options.traffic_class < 0 ? 0 : options.traffic_class);
    send->urgencies = comm.urgencies();
    send->context = comm.serial();
    send->callback = comm.init().callback;
    send->facts = {comm.init().comm_id, comm.init().knows_comm,
                   comm.plugin()->may_lose() ? options.max_tolerance_ppm : 0};
    *send_comm = static_cast<Comm*>(send.release());
    return int{nccl_abi::kSuccess};
  });
}

int net_accept(void* listen_comm, void** recv_comm) {
  return guarded([&] {
    if (any_null(listen_comm, recv_comm)) return int{nccl_abi::kInvalidArgument};
    *recv_comm = nullptr;
    const ListenComm& listen = *static_cast<ListenComm*>(listen_comm);
    auto channel = listen.listener->poll_accept();
    if (!channel) return failed(*listen.plugin, "accept", channel.error());
    if (*channel == nullptr) return int{nccl_abi::kSuccess};
    const transport::DeviceProperties* const properties = properties_of(*listen.plugin, listen.device);
    if (properties == nullptr) return int{nccl_abi::kInternalError};
    auto recv = std::make_unique<RecvComm>(listen.plugin, *properties);
    recv->channel = std::move(*channel);
    *recv_comm = static_cast<Comm*>(recv.release());
    return int{nccl_abi::kSuccess};
  });
}

int net_reg_mr(void* comm, void* data, std::size_t size, int type, void** mhandle) {
  return guarded([&] {
    if (any_null(comm, mhandle)) return int{nccl_abi::kInvalidArgument};
    *mhandle = nullptr;
    Comm& owner = *static_cast<Comm*>(comm);
    return register_memory(owner, "regMr", memory_of(owner.device, data, size, type), mhandle);
  });
}

int net_reg_mr_dma_buf(void* comm, void* data, std::size_t size, int type, std::uint64_t offset, int fd,
                       void** mhandle) {
  return guarded([&] {
    if (any_null(comm, mhandle)) return int{nccl_abi::kInvalidArgument};
    *mhandle = nullptr;
    Comm& owner = *static_cast<Comm*>(comm);
    return register_memory(owner, "regMrDmaBuf", dma_buf_of(owner.device, data, size, type, offset, fd), mhandle);
  });
}

int net_dereg_mr(void* comm, void* mhandle) {
  return guarded([&] {
    if (any_null(comm)) return int{nccl_abi::kInvalidArgument};
    delete static_cast<transport::Mr*>(mhandle);
    return int{nccl_abi::kSuccess};
  });
}

int net_isend(void* send_comm, void* data, std::size_t size, int tag, void* mhandle, void* phandle, void** request) {
  return guarded([&] {
    if (any_null(send_comm, request)) return int{nccl_abi::kInvalidArgument};
    *request = nullptr;
    auto& comm = static_cast<SendComm&>(*static_cast<Comm*>(send_comm));
    const auto range = locate("isend", data, size, mhandle);
    if (!range) return failed(*comm.plugin, "isend", range.error());
    MessageFlow flow =
        flow_of(comm.plugin->policy(), comm.callback, phandle, comm.facts, guard_of(comm), size, comm.traffic_class);
    flow.tag.urgency = comm.urgencies.of(flow.tag.identity.function);
    const auto sent =
        comm.channel->send(range->mr == nullptr ? empty_mr() : *range->mr, range->offset, size, tag, flow.tag);
    if (!sent) return fail_at_test(comm, "isend", sent.error(), request);
    if (*sent != nullptr) count_sent(comm, flow);
    *request = *sent;
    return int{nccl_abi::kSuccess};
  });
}

int net_irecv(void* recv_comm, int n, void** data, const std::size_t* sizes, int* tags, void** mhandles,
              void** request) {
  return guarded([&] {
    if (any_null(recv_comm, data, sizes, tags, mhandles, request)) return int{nccl_abi::kInvalidArgument};
    *request = nullptr;  // also clears NCCL's marker of an optional completion
    auto& comm = static_cast<RecvComm&>(*static_cast<Comm*>(recv_comm));
    std::array<RecvPart, transport::kMaxRecvParts> parts;
    if (n < 1 || static_cast<std::size_t>(n) > parts.size()) {
      const Error error{ErrorCode::kInvalidArgument, fmt::format("{} receives; 1 to {} are allowed", n, parts.size())};
      return failed(*comm.plugin, "irecv", error);
    }
    for (int i = 0; i < n; ++i) {
      const auto range = locate("irecv", data[i], sizes[i], mhandles[i]);
      if (!range) return failed(*comm.plugin, "irecv", range.error());
      parts[static_cast<std::size_t>(i)] = {range->mr, range->offset, sizes[i], tags[i]};
    }
    const auto posted = comm.channel->recv(std::span(parts).first(static_cast<std::size_t>(n)));
    if (!posted) return fail_at_test(comm, "irecv", posted.error(), request);
    *request = *posted;
    return int{nccl_abi::kSuccess};
  });
}

int net_iflush(void* recv_comm, int n, void** data, int* sizes, void** mhandles, void** request) {
  return guarded([&] {
    if (any_null(recv_comm, data, mhandles, request)) return int{nccl_abi::kInvalidArgument};
    *request = nullptr;
    auto& comm = static_cast<RecvComm&>(*static_cast<Comm*>(recv_comm));
    std::array<RecvPart, transport::kMaxRecvParts> parts;
    if (n < 1 || static_cast<std::size_t>(n) > parts.size()) {
      const Error error{ErrorCode::kInvalidArgument, fmt::format("{} receives; 1 to {} are allowed", n, parts.size())};
      return failed(*comm.plugin, "iflush", error);
    }
    std::size_t count = 0;
    for (int i = 0; i < n; ++i) {
      const auto size = flushed_bytes(sizes == nullptr ? nullptr : &sizes[i], data[i], mhandles[i]);
      const auto range = locate("iflush", data[i], size, mhandles[i]);
      if (!range) return failed(*comm.plugin, "iflush", range.error());
      // What came into host memory is there when its receive is done.
      if (size == 0 || range->mr->memory().kind == gdr::MemoryKind::kHost) continue;
      parts[count++] = {range->mr, range->offset, size, 0};
    }
    if (count == 0) return int{nccl_abi::kSuccess};
    const auto flushed = comm.channel->flush(std::span(parts).first(count));
    if (!flushed) return failed(*comm.plugin, "iflush", flushed.error());
    *request = *flushed;
    return int{nccl_abi::kSuccess};
  });
}

int net_test(void* request, int* done, int* sizes) {
  return guarded([&] {
    if (any_null(request, done)) return int{nccl_abi::kInvalidArgument};
    *done = 0;
    const auto progress = static_cast<transport::Request*>(request)->test();
    // The channel logged what happened when it happened; a request has no way to its plugin.
    if (!progress) return to_nccl(progress.error().code);
    if (!progress->done) return int{nccl_abi::kSuccess};
    if (!progress->messages.empty()) process_receptions().add(*progress);
    if (std::any_of(progress->messages.begin(), progress->messages.end(),
                    [](const transport::ReceivedMessage& message) { return message.loss.exchange; })) {
      process_exchanges().add(*progress);
    }
    if (progress->sent != nullptr && progress->sent->loss.exchange) process_losses().add_sent(*progress);
    if (sizes != nullptr) {
      // NCCL's sizes are int whatever the message may be; it only asks whether they are 0.
      for (std::size_t i = 0; i < progress->sizes.size(); ++i) {
        sizes[i] = static_cast<int>(std::min<std::size_t>(progress->sizes[i], INT_MAX));
      }
    }
    *done = 1;
    return int{nccl_abi::kSuccess};
  });
}

int net_set_attr(void* context, const nccl_abi::NetAttr* attr) {
  return guarded([&] {
    if (any_null(context, attr)) return int{nccl_abi::kInvalidArgument};
    thread_attributes = {static_cast<const CommContext*>(context)->serial(), attr->op, attr->algo, attr->proto};
    return int{nccl_abi::kSuccess};
  });
}

int net_close_send(void* send_comm) {
  return guarded([&] {
    delete static_cast<Comm*>(send_comm);
    return int{nccl_abi::kSuccess};
  });
}

int net_close_recv(void* recv_comm) { return net_close_send(recv_comm); }

int net_close_listen(void* listen_comm) {
  return guarded([&] {
    delete static_cast<ListenComm*>(listen_comm);
    return int{nccl_abi::kSuccess};
  });
}

}  // namespace clustar::nccl_plugin
