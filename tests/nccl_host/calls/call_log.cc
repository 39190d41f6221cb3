// Net, profiler and tuner plugin in one, as the real one: forwards NCCL's calls to the plugin that it wraps, and writes
// them down in one order over all threads. What comes in which order is judged by calls.py.
//
//   CALLLOG_PLUGIN the wrapped plugin, path
//   CALLLOG_FILE   where to; %p in it is the process
//
// A line: thread, table, call, and name=value for what is judged. An event's handle is ours, so that NCCL
// (which asks for fewer calls where a profiler gave none) tells all that it can tell.
#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

#include "nccl_plugin/abi/profiler.h"
#include "nccl_plugin/abi/tables.h"
#include "nccl_plugin/abi/tuner.h"

#define CALLS_EXPORT extern "C" __attribute__((visibility("default")))

CALLS_EXPORT clustar::nccl_abi::TableV11 ncclNetPlugin_v11;
CALLS_EXPORT clustar::nccl_abi::ProfilerV5 ncclProfiler_v5;
CALLS_EXPORT clustar::nccl_abi::TunerV5 ncclTunerPlugin_v5;
clustar::nccl_abi::TableV11 ncclNetPlugin_v11;
clustar::nccl_abi::ProfilerV5 ncclProfiler_v5;
clustar::nccl_abi::TunerV5 ncclTunerPlugin_v5;

