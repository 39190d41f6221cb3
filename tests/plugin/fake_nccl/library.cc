#include "tests/plugin/fake_nccl/library.h"

#include <dlfcn.h>

#include <cstring>
#include <stdexcept>
#include <type_traits>

#include "nccl_plugin/abi/profiler.h"
#include "nccl_plugin/abi/tables.h"

namespace clustar::tests::fake_nccl {
namespace {

using namespace nccl_abi;

void silent_log(int, unsigned long, const char*, int, const char*, ...) {}

template <class Table>
class NetTableOf final : public NetTable {
 public:
  static constexpr bool kHasContext = requires(const Table& table) { table.setNetAttr; };
  NetTableOf(const Table& table, int version) : table_(table), version_(version) {}
  int version() const override { return version_; }
  bool has_net_attr() const override { return kHasContext; }
  int init(void** context, std::uint64_t comm_id, int traffic_class, ProfilerCallback callback) override {
    if constexpr (kHasContext) {
      CommConfig config{traffic_class};
      return table_.init(context, comm_id, &config, silent_log, callback);
    } else {
      *context = new CommConfig{traffic_class};
      return table_.init(silent_log, callback);
    }
  }
  int finalize(void* context) override {
    if constexpr (kHasContext) {
      return table_.finalize(context);
    } else {
      delete static_cast<CommConfig*>(context);
      return kSuccess;
    }
  }
  int devices(int* count) override { return table_.devices(count); }
  int listen([[maybe_unused]] void* context, void* handle, void** comm) override {
    if constexpr (kHasContext) {
      return table_.listen(context, 0, handle, comm);
    } else {
      return table_.listen(0, handle, comm);
    }
  }
  int connect(void* context, void* handle, void** comm) override {
    DeviceHandle* device = nullptr;
    if constexpr (kHasContext) {
      return table_.connect(context, 0, handle, comm, &device);
    } else {
      return table_.connect(0, static_cast<CommConfig*>(context), handle, comm, &device);
    }
  }
  int accept(void* listen, void** comm) override {
    DeviceHandle* device = nullptr;
    return table_.accept(listen, comm, &device);
  }
  int reg_mr(void* comm, void* data, std::size_t size, void** mr) override {
    return table_.regMr(comm, data, size, kPtrHost, mr);
  }
  int dereg_mr(void* comm, void* mr) override { return table_.deregMr(comm, mr); }
  int isend(void* comm, void* data, std::size_t size, void* mr, void* phandle, void** request) override {
    return table_.isend(comm, data, size, 0, mr, phandle, request);
  }
  int irecv(void* comm, void* data, std::size_t size, void* mr, void* phandle, void** request) override {
    int tag = 0;
    return table_.irecv(comm, 1, &data, &size, &tag, &mr, &phandle, request);
  }
  int test(void* request, int* done, int* size) override { return table_.test(request, done, size); }
  int close_send(void* comm) override { return table_.closeSend(comm); }
  int close_recv(void* comm) override { return table_.closeRecv(comm); }
  int close_listen(void* comm) override { return table_.closeListen(comm); }
  int set_net_attr([[maybe_unused]] void* context, [[maybe_unused]] NetAttr* attr) override {
    if constexpr (kHasContext) return table_.setNetAttr(context, attr);
    return kSuccess;
  }

 private:
  const Table& table_;
  int version_;
};

// The descriptor of one version; what the version has no room for is left out.
template <class Descriptor>
void fill(Descriptor& out, const Event& event) {
  std::memset(static_cast<void*>(&out), 0, sizeof out);
  out.type = static_cast<decltype(out.type)>(event.type);
  out.parent = event.parent;
  out.rank = event.rank;
  switch (event.type) {
    case kEventColl:
      out.coll.seq_number = event.number;
      out.coll.func = event.func;
      out.coll.count = event.count;
      out.coll.datatype = event.datatype;
      out.coll.algo = event.algo;
      out.coll.proto = event.proto;
      if constexpr (requires { out.coll.parent_group; }) out.coll.parent_group = event.group;
      break;
    case kEventP2p:
      out.p2p.func = event.func;
      out.p2p.datatype = event.datatype;
      out.p2p.count = event.count;
      out.p2p.peer = event.peer;
      out.p2p.channels = event.channels;
      if constexpr (requires { out.p2p.parent_group; }) out.p2p.parent_group = event.group;
      break;
    case kEventProxyOp:
      out.proxy_op = {event.pid, event.channel, event.peer, event.steps, 0, event.is_send ? 1 : 0};
      break;
    case kEventProxyStep: out.proxy_step.step = event.step; break;
    case kEventNetPlugin: out.net_plugin = {event.plugin_id, event.data}; break;
    default: break;
  }
  if constexpr (requires { out.coll_api; }) {
    if (event.type == kEventCollApi) {
      out.coll_api = {event.func, event.count, event.datatype, 0, nullptr, event.graph_captured};
    } else if (event.type == kEventP2pApi) {
      out.p2p_api = {event.func, event.count, event.datatype, nullptr, event.graph_captured};
    }
  }
}

template <class Table, class Descriptor>
class TablePort final : public ProfilerPort {
 public:
  TablePort(const Table& table, int version, const Communicator& comm) : table_(table), version_(version) {
    const char* name = comm.name.empty() ? nullptr : comm.name.c_str();
    const int nodes = static_cast<int>(comm.nodes);
    const int ranks = static_cast<int>(comm.ranks);
    int result = kSuccess;
    if constexpr (std::is_same_v<Table, ProfilerV4>) {
      result = table_.init(&context_, &mask_, name, comm.id, nodes, ranks, comm.rank, silent_log);
    } else {
      result = table_.init(&context_, comm.id, &mask_, name, nodes, ranks, comm.rank, silent_log);
    }
    if (result != kSuccess) throw std::runtime_error("the profiler's init failed: " + std::to_string(result));
  }
  ~TablePort() override { table_.finalize(context_); }
  int version() const override { return version_; }
  int mask() const override { return mask_; }
  void start(void** handle, const Event& event) override {
    Descriptor descriptor;
    fill(descriptor, event);
    // Under PXN the context is the other process's pointer, too.
    void* context = event.foreign ? reinterpret_cast<void*>(std::uintptr_t{0x10}) : context_;
    table_.startEvent(context, handle, &descriptor);
  }
  void stop(void* handle) override { table_.stopEvent(handle); }
  void record(void* handle, int state) override {
    EventStateArgs args{};
    table_.recordEventState(handle, state, &args);
  }

