// A fixed number of receive buffers, each shared by the packets that the kernel coalesced into it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace clustar::transport::io::udp {

using BufferId = std::uint32_t;

class BufferPool {
 public:
  // Memory is taken now but touched by the kernel only when a buffer is first used.
  BufferPool(std::size_t buffers, std::size_t bytes_each);

  std::size_t free() const { return free_.size(); }
  std::size_t size() const { return holders_.size(); }
  std::size_t buffer_bytes() const { return bytes_each_; }
  std::span<std::byte> bytes(BufferId buffer) { return {memory_.get() + buffer * stride_, bytes_each_}; }

  // The most recently released first: it may still be in a cache. Needs free() > 0; the caller is the only holder.
  BufferId take();
  void hold(BufferId buffer) { ++holders_[buffer]; }
  // False, and nothing done, if nobody holds such a buffer.
  bool drop(BufferId buffer);

 private:
  std::size_t bytes_each_;
  std::size_t stride_;
  std::unique_ptr<std::byte[]> memory_;
  std::vector<std::uint32_t> holders_;
  std::vector<BufferId> free_;
};

}  // namespace clustar::transport::io::udp
