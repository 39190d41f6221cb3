// A net plugin that forwards every call to another one and writes each transfer to a CSV file: what NCCL really asks
// of a plugin, in which order and sizes. Exports v10, v11 and v12 and takes the name of the wrapped plugin, so that
// NCCL_NET=<name> selects it as it would the original.
//
//   NETLOG_PLUGIN  path of the wrapped plugin; it must export the version that the caller takes
//   NETLOG_FILE    the CSV file, appended to; one process each: %p in it is the process
//
// Rows: time_ns (CLOCK_MONOTONIC), thread, call, object (comm or context), request, tag (memory type for regMr), bytes,
// result, op, algo, proto (NCCL's last setNetAttr in this thread; '-' where it gave none); then, of isends whose
// collective the wrapped plugin can name (clustarApi_v1.identify; '-' elsewhere): func, number, local_number, channel,
// transfer, transfers, loop, stage, slice, reducing, total_bytes, comm, ranks, coll_algo, coll_proto. Grouped receives
// separate their tags and sizes by ';'. Calls that answered "try again" (no request, no comm, not done) are no rows.
#include <dlfcn.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <type_traits>

#include "nccl_plugin/abi/tables.h"
#include "nccl_plugin/clustar.h"

#define SHIM_EXPORT __attribute__((visibility("default")))

extern "C" {
SHIM_EXPORT extern clustar::nccl_abi::TableV10 ncclNetPlugin_v10;
SHIM_EXPORT extern clustar::nccl_abi::TableV11 ncclNetPlugin_v11;
SHIM_EXPORT extern clustar::nccl_abi::TableV12 ncclNetPlugin_v12;
clustar::nccl_abi::TableV10 ncclNetPlugin_v10;
clustar::nccl_abi::TableV11 ncclNetPlugin_v11;
clustar::nccl_abi::TableV12 ncclNetPlugin_v12;
}

namespace {

namespace abi = clustar::nccl_abi;

constexpr const char* kHeader =
    "time_ns,thread,call,object,request,tag,bytes,result,op,algo,proto,func,number,local_number,channel,transfer,"
    "transfers,loop,stage,slice,reducing,total_bytes,comm,ranks,coll_algo,coll_proto\n";
constexpr const char* kNoIdentity = "-,-,-,-,-,-,-,-,-,-,-,-,-,-,-";

// The file, shared by all threads. Rows reach the disk at every close, finalize and unload.
class CsvLog {
 public:
  ~CsvLog() {
    if (file_ != nullptr) std::fclose(file_);
  }
  // Returns what is wrong; empty if nothing.
  std::string open(std::string path) {
    if (const auto at = path.find("%p"); at != std::string::npos) path.replace(at, 2, std::to_string(getpid()));
    file_ = std::fopen(path.c_str(), "ae");
    if (file_ == nullptr) return "cannot write NETLOG_FILE '" + path + "': " + std::strerror(errno);
    if (std::ftell(file_) == 0) std::fputs(kHeader, file_);
    return {};
  }
  void row(const char* call, const void* object, const void* request, const char* tag, const char* bytes, int result,
           const char* attributes, const char* identity) {
    if (file_ == nullptr) return;
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    const std::int64_t time_ns = std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
    const std::scoped_lock lock(mutex_);
    std::fprintf(file_, "%" PRId64 ",%ld,%s,%p,%p,%s,%s,%d,%s,%s\n", time_ns, syscall(SYS_gettid), call, object,
                 request, tag, bytes, result, attributes, identity);
  }
  void flush() {
    if (file_ != nullptr) std::fflush(file_);
  }

