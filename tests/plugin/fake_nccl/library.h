// The plugin's .so as NCCL holds it: all its tables from one dlopen, each family in one shape whatever its version.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "nccl_plugin/abi/tuner.h"
#include "nccl_plugin/abi/types.h"
#include "nccl_plugin/clustar.h"
#include "tests/plugin/fake_nccl/core.h"

namespace clustar::tests::fake_nccl {

// Results are ncclResult_t. `context` is what init gave; below v11 NCCL's shim keeps the configuration there.
class NetTable {
 public:
  virtual ~NetTable() = default;
  virtual int version() const = 0;
  virtual bool has_net_attr() const = 0;
  virtual int init(void** context, std::uint64_t comm_id, int traffic_class, nccl_abi::ProfilerCallback callback) = 0;
  virtual int finalize(void* context) = 0;
  virtual int devices(int* count) = 0;
  virtual int listen(void* context, void* handle, void** comm) = 0;
  virtual int connect(void* context, void* handle, void** comm) = 0;
  virtual int accept(void* listen, void** comm) = 0;
  virtual int reg_mr(void* comm, void* data, std::size_t size, void** mr) = 0;
  virtual int dereg_mr(void* comm, void* mr) = 0;
  virtual int isend(void* comm, void* data, std::size_t size, void* mr, void* phandle, void** request) = 0;
  virtual int irecv(void* comm, void* data, std::size_t size, void* mr, void* phandle, void** request) = 0;
  virtual int test(void* request, int* done, int* size) = 0;
  virtual int close_send(void* comm) = 0;
  virtual int close_recv(void* comm) = 0;
  virtual int close_listen(void* comm) = 0;
  virtual int set_net_attr(void* context, nccl_abi::NetAttr* attr) = 0;
};

// getCollInfo of one communicator's tuner.
class TunerPort {
 public:
  virtual ~TunerPort() = default;
  virtual int get(int function, std::size_t bytes, float* costs, int algorithms, int protocols, bool registered) = 0;
};

class Library {
 public:
  // Throws std::runtime_error with the loader's reason.
  explicit Library(const std::string& path);
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  // `version` is 10, 11 or 12; 4, 5 or 6. Null: that table is not exported.
  std::unique_ptr<NetTable> net(int version) const;
  std::unique_ptr<ProfilerPort> profiler(int version, const Communicator& comm) const;
  std::unique_ptr<TunerPort> tuner(int version, const Communicator& comm) const;
  const clustarApi_v1_t* api() const;
  void* symbol(const std::string& name) const;

 private:
  void* library_;
};

// A profiler without table: NCCL 2.26, or no plugin found.
std::unique_ptr<ProfilerPort> no_profiler();

}  // namespace clustar::tests::fake_nccl
