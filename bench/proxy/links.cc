#include "bench/proxy/links.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <thread>

#include "bench/proxy/direct_blocks.h"
#include "bench/proxy/plugin_error.h"

namespace clustar::bench::proxy {
namespace {

using std::chrono::steady_clock;

static_assert(static_cast<int>(Protocol::kSimple) == 0 && static_cast<int>(Protocol::kLL) == 1 &&
              static_cast<int>(Protocol::kLL128) == 2);

nccl_abi::NetAttr undefined_attr() {
  const nccl_abi::CommAttr none{-1, -1, -1, -1};
  return {none, none, nccl_abi::kNetAttrUndefined, nccl_abi::kNetAttrUndefined, nccl_abi::kNetAttrUndefined};
}

}  // namespace

MappedBuffer::~MappedBuffer() {
  if (data_ != nullptr) munmap(data_, size_);
}

Result<MappedBuffer> MappedBuffer::create(std::size_t size) {
  void* data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return fail(ErrorCode::kSystem,
                fmt::format("no memory for a step buffer of {} bytes; use fewer channels or ranks per machine", size));
  }
  MappedBuffer buffer;
  buffer.data_ = static_cast<std::byte*>(data);
  buffer.size_ = size;
  return buffer;
}

Result<MappedBuffer> MappedBuffer::create_shared(std::size_t size, int* fd) {
  *fd = memfd_create("gpu", MFD_CLOEXEC);
  void* data = MAP_FAILED;
  if (*fd >= 0 && ftruncate(*fd, static_cast<off_t>(size)) == 0) {
    data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, *fd, 0);
  }
  if (data == MAP_FAILED) {
    if (*fd >= 0) ::close(*fd);
    return fail(ErrorCode::kSystem, fmt::format("no memory for {} bytes that play a GPU's; use fewer channels", size));
  }
  MappedBuffer buffer;
  buffer.data_ = static_cast<std::byte*>(data);
  buffer.size_ = size;
  return buffer;
}

void Links::use_gpu_memory(bool dma_bufs) {
  gpu_memory_ = true;
  dma_bufs_ = dma_bufs;
}

Links::Links(NetPlugin& plugin, void* ctx, int device, std::vector<Link> links, std::vector<std::size_t> buffer_bytes)
    : plugin_(plugin), ctx_(ctx), device_(device), links_(std::move(links)), buffer_bytes_(std::move(buffer_bytes)) {}

Result<std::vector<Handle>> Links::listen() {
  std::vector<Handle> handles;
  for (Link& link : links_) {
    Handle handle{};
    const int result = plugin_.listen(ctx_, device_, &handle, &link.listen_comm);
    if (result != nccl_abi::kSuccess) {
      link.listen_comm = nullptr;
      return tl::unexpected(plugin_error(plugin_, fmt::format("listen on device {}", device_), result));
    }
    if (link.listen_comm == nullptr) {
      return fail(ErrorCode::kInternal, "listen succeeded without a listen comm, which NCCL does not allow");
    }
    handles.push_back(handle);
  }
  return handles;
}

// As NCCL does it (v2.28.9 src/transport/net.cc 951-956): the descriptor is closed straight after.
Result<void> Links::register_gpu_buffer(void* comm, std::size_t bytes, std::vector<Registered>& buffers) {
  int fd = -1;
  auto memory = MappedBuffer::create_shared(bytes, &fd);
  if (!memory) return tl::unexpected(memory.error());
  void* mhandle = nullptr;
  const int result = dma_bufs_
                         ? plugin_.reg_mr_dma_buf(comm, memory->data(), bytes, nccl_abi::kPtrCuda, 0, fd, &mhandle)
                         : plugin_.reg_mr(comm, memory->data(), bytes, nccl_abi::kPtrCuda, &mhandle);
  ::close(fd);
  if (result != nccl_abi::kSuccess) {
    const char* const call = dma_bufs_ ? "regMrDmaBuf" : "regMr";
    return tl::unexpected(plugin_error(plugin_, fmt::format("{} of {} bytes of GPU memory", call, bytes), result));
  }
  buffers.push_back(Registered{std::move(*memory), mhandle});
  return {};
}

Result<void> Links::register_buffers(void* comm, int channels, bool sending, std::vector<Registered>& buffers) {
  for (std::size_t i = 0; i < buffer_bytes_.size(); ++i) {
    const std::size_t bytes = buffer_bytes_[i];
    if (gpu_memory_ && !(sending && i == static_cast<std::size_t>(Protocol::kLL))) {
      auto done = register_gpu_buffer(comm, bytes * static_cast<std::size_t>(channels), buffers);
      if (!done) return done;
      continue;
    }
    auto memory = MappedBuffer::create(bytes * static_cast<std::size_t>(channels));
    if (!memory) return tl::unexpected(memory.error());
    void* mhandle = nullptr;
    const int result = plugin_.reg_mr(comm, memory->data(), memory->size(), nccl_abi::kPtrHost, &mhandle);
    if (result != nccl_abi::kSuccess) {
      return tl::unexpected(
          plugin_error(plugin_, fmt::format("regMr of {} bytes of host memory", memory->size()), result));
    }
    buffers.push_back(Registered{std::move(*memory), mhandle});
  }
  return {};
}

