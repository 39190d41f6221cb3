// One adaptor per ABI version: gives ncclNetPlugin_vN the shape of NetPlugin, as NCCL's own shims do
// (NCCL 2.28.9 src/plugin/net/net_v6.cc .. net_v11.cc: what is converted, what defaults fill the gaps, the size
// limits).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <mutex>
#include <span>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "bench/proxy/adaptor_base.h"
#include "bench/proxy/table_traits.h"

namespace clustar::bench::proxy {

template <int V>
class TableAdaptor final : public AdaptorBase {
  using Table = typename Abi<V>::Table;
  using Properties = typename Abi<V>::Properties;
  static constexpr bool kOwnContext = V <= 10;  // the plugin knows no ctx: ours stands in

 public:
  TableAdaptor(OpenedLibrary library, const Table* table) : AdaptorBase(std::move(library)), table_(table) {}

  int version() const override { return V; }
  const char* name() const override { return table_->name != nullptr ? table_->name : ""; }
  bool has_make_v_device() const override {
    if constexpr (V >= 9) return table_->makeVDevice != nullptr;
    return false;
  }
  bool has_finalize() const override {
    if constexpr (V >= 11) return table_->finalize != nullptr;
    return false;
  }
  bool has_set_net_attr() const override {
    if constexpr (V >= 11) return table_->setNetAttr != nullptr;
    return false;
  }
  bool has_reg_mr_dma_buf() const override { return table_->regMrDmaBuf != nullptr; }

  int init(std::uint64_t comm_id, int traffic_class, void** ctx) override {
    *ctx = nullptr;
    if (table_->init == nullptr) return missing("init");
    const std::lock_guard lock(set_up_mutex());
    if constexpr (kOwnContext) {
      if (configs_.empty()) {
        int result;
        if constexpr (V == 10) {
          result = table_->init(log_.logger(), callback_.callback());
        } else {
          result = table_->init(log_.logger());
        }
        if (result != nccl_abi::kSuccess) return result;
      }
      auto config = std::make_unique<nccl_abi::CommConfig>(nccl_abi::CommConfig{traffic_class});
      *ctx = config.get();
      configs_.emplace(*ctx, std::move(config));
      return nccl_abi::kSuccess;
    } else {
      nccl_abi::CommConfig config{traffic_class};
      return table_->init(ctx, comm_id, &config, log_.logger(), callback_.callback());
    }
  }

  int finalize(void* ctx) override {
    const std::lock_guard lock(set_up_mutex());
    if constexpr (kOwnContext) {
      if (configs_.erase(ctx) == 0)
        return bad_call("finalize was given a context that init did not return", nccl_abi::kInvalidArgument);
      return nccl_abi::kSuccess;
    } else {
      return table_->finalize != nullptr ? table_->finalize(ctx) : missing("finalize");
    }
  }

  int devices(int* count) override { return table_->devices != nullptr ? table_->devices(count) : missing("devices"); }

  int get_properties(int dev, NetProperties* out) override {
    if (table_->getProperties == nullptr) return missing("getProperties");
    Properties in{};
    const std::lock_guard lock(set_up_mutex());
    const int result = table_->getProperties(dev, &in);
    if (result == nccl_abi::kSuccess) *out = convert_properties<V>(dev, in);
    return result;
  }

  int make_v_device(std::span<const int> members, int* dev) override {
    if constexpr (V >= 9) {
      if (table_->makeVDevice == nullptr) return missing("makeVDevice");
      decltype(Properties{}.v_props) device{};
      if (members.size() > std::size(device.devs)) {
        return bad_call("makeVDevice names too many devices for this version", nccl_abi::kInvalidArgument);
      }
      device.ndevs = static_cast<int>(members.size());
      std::copy(members.begin(), members.end(), device.devs);
      const std::lock_guard lock(set_up_mutex());
      return table_->makeVDevice(dev, &device);
    } else {
      return missing("makeVDevice");
    }
  }

  int listen(void* ctx, int dev, Handle* handle, void** listen_comm) override {
    if (table_->listen == nullptr) return missing("listen");
    if constexpr (kOwnContext)
      return table_->listen(dev, bytes(handle), listen_comm);
    else
      return table_->listen(ctx, dev, bytes(handle), listen_comm);
  }

  int connect(void* ctx, int dev, Handle* handle, void** send_comm) override {
    if (table_->connect == nullptr) return missing("connect");
    nccl_abi::DeviceHandle* device_handle = nullptr;
    if constexpr (V == 6) {
      return table_->connect(dev, bytes(handle), send_comm);
    } else if constexpr (V <= 9) {
      return table_->connect(dev, bytes(handle), send_comm, &device_handle);
    } else if constexpr (V == 10) {
      return table_->connect(dev, static_cast<nccl_abi::CommConfig*>(ctx), bytes(handle), send_comm, &device_handle);
    } else {
      return table_->connect(ctx, dev, bytes(handle), send_comm, &device_handle);
    }
  }