 private:
  std::mutex mutex_;
  std::FILE* file_ = nullptr;
};

CsvLog g_log;
std::string g_error;  // why nothing can be forwarded; empty when all is well
thread_local abi::NetAttr t_attributes{{}, {}, abi::kNetAttrUndefined, abi::kNetAttrUndefined, abi::kNetAttrUndefined};

// The wrapped plugin's; null: it cannot tell.
const clustarApi_v1_t* g_api = nullptr;
// NCCL gives the same function to every communicator of the process.
std::atomic<abi::ProfilerCallback> g_profiler = nullptr;

constexpr const char* kOps[] = {"Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce", "SendRecv",
                                "Send",      "Recv",   "AlltoAll",  "Scatter",       "Gather"};
constexpr const char* kAlgos[] = {"Tree", "Ring", "CollnetDirect", "CollnetChain", "Nvls", "NvlsTree", "Pat"};
constexpr const char* kProtos[] = {"LL", "LL128", "Simple"};

template <std::size_t N>
const char* name_of_mask(std::uint32_t mask, const char* const (&names)[N]) {
  if (mask == 0 || mask == abi::kNetAttrUndefined) return "-";
  for (std::size_t bit = 0; bit < N; ++bit) {
    if (mask == 1u << bit) return names[bit];
  }
  return "several";
}
template <std::size_t N>
const char* name_of(std::uint8_t number, const char* const (&names)[N]) {
  return number < N ? names[number] : "-";
}

std::string attributes() {
  return std::string(name_of_mask(t_attributes.op, kOps)) + "," + name_of_mask(t_attributes.algo, kAlgos) + "," +
         name_of_mask(t_attributes.proto, kProtos);
}

// Within isend, in its thread, once NCCL's request was taken: a refused one would ask again and again.
std::string identity_of(void* phandle) {
  clustarMessage_v1 message{};
  message.size = sizeof message;
  const auto profiler = g_profiler.load(std::memory_order_acquire);
  if (g_api == nullptr || profiler == nullptr || g_api->identify(profiler, phandle, &message) != CLUSTAR_OK) {
    return kNoIdentity;
  }
  char phase[64] = "-,-,-,-";
  if (message.has_phase != 0) {
    std::snprintf(phase, sizeof phase, "%u,%u,%u,%u", message.loop, message.stage, message.slice, message.reducing);
  }
  char text[320];
  std::snprintf(text, sizeof text, "%s,%" PRIu64 ",%u,%u,%u,%u,%s,%" PRIu64 ",%016" PRIx64 ",%u,%s,%s",
                name_of(message.function, kOps), message.number, message.local_number, message.channel,
                message.transfer, message.transfers, phase, message.total_bytes, message.comm_id, message.ranks,
                name_of(message.algorithm, kAlgos), name_of(message.protocol, kProtos));
  return text;
}

void row(const char* call, const void* object, int result, const void* request = nullptr, const std::string& tag = "-",
         const std::string& bytes = "-", const std::string& identity = kNoIdentity) {
  g_log.row(call, object, request, tag.c_str(), bytes.c_str(), result, attributes().c_str(), identity.c_str());
}

template <class T>
std::string joined(const T* values, int n) {
  if (values == nullptr) return "-";
  std::string text;
  for (int i = 0; i < n; ++i) text += (i == 0 ? "" : ";") + std::to_string(values[i]);
  return text;
}

int refuse(abi::DebugLogger logger) {
  if (logger != nullptr) logger(abi::kLogWarn, abi::kLogNet, __FILE__, __LINE__, "log shim: %s", g_error.c_str());
  std::fprintf(stderr, "log shim: %s\n", g_error.c_str());
  return abi::kInvalidUsage;
}

// One version's calls. `inner` is the wrapped table; calls that it lacks are null in ours too, since NCCL asks.
template <class Table>
struct Shim {
  static inline const Table* inner = nullptr;

  // v10
  static int init_v10(abi::DebugLogger logger, abi::ProfilerCallback profiler) {
    if (inner == nullptr) return refuse(logger);
    g_profiler.store(profiler, std::memory_order_release);
    const int result = inner->init(logger, profiler);
    row("init", nullptr, result);
    return result;
  }
  static int listen_v10(int dev, void* handle, void** comm) {
    const int result = inner->listen(dev, handle, comm);
    row("listen", *comm, result);
    return result;
  }
  static int connect_v10(int dev, abi::CommConfig* config, void* handle, void** comm, abi::DeviceHandle** device) {
    const int result = inner->connect(dev, config, handle, comm, device);
    if (result != abi::kSuccess || *comm != nullptr) row("connect", *comm, result);
    return result;
  }

