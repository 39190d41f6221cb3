// Connections of one rank, to its two ring neighbours or to all peers, with their step buffers: set up and closed in
// the order of NCCL 2.28.9 src/transport/net.cc (recvProxySetup, sendProxyConnect, recvProxyConnect, the two
// ...ProxyFree).
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "bench/proxy/net_plugin.h"
#include "bench/proxy/steps.h"
#include "transport/base/result.h"

namespace clustar::bench::proxy {

// Zeroed pages that cost nothing until they are touched.
class MappedBuffer {
 public:
  MappedBuffer() = default;
  ~MappedBuffer();
  MappedBuffer(MappedBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  MappedBuffer& operator=(MappedBuffer&&) = delete;
  static Result<MappedBuffer> create(std::size_t size);
  // The same with a descriptor, which is the caller's, as a GPU's memory has one as a dma-buf.
  static Result<MappedBuffer> create_shared(std::size_t size, int* fd);
  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// One protocol buffer as the plugin knows it.
struct Registered {
  MappedBuffer memory;
  void* mhandle = nullptr;
};

// One send comm to a rank and one receive comm from a rank, for one channel or a group of them.
struct Link {
  int to = 0;
  int from = 0;
  int first_channel = 0;
  int channels = 1;
  Handle next_handle{};  // the same buffer in every retry of connect: a plugin may keep state in it
  void* listen_comm = nullptr;
  void* send_comm = nullptr;
  void* recv_comm = nullptr;
  std::vector<Registered> send_buffers;  // as Links' buffer sizes, each that many bytes per channel
  std::vector<Registered> recv_buffers;
};

// All methods on the service thread, but links(), which the progress thread reads between connect() and close().
class Links {
 public:
  // `buffer_bytes`: of each buffer that a comm gets, per channel.
  Links(NetPlugin& plugin, void* ctx, int device, std::vector<Link> links, std::vector<std::size_t> buffer_bytes);

  // Before connect(): buffers are where NCCL has them for a GPU that the NIC reaches (useGdr): all in the GPU's memory,
  // which host memory plays, but LL's of sends. `dma_bufs`: registered as such, otherwise as CUDA pointers.
  void use_gpu_memory(bool dma_bufs);

  // One handle per link, for the rank to connect to that the link receives from.
  Result<std::vector<Handle>> listen();
  Result<void> connect(std::span<const Handle> next_handles, std::chrono::steady_clock::time_point deadline);
  // Closes whatever is open; the first error, after trying everything.
  Result<void> close();

  std::span<Link> links() { return links_; }

 private:
  Result<bool> poll_connect(Link& link);
  Result<bool> poll_accept(Link& link);
  Result<void> register_buffers(void* comm, int channels, bool sending, std::vector<Registered>& buffers);
  Result<void> register_gpu_buffer(void* comm, std::size_t bytes, std::vector<Registered>& buffers);
  std::string describe_unconnected() const;

  NetPlugin& plugin_;
  void* ctx_;
  int device_;
  std::vector<Link> links_;
  std::vector<std::size_t> buffer_bytes_;
  bool gpu_memory_ = false;
  bool dma_bufs_ = false;
};

// Of a ring 0, 1, ... size - 1, 0: a link per group of channels, a buffer per protocol (its number is its place).
Links ring_links(NetPlugin& plugin, void* ctx, int device, int rank, int size, int channels, int group);
// To each other rank, in their order, for sends and receives: one buffer, of NCCL's p2p steps.
Links direct_links(NetPlugin& plugin, void* ctx, int device, int rank, int size);

}  // namespace clustar::bench::proxy
