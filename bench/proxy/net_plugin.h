// Loads any NCCL net plugin (.so, ncclNetPlugin_v6 .. v12) and gives its calls one shape.
// Knows the ABI and nothing else of any plugin. One NetPlugin = one dlopen; PluginContext = one communicator's init.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "nccl_plugin/abi/types.h"
#include "transport/base/result.h"

namespace clustar::bench::proxy {

using Handle = std::array<std::byte, nccl_abi::kHandleBytes>;

// Version-independent copy of ncclNetProperties; fields a version lacks keep the defaults NCCL's shims give them.
struct NetProperties {
  std::string name;
  std::string pci_path;
  std::uint64_t guid = 0;
  int ptr_support = 0;
  bool reg_is_global = false;
  bool force_flush = false;
  int speed_mbps = 0;
  int port = 0;
  float latency_us = 0;
  int max_comms = 0;
  int max_recvs = 1;
  int device_type = 0;
  int device_version = 0;
  std::size_t max_p2p_bytes = 0;
  std::size_t max_coll_bytes = 0;
  int rail_id = -1;
  int plane_id = -1;
  std::vector<int> fused;  // vProps: the devices that this one is made of; itself where a version has none
};

// How a plugin's log lines reach the driver. Called from any thread that is inside a plugin call.
struct LogLine {
  int level;
  unsigned long flags;
  std::string text;
};

// Every method returns the plugin's ncclResult_t unchanged (nccl_abi::Result); thread rules are NCCL's
// (nccl_abi docs: service thread for connect/accept/regMr/close, progress thread for isend/irecv/test/iflush).
// init, devices, get_properties, make_v_device and finalize are serialised in the process, as by NCCL's netPluginMutex.
class NetPlugin {
 public:
  virtual ~NetPlugin() = default;

  // Opens `path`; `version` 0 takes the newest table of 12..6 as NCCL does, otherwise exactly that one. A bare word is
  // also tried as libnccl-net-<word>.so, as NCCL_NET_PLUGIN is. A slot that is NULL in the table answers kInternalError
  // when it is called and leaves a WARN line in the log; optional slots are asked for by the has_ methods. Errors: file
  // cannot be opened (dlerror text), no ncclNetPlugin_vN exported (names what is looked for).
  static Result<std::unique_ptr<NetPlugin>> open(const std::string& path, int version = 0);
  // The versions a library exports, newest first; empty when it is no net plugin.
  static Result<std::vector<int>> exported_versions(const std::string& path);

  // Under which the loader found the library: opening it again gives the same one, with its profiler and its tuner.
  virtual const std::string& path() const = 0;
  virtual int version() const = 0;
  virtual const char* name() const = 0;  // "" when the table's name is NULL
  virtual bool has_make_v_device() const = 0;
  virtual bool has_finalize() const = 0;
  virtual bool has_set_net_attr() const = 0;
  virtual bool has_reg_mr_dma_buf() const = 0;

  // One communicator's init: for v11+ the plugin's init with ctx; below, the first call inits the plugin (as NCCL's
  // shims do) and the config is passed to connect. *ctx receives an object to pass on and to give to finalize().
  // Sizes above what the version's table can carry (1 GiB per transfer up to v8, 2 GiB per registration up to v7) are
  // kInternalError, as in those shims; the plugin is not called.
  virtual int init(std::uint64_t comm_id, int traffic_class, void** ctx) = 0;
  virtual int finalize(void* ctx) = 0;
  virtual int devices(int* count) = 0;
  virtual int get_properties(int dev, NetProperties* out) = 0;
  // As NCCL fuses devices: *dev becomes the index of the virtual one. kInternalError for a version without makeVDevice;
  // kInvalidArgument, as NCCL does itself, for more members than the version's table can name.
  virtual int make_v_device(std::span<const int> members, int* dev) = 0;
  virtual int listen(void* ctx, int dev, Handle* handle, void** listen_comm) = 0;
  virtual int connect(void* ctx, int dev, Handle* handle, void** send_comm) = 0;
  virtual int accept(void* listen_comm, void** recv_comm) = 0;
  virtual int reg_mr(void* comm, void* data, std::size_t size, int type, void** mhandle) = 0;
  virtual int reg_mr_dma_buf(void* comm, void* data, std::size_t size, int type, std::uint64_t offset, int fd,
                             void** mhandle) = 0;
  virtual int dereg_mr(void* comm, void* mhandle) = 0;
  // phandle, one per receive in phandles: what the plugin hands back to NCCL's profiler callback (profiler_callback.h).
  // Null, or no array: no events. Tables below v10 do not take them.
  virtual int isend(void* send_comm, void* data, std::size_t size, int tag, void* mhandle, void* phandle,
                    void** request) = 0;
  virtual int irecv(void* recv_comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles,
                    void** phandles, void** request) = 0;
  virtual int iflush(void* recv_comm, int n, void** data, int* sizes, void** mhandles, void** request) = 0;
  virtual int test(void* request, int* done, int* sizes) = 0;
  virtual int close_send(void* send_comm) = 0;
  virtual int close_recv(void* recv_comm) = 0;
  virtual int close_listen(void* listen_comm) = 0;
  virtual int set_net_attr(void* ctx, nccl_abi::NetAttr* attr) = 0;

  // What NCCL gives each plugin to log with, for the profiler and the tuner of the same library. As long as this
  // object.
  virtual nccl_abi::DebugLogger logger() const = 0;
  // Lines the plugin logged since the last call; the newest 4,096 are kept.
  virtual std::vector<LogLine> take_log() = 0;
  // Text of the newest WARN line since open, "" when there was none; take_log does not clear it. Any thread.
  virtual std::string last_warning() const { return {}; }
  // What carries its bytes, as it said in its log (log_capture.h): "tcp"; "" when it said nothing of the kind.
  virtual std::string transport() const { return {}; }
};

}  // namespace clustar::bench::proxy