  // v11 and v12
  static int init(void** ctx, std::uint64_t comm_id, abi::CommConfig* config, abi::DebugLogger logger,
                  abi::ProfilerCallback profiler) {
    if (inner == nullptr) return refuse(logger);
    g_profiler.store(profiler, std::memory_order_release);
    const int result = inner->init(ctx, comm_id, config, logger, profiler);
    row("init", *ctx, result);
    return result;
  }
  static int listen(void* ctx, int dev, void* handle, void** comm) {
    const int result = inner->listen(ctx, dev, handle, comm);
    row("listen", *comm, result);
    return result;
  }
  static int connect(void* ctx, int dev, void* handle, void** comm, abi::DeviceHandle** device) {
    const int result = inner->connect(ctx, dev, handle, comm, device);
    if (result != abi::kSuccess || *comm != nullptr) row("connect", *comm, result);
    return result;
  }
  // NCCL calls it after a failed init too.
  static int finalize(void* ctx) {
    if (inner == nullptr) return abi::kSuccess;
    const int result = inner->finalize(ctx);
    row("finalize", ctx, result);
    g_log.flush();
    return result;
  }
  static int set_net_attr(void* ctx, abi::NetAttr* attr) {
    if (attr != nullptr) t_attributes = *attr;
    return inner->setNetAttr(ctx, attr);
  }

