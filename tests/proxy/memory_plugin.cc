// A net plugin (v6 to v12) whose network is the memory of one process. It checks that its caller keeps NCCL's rules:
// threads, order of calls, registered memory, request limits, tags and markers; and it is awkward where a plugin may be
// (connect and accept need several calls, requests are refused now and then, receives must be posted first).
#include "tests/proxy/memory_plugin.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/proxy/memory_calls.h"

namespace clustar::tests::memory {

struct Context {
  NetAttr attr{};
};

namespace {

constexpr std::uint64_t kMagic = 0x6d656d6f72792121;
constexpr int kConnectCalls = 3;

struct Part {
  char* data;
  std::size_t size;
  int tag;
  std::size_t got = 0;
  bool filled = false;
};
struct Request {
  enum Kind { kSend, kReceive, kFlush } kind;
  struct Comm* comm;
  std::vector<Part> parts;
  int polls = 0;
};
struct Pipe {
  std::list<Request*> posted;
  bool sender_gone = false;
  bool receiver_gone = false;
};
struct Comm {
  bool sends;
  std::shared_ptr<Pipe> pipe;
  Context* context;
  std::thread::id service = std::this_thread::get_id();
  std::thread::id progress{};
  std::uint64_t listener = 0;  // that a receive comm came from
  std::map<void*, std::pair<char*, std::size_t>> mrs{};
  long in_flight = 0;
  long posts = 0;  // calls of isend or irecv
};
struct Listener {
  std::deque<std::shared_ptr<Pipe>> pending;
  Context* context;
  std::uint64_t id;
  int accepts = 0;
};
struct HandleData {
  std::uint64_t magic;
  std::uint64_t listener;
  int calls;  // counts connect: the caller has to keep the buffer between its tries
};

struct State {
  std::mutex mutex;
  std::map<std::string, long> calls;
  std::map<std::string, std::pair<long, int>> failures;
  std::map<std::string, int> options;
  std::string violations;
  std::set<Comm*> comms;
  std::set<Request*> requests;
  std::set<Context*> contexts;
  std::map<std::uint64_t, Listener*> listeners;
  std::uint64_t next_listener = 1;
  DebugLogger logger = nullptr;
  int traffic_class = -2;
  long max_in_flight = 0;
  long max_group = 0;
};
State g;
// Each once: the first tells enough.
void violation(const std::string& text) {
  if (g.violations.find(text + "\n") == std::string::npos) g.violations += text + "\n";
}
int option(const char* name, int fallback) {
  const auto found = g.options.find(name);
  return found == g.options.end() ? fallback : found->second;
}

// Counts the call; non-zero is the failure that a test asked for.
int enter(const char* call) {
  ++g.calls[call];
  if (hooks().called != nullptr) hooks().called(call);
  const auto found = g.failures.find(call);
  if (found == g.failures.end()) return 0;
  if (found->second.first > 0) {
    --found->second.first;
    return 0;
  }
  if (g.logger != nullptr) g.logger(kLogWarn, kLogNet, __FILE__, __LINE__, "%s was told to fail", call);
  return found->second.second;
}

Comm* comm_of(void* pointer, const char* call) {
  auto* comm = static_cast<Comm*>(pointer);
  if (g.comms.contains(comm)) return comm;
  violation(std::string(call) + " on a comm that is not open");
  return nullptr;
}

void on_progress_thread(Comm& comm, const char* call) {
  const auto self = std::this_thread::get_id();
  if (comm.progress == std::thread::id{}) comm.progress = self;
  if (comm.progress != self) violation(std::string(call) + " from two threads on one comm");
  if (self == comm.service) violation(std::string(call) + " on the service thread");
}

void on_service_thread(const Comm& comm, const char* call) {
  if (comm.service != std::this_thread::get_id()) violation(std::string(call) + " off the service thread");
}

bool registered(const Comm& comm, void* mhandle, const void* data, std::size_t size) {
  const auto found = comm.mrs.find(mhandle);
  if (found == comm.mrs.end()) return false;
  const auto* at = static_cast<const char*>(data);
  return at >= found->second.first && at + size <= found->second.first + found->second.second;
}

Request* new_request(Comm& comm, Request::Kind kind) {
  auto* request = new Request{kind, &comm, {}, 0};
  g.requests.insert(request);
  g.max_in_flight = std::max(g.max_in_flight, ++comm.in_flight);
  if (comm.in_flight > kMaxRequests * (comm.sends ? option("max_recvs", 8) : 1)) violation("too many requests");
  return request;
}

void free_request(Request* request) {
  --request->comm->in_flight;
  request->comm->pipe->posted.remove(request);
  g.requests.erase(request);
  delete request;
}

}  // namespace

Context* shared_context() {
  static Context context;
  return &context;
}

void note_traffic_class(int traffic_class) {
  const std::lock_guard lock(g.mutex);
  g.traffic_class = traffic_class;
}
void note_violation(const char* text) {
  const std::lock_guard lock(g.mutex);
  violation(text);
}
int max_recvs() {
  const std::lock_guard lock(g.mutex);
  return option("max_recvs", 8);
}

int init(DebugLogger logger) {
  const std::lock_guard lock(g.mutex);
  g.logger = logger;
  return enter("init");
}
int init_context(void** ctx, DebugLogger logger) {
  if (const int failed = init(logger)) return failed;
  const std::lock_guard lock(g.mutex);
  auto* context = new Context;
  g.contexts.insert(context);
  *ctx = context;
  return kSuccess;
}
int finalize(void* ctx) {
  const std::lock_guard lock(g.mutex);
  if (const int failed = enter("finalize")) return failed;
  auto* context = static_cast<Context*>(ctx);
  if (context == nullptr) return kSuccess;  // its init failed
  for (const Comm* comm : g.comms) {
    if (comm->context == context) violation("finalize before the comms were closed");
  }
  if (g.contexts.erase(context) == 0)
    violation("finalize of an unknown context");
  else
    delete context;
  return kSuccess;
}

int get_properties() {
  const std::lock_guard lock(g.mutex);
  return enter("getProperties");
}
int devices(int* count) {
  const std::lock_guard lock(g.mutex);
  *count = 2;
  return enter("devices");
}

int listen(Context* context, void* handle, void** listen_comm) {
  const std::lock_guard lock(g.mutex);
  if (const int failed = enter("listen")) return failed;
  auto* listener = new Listener;
  listener->context = context;
  listener->id = g.next_listener;
  g.listeners[g.next_listener] = listener;
  const HandleData data{kMagic, g.next_listener++, 0};
  std::memcpy(handle, &data, sizeof data);
  *listen_comm = listener;
  return kSuccess;
}

int connect(Context* context, void* handle, void** send_comm) {
  const std::lock_guard lock(g.mutex);
  if (const int failed = enter("connect")) return failed;
  *send_comm = nullptr;
  HandleData data;
  std::memcpy(&data, handle, sizeof data);
  if (data.magic != kMagic) return kInvalidArgument;
  if (++data.calls < kConnectCalls || option("never_connect", 0) != 0) {
    std::memcpy(handle, &data, sizeof data);
    return kSuccess;
  }
  const auto found = g.listeners.find(data.listener);
  if (found == g.listeners.end()) return kRemoteError;
  auto pipe = std::make_shared<Pipe>();
  found->second->pending.push_back(pipe);
  auto* comm = new Comm{true, pipe, context};
  g.comms.insert(comm);
  *send_comm = comm;
  return kSuccess;
}

int accept(void* listen_comm, void** recv_comm) {
  const std::lock_guard lock(g.mutex);
  if (const int failed = enter("accept")) return failed;
  *recv_comm = nullptr;
  auto* listener = static_cast<Listener*>(listen_comm);
  if (++listener->accepts < 2 || listener->pending.empty()) return kSuccess;
  auto* comm = new Comm{false, listener->pending.front(), listener->context};
  listener->pending.pop_front();
  comm->listener = listener->id;
  g.comms.insert(comm);
  *recv_comm = comm;
  return kSuccess;
}

int close_listen(void* listen_comm) {
  const std::lock_guard lock(g.mutex);
  for (auto i = g.listeners.begin(); i != g.listeners.end(); ++i) {
    if (i->second != listen_comm) continue;
    delete i->second;
    g.listeners.erase(i);
    return enter("closeListen");
  }
  violation("closeListen of an unknown listen comm");
  return kInvalidArgument;
}

int reg_mr(void* pointer, void* data, std::size_t size, int type, void** mhandle) {
  const std::lock_guard lock(g.mutex);
  if (const int failed = enter("regMr")) return failed;
  Comm* comm = comm_of(pointer, "regMr");
  if (comm == nullptr) return kInvalidArgument;
  on_service_thread(*comm, "regMr");
  if (type != kPtrHost) violation("regMr of memory that is not the host's");
  if (g.listeners.contains(comm->listener)) violation("a receive buffer was registered before closeListen");
  *mhandle = new char;
  comm->mrs[*mhandle] = {static_cast<char*>(data), size};
  return kSuccess;
}
int dereg_mr(void* pointer, void* mhandle) {
  const std::lock_guard lock(g.mutex);
  if (const int failed = enter("deregMr")) return failed;
  Comm* comm = comm_of(pointer, "deregMr");
  if (comm == nullptr || comm->mrs.erase(mhandle) == 0) {
    violation("deregMr of an unknown handle");
    return kInvalidArgument;
  }
  delete static_cast<char*>(mhandle);
  return kSuccess;
}

int isend(void* pointer, void* data, std::size_t size, int tag, void* mhandle, void** request) {
  const std::lock_guard lock(g.mutex);
  if (const int failed = enter("isend")) return failed;
  *request = nullptr;
  Comm* comm = comm_of(pointer, "isend");
  if (comm == nullptr || !comm->sends) return kInvalidArgument;
  on_progress_thread(*comm, "isend");
  if (!registered(*comm, mhandle, data, size)) violation("isend of memory that is not registered");
  const NetAttr& attr = comm->context->attr;
  if (comm->context != shared_context() && (attr.op == kNetAttrUndefined || attr.send.max_flows_per_peer < 1)) {
    violation("isend before setNetAttr told the operation and the flows");
  }
  if (comm->pipe->receiver_gone) {
    g.logger(kLogWarn, kLogNet, __FILE__, __LINE__, "the receiver %s", "is gone");
    return kRemoteError;
  }
  if (++comm->posts % option("busy_every", 5) == 0) return kSuccess;
  for (Request* receive : comm->pipe->posted) {
    for (Part& part : receive->parts) {
      if (part.filled || part.tag != tag) continue;
      if (size > part.size) violation("isend is larger than the posted receive");
      part.got = std::min(size, part.size);
      const std::size_t lost = option("lose_flags", 0) != 0 ? std::min<std::size_t>(part.got, 16) : 0;
      if (part.got > lost) std::memcpy(part.data, data, part.got - lost);
      part.filled = true;
      *request = new_request(*comm, Request::kSend);
      return kSuccess;
    }
  }
  return kSuccess;
}

int irecv(void* pointer, int n, void** data, std::size_t* sizes, int* tags, void** mhandles, void** request) {
  const std::lock_guard lock(g.mutex);
  if (const int failed = enter("irecv")) return failed;
  const bool optional = *request == reinterpret_cast<void*>(kOptionalRecvCompletion);
  if (optional) ++g.calls["optional_receives"];
  if (optional && n != 1) violation("a grouped receive with the optional-completion marker");
  if (!optional && *request != nullptr) violation("irecv with an undefined request");
  *request = nullptr;
  Comm* comm = comm_of(pointer, "irecv");
  if (comm == nullptr || comm->sends) return kInvalidArgument;
  on_progress_thread(*comm, "irecv");
  if (n < 1 || n > option("max_recvs", 8)) violation("a group of receives beyond maxRecvs");
  g.max_group = std::max<long>(g.max_group, n);
  if (++comm->posts % option("busy_every", 5) == 0) return kSuccess;
  Request* receive = new_request(*comm, Request::kReceive);
  for (int i = 0; i < n; ++i) {
    if (!registered(*comm, mhandles[i], data[i], sizes[i])) violation("irecv into memory that is not registered");
    for (const Part& other : receive->parts) {
      if (other.tag == tags[i]) violation("a tag twice in one group");
    }
    receive->parts.push_back(Part{static_cast<char*>(data[i]), sizes[i], tags[i]});
  }
  comm->pipe->posted.push_back(receive);
  *request = receive;
  return kSuccess;
}

int iflush(void* pointer, int n, void** data, int* sizes, void** mhandles, void** request) {
  const std::lock_guard lock(g.mutex);
  if (const int failed = enter("iflush")) return failed;
  *request = nullptr;
  Comm* comm = comm_of(pointer, "iflush");
  if (comm == nullptr) return kInvalidArgument;
  for (int i = 0; i < n; ++i) {
    if (!registered(*comm, mhandles[i], data[i], static_cast<std::size_t>(sizes[i]))) violation("iflush elsewhere");
  }
  if (g.calls["iflush"] % 3 != 0) *request = new_request(*comm, Request::kFlush);
  return kSuccess;
}

int test(void* pointer, int* done, int* sizes) {
  const std::lock_guard lock(g.mutex);
  if (const int failed = enter("test")) return failed;
  *done = 0;
  auto* request = static_cast<Request*>(pointer);
  if (!g.requests.contains(request)) {
    violation("test of a request that does not exist");
    return kInternalError;
  }
  if ((request->kind == Request::kFlush) != (sizes == nullptr)) violation("test: sizes are for transfers only");
  if (++request->polls < 2) return kSuccess;
  for (std::size_t i = 0; i < request->parts.size(); ++i) {
    const Part& part = request->parts[i];
    if (!part.filled && request->comm->pipe->sender_gone) {
      g.logger(kLogWarn, kLogNet, __FILE__, __LINE__, "the sender is gone");
      return kRemoteError;
    }
    if (!part.filled) return kSuccess;
    sizes[i] = static_cast<int>(part.got) - option("short_receive", 0);
  }
  *done = 1;
  free_request(request);
  return kSuccess;
}

int close_comm(void* pointer, bool sends) {
  const std::lock_guard lock(g.mutex);
  const char* call = sends ? "closeSend" : "closeRecv";
  Comm* comm = comm_of(pointer, call);
  if (comm == nullptr) return kInvalidArgument;
  on_service_thread(*comm, call);
  if (comm->sends != sends) violation(std::string(call) + " of the other kind of comm");
  if (!comm->mrs.empty()) violation(std::string(call) + " before deregMr");
  (sends ? comm->pipe->sender_gone : comm->pipe->receiver_gone) = true;
  for (auto i = g.requests.begin(); i != g.requests.end();) {
    Request* request = *i++;
    if (request->comm == comm) free_request(request);
  }
  g.comms.erase(comm);
  delete comm;
  return enter(call);
}
int close_send(void* comm) { return close_comm(comm, true); }
int close_recv(void* comm) { return close_comm(comm, false); }

int set_net_attr(void* ctx, NetAttr* attr) {
  const std::lock_guard lock(g.mutex);
  if (const int failed = enter("setNetAttr")) return failed;
  static_cast<Context*>(ctx)->attr = *attr;
  return kSuccess;
}

namespace {

void reset() {
  const std::lock_guard lock(g.mutex);
  g.calls.clear();
  g.failures.clear();
  g.options.clear();
  g.violations.clear();
  g.traffic_class = -2;
  g.max_in_flight = g.max_group = 0;
}
void fail(const char* call, long after, int result) {
  const std::lock_guard lock(g.mutex);
  g.failures[call] = {after, result};
}
void set(const char* name, int value) {
  const std::lock_guard lock(g.mutex);
  if (std::strcmp(name, "log_lines") != 0) {
    g.options[name] = value;
    return;
  }
  for (int i = 0; i < value; ++i) g.logger(kLogInfo, kLogNet, __FILE__, __LINE__, "line %d", i);
}
long count(const char* what) {
  const std::lock_guard lock(g.mutex);
  const std::string name = what;
  if (name == "comms") return static_cast<long>(g.comms.size());
  if (name == "contexts") return static_cast<long>(g.contexts.size());
  if (name == "requests") return static_cast<long>(g.requests.size());
  if (name == "listeners") return static_cast<long>(g.listeners.size());
  if (name == "max_in_flight") return g.max_in_flight;
  if (name == "max_group") return g.max_group;
  return g.calls[name];
}
int traffic_class() {
  const std::lock_guard lock(g.mutex);
  return g.traffic_class;
}
const char* violations() {
  static std::string copy;
  const std::lock_guard lock(g.mutex);
  copy = g.violations;
  return copy.c_str();
}

}  // namespace
}  // namespace clustar::tests::memory

extern "C" __attribute__((visibility("default"))) clustar::tests::MemoryPluginControl memory_plugin_control;
clustar::tests::MemoryPluginControl memory_plugin_control = {
    clustar::tests::memory::reset, clustar::tests::memory::fail,          clustar::tests::memory::set,
    clustar::tests::memory::count, clustar::tests::memory::traffic_class, clustar::tests::memory::violations};