namespace {

using namespace clustar::nccl_abi;

const TableV11* g_net = nullptr;
const ProfilerV5* g_profiler = nullptr;
const TunerV5* g_tuner = nullptr;

std::FILE* g_file = nullptr;
std::mutex g_mutex;  // of the file

[[gnu::format(printf, 1, 2)]] void line(const char* format, ...) {
  const std::scoped_lock lock(g_mutex);
  std::fprintf(g_file, "%ld ", syscall(SYS_gettid));
  std::va_list arguments;
  va_start(arguments, format);
  std::vfprintf(g_file, format, arguments);
  va_end(arguments);
  std::fputc('\n', g_file);
}

// Net: what tells of connections, attributes and messages; all else goes to the wrapped table directly.

int net_init(void** context, std::uint64_t comm_id, CommConfig* config, DebugLogger logger, ProfilerCallback profiler) {
  const int result = g_net->init(context, comm_id, config, logger, profiler);
  line("net init context=%p result=%d", *context, result);
  return result;
}

int net_finalize(void* context) {
  line("net finalize context=%p", context);
  return g_net->finalize(context);
}

int net_set_attr(void* context, NetAttr* attr) {
  const CommAttr& send = attr->send;
  const CommAttr& recv = attr->recv;
  line("net setNetAttr context=%p op=%x algo=%x proto=%x peers=%d,%d,%d,%d flows=%d,%d,%d,%d", context, attr->op,
       attr->algo, attr->proto, send.min_concurrent_peers, send.max_concurrent_peers, recv.min_concurrent_peers,
       recv.max_concurrent_peers, send.min_flows_per_peer, send.max_flows_per_peer, recv.min_flows_per_peer,
       recv.max_flows_per_peer);
  return g_net->setNetAttr(context, attr);
}

int net_listen(void* context, int device, void* handle, void** comm) {
  line("net listen context=%p", context);
  return g_net->listen(context, device, handle, comm);
}

int net_connect(void* context, int device, void* handle, void** comm, DeviceHandle** device_handle) {
  line("net connect context=%p", context);
  const int result = g_net->connect(context, device, handle, comm, device_handle);
  if (*comm != nullptr) line("net connected context=%p comm=%p", context, *comm);
  return result;
}

int net_accept(void* listen, void** comm, DeviceHandle** device_handle) {
  line("net accept");
  return g_net->accept(listen, comm, device_handle);
}

int net_isend(void* comm, void* data, std::size_t size, int tag, void* memory, void* phandle, void** request) {
  line("net isend comm=%p bytes=%zu", comm, size);
  const int result = g_net->isend(comm, data, size, tag, memory, phandle, request);
  line("net isent comm=%p request=%p", comm, *request);
  return result;
}

int net_irecv(void* comm, int n, void** data, std::size_t* sizes, int* tags, void** memory, void** phandles,
              void** request) {
  line("net irecv comm=%p parts=%d", comm, n);
  const int result = g_net->irecv(comm, n, data, sizes, tags, memory, phandles, request);
  line("net ireceived comm=%p request=%p", comm, *request);
  return result;
}

int net_test(void* request, int* done, int* sizes) {
  const int result = g_net->test(request, done, sizes);
  if (*done != 0) line("net done request=%p", request);
  return result;
}

// Profiler.

struct Seen {
  std::uint64_t id = 0;
  void* inner = nullptr;
};

std::uint64_t id_of(const void* event) { return event == nullptr ? 0 : static_cast<const Seen*>(event)->id; }
void* inner_of(void* event) { return event == nullptr ? nullptr : static_cast<Seen*>(event)->inner; }

std::string described(const EventV5& event) {
  char text[400] = "";
  const auto write = [&text]<class... Values>(const char* format, Values... values) {
    std::snprintf(text, sizeof text, format, values...);
    return std::string(text);
  };
  switch (event.type) {
    case kEventGroup: return "Group";
    case kEventGroupApi: return write("GroupApi captured=%d", event.group_api.graph_captured);
    case kEventCollApi:
      return write("CollApi func=%s count=%zu datatype=%s captured=%d", event.coll_api.func, event.coll_api.count,
                   event.coll_api.datatype, event.coll_api.graph_captured);
    case kEventP2pApi:
      return write("P2pApi func=%s count=%zu datatype=%s captured=%d", event.p2p_api.func, event.p2p_api.count,
                   event.p2p_api.datatype, event.p2p_api.graph_captured);
    case kEventColl:
      return write("Coll func=%s count=%zu datatype=%s seq=%" PRIu64 " algo=%s proto=%s channels=%d group=%" PRIu64,
                   event.coll.func, event.coll.count, event.coll.datatype, event.coll.seq_number, event.coll.algo,
                   event.coll.proto, event.coll.channels, id_of(event.coll.parent_group));
    case kEventP2p:
      return write("P2p func=%s count=%zu datatype=%s peer=%d channels=%d group=%" PRIu64, event.p2p.func,
                   event.p2p.count, event.p2p.datatype, event.p2p.peer, event.p2p.channels,
                   id_of(event.p2p.parent_group));
    case kEventProxyOp:
      return write("ProxyOp own=%d channel=%d peer=%d steps=%d send=%d", event.proxy_op.pid == getpid(),
                   event.proxy_op.channel, event.proxy_op.peer, event.proxy_op.steps, event.proxy_op.is_send);
    case kEventProxyStep: return write("ProxyStep step=%d", event.proxy_step.step);
    case kEventNetPlugin: return "NetPlugin";
    default: return write("Other type=%" PRIu64, event.type);
  }
}

int profiler_init(void** context, std::uint64_t comm_id, int* mask, const char* name, int nodes, int ranks, int rank,
                  DebugLogger logger) {
  const int result = g_profiler->init(context, comm_id, mask, name, nodes, ranks, rank, logger);
  line("profiler init context=%p mask=%x ranks=%d rank=%d result=%d", *context, static_cast<unsigned>(*mask), ranks,
       rank, result);
  return result;
}

int profiler_start(void* context, void** handle, EventV5* event) {
  static std::uint64_t last = 0;
  // Kept until the process ends: NCCL may name an event after it stopped it.
  auto* const seen = new Seen{__atomic_add_fetch(&last, 1, __ATOMIC_RELAXED), nullptr};
  line("profiler start context=%p event=%" PRIu64 " parent=%" PRIu64 " rank=%d type=%s", context, seen->id,
       id_of(event->parent), event->rank, described(*event).c_str());
  EventV5 copy;
  std::memcpy(static_cast<void*>(&copy), event, sizeof copy);
  copy.parent = inner_of(copy.parent);
  if (copy.type == kEventColl) copy.coll.parent_group = inner_of(copy.coll.parent_group);
  if (copy.type == kEventP2p) copy.p2p.parent_group = inner_of(copy.p2p.parent_group);
  *handle = seen;
  return g_profiler->startEvent(context, &seen->inner, &copy);
}

int profiler_stop(void* event) {
  line("profiler stop event=%" PRIu64, id_of(event));
  return g_profiler->stopEvent(inner_of(event));
}

int profiler_record(void* event, int state, EventStateArgs* args) {
  line("profiler record event=%" PRIu64 " state=%d", id_of(event), state);
  return g_profiler->recordEventState(inner_of(event), state, args);
}

int profiler_finalize(void* context) {
  line("profiler finalize context=%p", context);
  return g_profiler->finalize(context);
}

// Tuner.

int tuner_init(void** context, std::uint64_t comm_id, std::size_t ranks, std::size_t nodes, DebugLogger logger,
               NvlDomainInfo* domains, void* constants) {
  const int result = g_tuner->init(context, comm_id, ranks, nodes, logger, domains, constants);
  line("tuner init context=%p ranks=%zu nodes=%zu result=%d", *context, ranks, nodes, result);
  return result;
}

std::string table_of(float** cost, int entries) {
  const float* const values = reinterpret_cast<const float*>(cost);
  std::string text;
  for (int i = 0; i < entries; ++i) text += (i == 0 ? "" : ",") + std::to_string(values[i]);
  return text;
}

int tuner_get(void* context, int function, std::size_t bytes, int operations, float** cost, int algorithms,
              int protocols, int registered, int* channels) {
  const std::string before = table_of(cost, algorithms * protocols);
  const int result =
      g_tuner->getCollInfo(context, function, bytes, operations, cost, algorithms, protocols, registered, channels);
  line("tuner getCollInfo context=%p func=%d bytes=%zu protocols=%d before=%s after=%s", context, function, bytes,
       protocols, before.c_str(), table_of(cost, algorithms * protocols).c_str());
  return result;
}

int tuner_finalize(void* context) {
  line("tuner finalize context=%p", context);
  return g_tuner->finalize(context);
}

[[noreturn]] void refuse(const std::string& why) {
  std::fprintf(stderr, "call log: %s\n", why.c_str());
  std::exit(1);
}

template <class Table>
const Table* table_named(void* library, const char* name) {
  const void* const table = dlsym(library, name);
  if (table == nullptr) refuse(std::string("CALLLOG_PLUGIN does not export ") + name);
  return static_cast<const Table*>(table);
}

// The tables must be complete when dlopen returns.
bool load() {
  const char* const plugin = std::getenv("CALLLOG_PLUGIN");
  const char* const file = std::getenv("CALLLOG_FILE");
  if (plugin == nullptr || file == nullptr) refuse("set CALLLOG_PLUGIN and CALLLOG_FILE to a path each");
  void* const library = dlopen(plugin, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) refuse(dlerror());
  std::string path = file;
  if (const auto at = path.find("%p"); at != std::string::npos) path.replace(at, 2, std::to_string(getpid()));
  g_file = std::fopen(path.c_str(), "ae");
  if (g_file == nullptr) refuse("cannot write CALLLOG_FILE '" + path + "'");
  g_net = table_named<TableV11>(library, "ncclNetPlugin_v11");
  g_profiler = table_named<ProfilerV5>(library, "ncclProfiler_v5");
  g_tuner = table_named<TunerV5>(library, "ncclTunerPlugin_v5");
  ncclNetPlugin_v11 = *g_net;
  ncclNetPlugin_v11.init = net_init;
  ncclNetPlugin_v11.finalize = net_finalize;
  ncclNetPlugin_v11.setNetAttr = net_set_attr;
  ncclNetPlugin_v11.listen = net_listen;
  ncclNetPlugin_v11.connect = net_connect;
  ncclNetPlugin_v11.accept = net_accept;
  ncclNetPlugin_v11.isend = net_isend;
  ncclNetPlugin_v11.irecv = net_irecv;
  ncclNetPlugin_v11.test = net_test;
  ncclProfiler_v5 = {g_profiler->name, profiler_init,   profiler_start,
                     profiler_stop,    profiler_record, profiler_finalize};
  ncclTunerPlugin_v5 = {g_tuner->name, tuner_init, tuner_get, tuner_finalize};
  return true;
}

[[maybe_unused]] const bool g_loaded = load();

[[gnu::destructor]] void flush() {
  if (g_file != nullptr) std::fclose(g_file);
}

}  // namespace