// True when the link got its send comm in this call.
Result<bool> Links::poll_connect(Link& link) {
  if (link.send_comm != nullptr) return false;
  const int result = plugin_.connect(ctx_, device_, &link.next_handle, &link.send_comm);
  if (result != nccl_abi::kSuccess) {
    link.send_comm = nullptr;
    return tl::unexpected(
        plugin_error(plugin_, fmt::format("connect to rank {} for channel {}", link.to, link.first_channel), result));
  }
  if (link.send_comm == nullptr) return false;
  if (auto done = register_buffers(link.send_comm, link.channels, true, link.send_buffers); !done) {
    return tl::unexpected(done.error());
  }
  return true;
}

Result<bool> Links::poll_accept(Link& link) {
  if (link.recv_comm != nullptr) return false;
  const int result = plugin_.accept(link.listen_comm, &link.recv_comm);
  if (result != nccl_abi::kSuccess) {
    link.recv_comm = nullptr;
    return tl::unexpected(plugin_error(
        plugin_, fmt::format("accept from rank {} for channel {}", link.from, link.first_channel), result));
  }
  if (link.recv_comm == nullptr) return false;
  // NCCL closes the listen comm before it registers anything with the new comm.
  const int closed = plugin_.close_listen(std::exchange(link.listen_comm, nullptr));
  if (closed != nccl_abi::kSuccess) return tl::unexpected(plugin_error(plugin_, "closeListen", closed));
  if (auto done = register_buffers(link.recv_comm, link.channels, false, link.recv_buffers); !done) {
    return tl::unexpected(done.error());
  }
  return true;
}

std::string Links::describe_unconnected() const {
  std::string text;
  for (const Link& link : links_) {
    if (link.send_comm == nullptr)
      text += fmt::format("; connect to rank {} (channel {})", link.to, link.first_channel);
    if (link.recv_comm == nullptr)
      text += fmt::format("; accept from rank {} (channel {})", link.from, link.first_channel);
  }
  return text.empty() ? text : text.substr(2);
}

Result<void> Links::connect(std::span<const Handle> next_handles, steady_clock::time_point deadline) {
  for (std::size_t i = 0; i < links_.size(); ++i) links_[i].next_handle = next_handles[i];
  nccl_abi::NetAttr attr = undefined_attr();
  plugin_.set_net_attr(ctx_, &attr);  // NCCL ignores the result too
  std::size_t open_ends = 2 * links_.size();
  for (int idle_rounds = 0; open_ends > 0;) {
    const std::size_t before = open_ends;
    for (Link& link : links_) {
      auto connected = poll_connect(link);
      if (!connected) return tl::unexpected(connected.error());
      auto accepted = poll_accept(link);
      if (!accepted) return tl::unexpected(accepted.error());
      open_ends -= static_cast<std::size_t>(*connected) + static_cast<std::size_t>(*accepted);
    }
    if (open_ends == before && steady_clock::now() >= deadline) {
      return fail(ErrorCode::kRemote, fmt::format("not connected in time: still open are {}", describe_unconnected()));
    }
    idle_rounds = open_ends == before ? idle_rounds + 1 : 0;
    // The peer may share this core, so a long wait sleeps instead of polling.
    if (idle_rounds < 200) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }
  return {};
}

Result<void> Links::close() {
  std::optional<Error> first;
  const auto note = [&](const char* call, int result) {
    if (result != nccl_abi::kSuccess && !first) first = plugin_error(plugin_, call, result);
  };
  for (Link& link : links_) {
    for (Registered& buffer : link.send_buffers) note("deregMr", plugin_.dereg_mr(link.send_comm, buffer.mhandle));
    if (link.send_comm != nullptr) note("closeSend", plugin_.close_send(std::exchange(link.send_comm, nullptr)));
    for (Registered& buffer : link.recv_buffers) note("deregMr", plugin_.dereg_mr(link.recv_comm, buffer.mhandle));
    if (link.recv_comm != nullptr) note("closeRecv", plugin_.close_recv(std::exchange(link.recv_comm, nullptr)));
    if (link.listen_comm != nullptr) {
      note("closeListen", plugin_.close_listen(std::exchange(link.listen_comm, nullptr)));
    }
    // After the comms: a transfer that was never tested may reach its buffer until its comm is closed.
    link.send_buffers.clear();
    link.recv_buffers.clear();
  }
  if (first) return tl::unexpected(*first);
  return {};
}

Links ring_links(NetPlugin& plugin, void* ctx, int device, int rank, int size, int channels, int group) {
  std::vector<Link> links;
  for (int first = 0; first < channels; first += group) {
    Link& link = links.emplace_back();
    link.to = (rank + 1) % size;
    link.from = (rank + size - 1) % size;
    link.first_channel = first;
    link.channels = std::min(group, channels - first);
  }
  return Links(plugin, ctx, device, std::move(links),
               {buffer_bytes(Protocol::kSimple), buffer_bytes(Protocol::kLL), buffer_bytes(Protocol::kLL128)});
}

Links direct_links(NetPlugin& plugin, void* ctx, int device, int rank, int size) {
  std::vector<Link> links;
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    Link& link = links.emplace_back();
    link.to = link.from = peer;
  }
  return Links(plugin, ctx, device, std::move(links), {kSteps * kP2pStepBytes});
}

}  // namespace clustar::bench::proxy