  // all
  static int devices(int* count) { return inner->devices(count); }
  template <class Properties>
  static int properties(int dev, Properties* out) {
    return inner->getProperties(dev, out);
  }
  template <class VDevice>
  static int make_v_device(int* dev, VDevice* devices) {
    return inner->makeVDevice(dev, devices);
  }
  static int accept(void* listen_comm, void** comm, abi::DeviceHandle** device) {
    const int result = inner->accept(listen_comm, comm, device);
    if (result != abi::kSuccess || *comm != nullptr) row("accept", *comm, result);
    return result;
  }
  static int reg_mr(void* comm, void* data, std::size_t size, int type, void** mhandle) {
    const int result = inner->regMr(comm, data, size, type, mhandle);
    row("regMr", comm, result, nullptr, std::to_string(type), std::to_string(size));
    return result;
  }
  static int reg_mr_dma_buf(void* comm, void* data, std::size_t size, int type, std::uint64_t offset, int fd,
                            void** mhandle) {
    const int result = inner->regMrDmaBuf(comm, data, size, type, offset, fd, mhandle);
    row("regMrDmaBuf", comm, result, nullptr, std::to_string(type), std::to_string(size));
    return result;
  }
  static int dereg_mr(void* comm, void* mhandle) { return inner->deregMr(comm, mhandle); }
  static int isend(void* comm, void* data, std::size_t size, int tag, void* mhandle, void* phandle, void** request) {
    const int result = inner->isend(comm, data, size, tag, mhandle, phandle, request);
    if (result != abi::kSuccess || *request != nullptr) {
      row("isend", comm, result, *request, std::to_string(tag), std::to_string(size), identity_of(phandle));
    }
    return result;
  }
  static int irecv(void* comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles, void** phandles,
                   void** request) {
    const int result = inner->irecv(comm, n, data, sizes, tags, mhandles, phandles, request);
    if (result != abi::kSuccess || *request != nullptr) {
      row("irecv", comm, result, *request, joined(tags, n), joined(sizes, n));
    }
    return result;
  }
  static int iflush(void* comm, int n, void** data, int* sizes, void** mhandles, void** request) {
    const int result = inner->iflush(comm, n, data, sizes, mhandles, request);
    row("iflush", comm, result, *request, "-", joined(sizes, n));
    return result;
  }
  static int test(void* request, int* done, int* sizes) {
    const int result = inner->test(request, done, sizes);
    if (result != abi::kSuccess || *done != 0) {
      row("test", nullptr, result, request, "-", sizes == nullptr ? "-" : std::to_string(*sizes));
    }
    return result;
  }
  static int irecv_consumed(void* comm, int n, void* request) { return inner->irecvConsumed(comm, n, request); }
  static int get_device_mr(void* comm, void* mhandle, void** out) { return inner->getDeviceMr(comm, mhandle, out); }
  static int closed(const char* call, void* comm, int result) {
    row(call, comm, result);
    g_log.flush();
    return result;
  }
  static int close_send(void* comm) { return closed("closeSend", comm, inner->closeSend(comm)); }
  static int close_recv(void* comm) { return closed("closeRecv", comm, inner->closeRecv(comm)); }
  static int close_listen(void* comm) { return closed("closeListen", comm, inner->closeListen(comm)); }
};

const clustarApi_v1_t* api_of(void* library) {
  const auto* const api = static_cast<const clustarApi_v1_t*>(dlsym(library, "clustarApi_v1"));
  return api != nullptr && api->size >= sizeof(clustarApi_v1_t) ? api : nullptr;
}

template <class Table>
void fill(Table& out, void* library, const char* symbol) {
  using S = Shim<Table>;
  S::inner = library == nullptr ? nullptr : static_cast<const Table*>(dlsym(library, symbol));
  out.name = S::inner == nullptr ? "log shim (error)" : S::inner->name;
  if constexpr (std::is_same_v<Table, abi::TableV10>) {
    out.init = S::init_v10;
    out.listen = S::listen_v10;
    out.connect = S::connect_v10;
  } else {
    out.init = S::init;
    out.listen = S::listen;
    out.connect = S::connect;
    out.finalize = S::finalize;
  }
  if (S::inner == nullptr) {
    if (library != nullptr) g_error = "the plugin in NETLOG_PLUGIN does not export the version that was asked for";
    return;
  }
  const Table& in = *S::inner;
  if constexpr (!std::is_same_v<Table, abi::TableV10>) {
    if (in.finalize == nullptr) out.finalize = nullptr;
    if (in.setNetAttr != nullptr) out.setNetAttr = S::set_net_attr;
  }
  out.devices = S::devices;
  out.getProperties = S::properties;
  out.accept = S::accept;
  if (in.regMr != nullptr) out.regMr = S::reg_mr;
  if (in.regMrDmaBuf != nullptr) out.regMrDmaBuf = S::reg_mr_dma_buf;
  if (in.deregMr != nullptr) out.deregMr = S::dereg_mr;
  out.isend = S::isend;
  out.irecv = S::irecv;
  if (in.iflush != nullptr) out.iflush = S::iflush;
  out.test = S::test;
  out.closeSend = S::close_send;
  out.closeRecv = S::close_recv;
  out.closeListen = S::close_listen;
  if (in.getDeviceMr != nullptr) out.getDeviceMr = S::get_device_mr;
  if (in.irecvConsumed != nullptr) out.irecvConsumed = S::irecv_consumed;
  if (in.makeVDevice != nullptr) out.makeVDevice = S::make_v_device;
}

bool load() {
  const char* const path = std::getenv("NETLOG_PLUGIN");
  const char* const file = std::getenv("NETLOG_FILE");
  void* library = nullptr;
  if (path == nullptr || *path == '\0') {
    g_error = "NETLOG_PLUGIN is not set; give it the path of the plugin to wrap";
  } else if (library = dlopen(path, RTLD_NOW | RTLD_LOCAL); library == nullptr) {
    g_error = std::string("cannot open NETLOG_PLUGIN: ") + dlerror();
  } else if (file == nullptr || *file == '\0') {
    g_error = "NETLOG_FILE is not set; give it the path of the CSV file to write";
  } else {
    g_error = g_log.open(file);
  }
  if (!g_error.empty()) library = nullptr;
  if (library != nullptr) g_api = api_of(library);
  fill(ncclNetPlugin_v10, library, "ncclNetPlugin_v10");
  fill(ncclNetPlugin_v11, library, "ncclNetPlugin_v11");
  fill(ncclNetPlugin_v12, library, "ncclNetPlugin_v12");
  return library != nullptr;
}

// The tables must be complete when dlopen returns: NCCL reads the name before it calls init. The wrapped library stays
// open as long as the process lives.
[[maybe_unused]] const bool g_loaded = load();

}  // namespace