 private:
  const Table& table_;
  int version_;
  void* context_ = nullptr;
  int mask_ = 0;
};

class NoProfiler final : public ProfilerPort {
 public:
  int version() const override { return 0; }
  int mask() const override { return 0; }
  void start(void**, const Event&) override {}
  void stop(void*) override {}
  void record(void*, int) override {}
};

template <class Table>
class TunerPortOf final : public TunerPort {
 public:
  TunerPortOf(const Table& table, const Communicator& comm) : table_(table) {
    int result = kSuccess;
    if constexpr (std::is_same_v<Table, TunerV4>) {
      result = table_.init(comm.ranks, comm.nodes, silent_log, &context_);
    } else {
      NvlDomainInfo domains{static_cast<int>(comm.nodes), 1, 1};
      result = table_.init(&context_, comm.id, comm.ranks, comm.nodes, silent_log, &domains, nullptr);
    }
    if (result != kSuccess) throw std::runtime_error("the tuner's init failed: " + std::to_string(result));
  }
  ~TunerPortOf() override {
    if constexpr (std::is_same_v<Table, TunerV4>) {
      table_.destroy(context_);
    } else {
      table_.finalize(context_);
    }
  }
  int get(int function, std::size_t bytes, float* costs, int algorithms, int protocols, bool registered) override {
    int channels = 0;
    return table_.getCollInfo(context_, function, bytes, 1, reinterpret_cast<float**>(costs), algorithms, protocols,
                              registered ? 1 : 0, &channels);
  }

 private:
  const Table& table_;
  void* context_ = nullptr;
};

}  // namespace

Library::Library(const std::string& path) : library_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (library_ == nullptr) throw std::runtime_error(dlerror());
}
Library::~Library() { dlclose(library_); }

void* Library::symbol(const std::string& name) const { return dlsym(library_, name.c_str()); }

std::unique_ptr<NetTable> Library::net(int version) const {
  const void* table = symbol("ncclNetPlugin_v" + std::to_string(version));
  if (table == nullptr) return nullptr;
  switch (version) {
    case 10: return std::make_unique<NetTableOf<TableV10>>(*static_cast<const TableV10*>(table), version);
    case 11: return std::make_unique<NetTableOf<TableV11>>(*static_cast<const TableV11*>(table), version);
    case 12: return std::make_unique<NetTableOf<TableV12>>(*static_cast<const TableV12*>(table), version);
    default: return nullptr;
  }
}

std::unique_ptr<ProfilerPort> Library::profiler(int version, const Communicator& comm) const {
  const void* table = symbol("ncclProfiler_v" + std::to_string(version));
  if (table == nullptr) return nullptr;
  switch (version) {
    case 4: return std::make_unique<TablePort<ProfilerV4, EventV4>>(*static_cast<const ProfilerV4*>(table), 4, comm);
    case 5: return std::make_unique<TablePort<ProfilerV5, EventV5>>(*static_cast<const ProfilerV5*>(table), 5, comm);
    case 6: return std::make_unique<TablePort<ProfilerV6, EventV6>>(*static_cast<const ProfilerV6*>(table), 6, comm);
    default: return nullptr;
  }
}

std::unique_ptr<TunerPort> Library::tuner(int version, const Communicator& comm) const {
  const void* table = symbol("ncclTunerPlugin_v" + std::to_string(version));
  if (table == nullptr) return nullptr;
  switch (version) {
    case 4: return std::make_unique<TunerPortOf<TunerV4>>(*static_cast<const TunerV4*>(table), comm);
    case 5: return std::make_unique<TunerPortOf<TunerV5>>(*static_cast<const TunerV5*>(table), comm);
    case 6: return std::make_unique<TunerPortOf<TunerV6>>(*static_cast<const TunerV6*>(table), comm);
    default: return nullptr;
  }
}

const clustarApi_v1_t* Library::api() const { return static_cast<const clustarApi_v1_t*>(symbol("clustarApi_v1")); }

std::unique_ptr<ProfilerPort> no_profiler() { return std::make_unique<NoProfiler>(); }

}  // namespace clustar::tests::fake_nccl