  int accept(void* listen_comm, void** recv_comm) override {
    if (table_->accept == nullptr) return missing("accept");
    nccl_abi::DeviceHandle* device_handle = nullptr;
    if constexpr (V == 6)
      return table_->accept(listen_comm, recv_comm);
    else
      return table_->accept(listen_comm, recv_comm, &device_handle);
  }

  int reg_mr(void* comm, void* data, std::size_t size, int type, void** mhandle) override {
    if (table_->regMr == nullptr) return missing("regMr");
    if constexpr (V <= 7) {
      if (size > kMaxRegistrationV7) return too_large("regMr", size, kMaxRegistrationV7);
      return table_->regMr(comm, data, static_cast<int>(size), type, mhandle);
    } else {
      return table_->regMr(comm, data, size, type, mhandle);
    }
  }

  int reg_mr_dma_buf(void* comm, void* data, std::size_t size, int type, std::uint64_t offset, int fd,
                     void** mhandle) override {
    if (table_->regMrDmaBuf == nullptr) return missing("regMrDmaBuf");
    return table_->regMrDmaBuf(comm, data, size, type, offset, fd, mhandle);
  }

  int dereg_mr(void* comm, void* mhandle) override {
    return table_->deregMr != nullptr ? table_->deregMr(comm, mhandle) : missing("deregMr");
  }

  int isend(void* send_comm, void* data, std::size_t size, int tag, void* mhandle, void* phandle,
            void** request) override {
    if (table_->isend == nullptr) return missing("isend");
    if constexpr (V <= 8) {
      if (size > kMaxTransferV8) return too_large("isend", size, kMaxTransferV8);
      return table_->isend(send_comm, data, static_cast<int>(size), tag, mhandle, request);
    } else if constexpr (V == 9) {
      return table_->isend(send_comm, data, size, tag, mhandle, request);
    } else {
      return table_->isend(send_comm, data, size, tag, mhandle, phandle, request);
    }
  }

  int irecv(void* recv_comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles, void** phandles,
            void** request) override {
    if (table_->irecv == nullptr) return missing("irecv");
    if (n > kMaxSubs) return bad_call("irecv groups at most 64 receives", nccl_abi::kInvalidArgument);
    if constexpr (V <= 8) {
      // These tables know no optional completion, so the shims hide the marker from the plugin.
      if (*request == reinterpret_cast<void*>(nccl_abi::kOptionalRecvCompletion)) *request = nullptr;
      std::array<int, kMaxSubs> narrow{};
      for (int i = 0; i < n; ++i) {
        if (sizes[i] > kMaxTransferV8) return too_large("irecv", sizes[i], kMaxTransferV8);
        narrow[static_cast<std::size_t>(i)] = static_cast<int>(sizes[i]);
      }
      return table_->irecv(recv_comm, n, data, narrow.data(), tags, mhandles, request);
    } else if constexpr (V == 9) {
      return table_->irecv(recv_comm, n, data, sizes, tags, mhandles, request);
    } else {
      std::array<void*, kMaxSubs> none{};
      return table_->irecv(recv_comm, n, data, sizes, tags, mhandles, phandles != nullptr ? phandles : none.data(),
                           request);
    }
  }

  int iflush(void* recv_comm, int n, void** data, int* sizes, void** mhandles, void** request) override {
    return table_->iflush != nullptr ? table_->iflush(recv_comm, n, data, sizes, mhandles, request) : missing("iflush");
  }
  int test(void* request, int* done, int* sizes) override {
    return table_->test != nullptr ? table_->test(request, done, sizes) : missing("test");
  }
  int close_send(void* send_comm) override {
    return table_->closeSend != nullptr ? table_->closeSend(send_comm) : missing("closeSend");
  }
  int close_recv(void* recv_comm) override {
    return table_->closeRecv != nullptr ? table_->closeRecv(recv_comm) : missing("closeRecv");
  }
  int close_listen(void* listen_comm) override {
    return table_->closeListen != nullptr ? table_->closeListen(listen_comm) : missing("closeListen");
  }

  // A plugin without the slot is not told, which is what NCCL does.
  int set_net_attr(void* ctx, nccl_abi::NetAttr* attr) override {
    if constexpr (V >= 11) {
      if (table_->setNetAttr != nullptr) return table_->setNetAttr(ctx, attr);
    }
    return nccl_abi::kSuccess;
  }

 private:
  static void* bytes(Handle* handle) { return handle != nullptr ? handle->data() : nullptr; }

  const Table* table_;
  std::unordered_map<void*, std::unique_ptr<nccl_abi::CommConfig>> configs_;  // guarded by set_up_mutex()
};

}  // namespace clustar::bench::proxy
