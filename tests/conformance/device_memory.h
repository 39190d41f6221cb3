// "GPU memory" without a GPU: pages that this process can touch only by another address, which stands for what a NIC
// sees. A process that reads or writes them by their own address dies.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <vector>

#include "gdr/memory.h"
#include "transport/base/ring.h"
#include "transport/base/rng.h"
#include "transport/io/decorators/forwarding_io.h"

namespace clustar::transport::conformance {

class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t size) : size_(size) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    mapped_ = (size + page - 1) / page * page + page;
    fd_ = memfd_create("device memory", MFD_CLOEXEC);
    if (fd_ < 0 || ftruncate(fd_, static_cast<off_t>(mapped_)) != 0) throw std::runtime_error("no memfd");
    view_ = map(PROT_READ | PROT_WRITE);
    device_ = map(PROT_NONE);
    const std::lock_guard lock(mutex());
    views()[device_] = {mapped_, view_};
  }
  ~DeviceMemory() {
    const std::lock_guard lock(mutex());
    views().erase(device_);
    munmap(view_, mapped_);
    munmap(device_, mapped_);
    close(fd_);
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  gdr::MemoryRef ref(gdr::MemoryKind kind = gdr::MemoryKind::kCuda) const {
    return {kind, device_, size_, kind == gdr::MemoryKind::kDmaBuf ? fd_ : -1, 0};
  }
  // By its own address: what the kernel needs to register pages with a real device, which then keeps them.
  void touchable(bool on) const {
    if (mprotect(device_, mapped_, on ? PROT_READ | PROT_WRITE : PROT_NONE) != 0) throw std::runtime_error("mprotect");
  }
  std::span<std::byte> bytes() const { return {view_, size_}; }  // as the NIC sees them
  // Where a NIC finds what has this address; null: no such memory.
  static std::byte* view_of(std::byte* device) {
    const std::lock_guard lock(mutex());
    auto found = views().upper_bound(device);
    if (found == views().begin()) return nullptr;
    --found;
    const auto offset = static_cast<std::size_t>(device - found->first);
    return offset < found->second.first ? found->second.second + offset : nullptr;
  }

 private:
  using Views = std::map<std::byte*, std::pair<std::size_t, std::byte*>>;
  static Views& views() {
    static Views all;
    return all;
  }
  static std::mutex& mutex() {
    static std::mutex one;
    return one;
  }
  std::byte* map(int rights) const {
    void* at = mmap(nullptr, mapped_, rights, MAP_SHARED, fd_, 0);
    if (at == MAP_FAILED) throw std::runtime_error("no memory");
    return static_cast<std::byte*>(at);
  }

  std::size_t size_;
  std::size_t mapped_ = 0;
  int fd_ = -1;
  std::byte* view_ = nullptr;
  std::byte* device_ = nullptr;
};

// What tests turn at a DeviceIo, from any thread, and what they see of it.
struct DeviceKnobs {
  std::mutex mutex;
  bool hold = false;         // nothing that was begun ends, unless somebody settles
  bool fails = false;        // the next call fails
  std::byte* lie = nullptr;  // where payload is said to have been placed, whatever the packet
  std::size_t room = 8;
  std::uint64_t most_behind = 3;  // looks after which an operation ends, at most
  std::uint64_t looks = 0;        // at what has ended
  std::uint64_t packets = 0;      // received
  std::uint64_t writes = 0;
  std::uint64_t zeroes = 0;
  std::uint64_t flushes = 0;
  std::uint64_t no_room = 0;
};

// Registers DeviceMemory at its view, and writes it late: each operation takes effect when it ends.
class DeviceIo final : public io::ForwardingIo {
 public:
  DeviceIo(std::unique_ptr<io::PacketIo> inner, DeviceKnobs& knobs) : ForwardingIo(std::move(inner)), writer_(knobs) {}

  Result<std::unique_ptr<io::Mr>> reg_mr(const gdr::MemoryRef& memory) override {
    if (memory.kind == gdr::MemoryKind::kHost) return ForwardingIo::reg_mr(memory);
    std::byte* view = DeviceMemory::view_of(memory.address);
    if (view == nullptr) return fail(ErrorCode::kInvalidArgument, "no device memory");
    auto inner = ForwardingIo::reg_mr(gdr::MemoryRef::host(view, memory.length));
    if (!inner) return inner;
    return std::make_unique<DeviceMr>(memory, std::move(*inner), writer_);
  }
  Result<std::size_t> send(std::span<const io::TxPacket> packets) override {
    seen_.assign(packets.begin(), packets.end());
    for (io::TxPacket& packet : seen_) {
      if (const auto* device = dynamic_cast<const DeviceMr*>(packet.payload.mr)) packet.payload.mr = device->view.get();
    }
    return ForwardingIo::send(seen_);
  }
  Result<std::size_t> receive(std::span<io::RxPacket> packets) override {
    auto count = ForwardingIo::receive(packets);
    const std::lock_guard lock(writer_.knobs.mutex);
    writer_.knobs.packets += count.value_or(0);
    for (io::RxPacket& packet : packets.first(count.value_or(0))) {
      if (writer_.knobs.lie == nullptr || packet.payload.empty()) continue;
      packet.payload = {writer_.knobs.lie, packet.payload.size()};
      packet.placed = true;
    }
    return count;
  }
  io::PlacementHint expect(io::PeerId peer, std::uint64_t slot, const io::MemorySlice& target,
                           std::size_t segment_bytes) override {
    if (target.mr->memory().kind != gdr::MemoryKind::kHost) return {};
    return ForwardingIo::expect(peer, slot, target, segment_bytes);
  }
  io::MemoryWriter* writer() override { return &writer_; }

 private:
  class Writer final : public io::MemoryWriter {
   public:
    explicit Writer(DeviceKnobs& turned) : knobs(turned) {}
    std::size_t most_bytes() const override { return 5000; }  // less than a packet over loopback
    Result<bool> write(const io::MemorySlice& target, std::span<const std::byte> bytes) override {
      return begin(target, knobs.writes, {bytes.begin(), bytes.end()});
    }
    Result<bool> zero(const io::MemorySlice& target) override {
      return begin(target, knobs.zeroes, std::vector<std::byte>(target.length));
    }
    Result<bool> flush(const io::MemorySlice& target) override { return begin(target, knobs.flushes, {}); }
    Result<std::uint64_t> finished() override {
      const std::lock_guard lock(knobs.mutex);
      if (knobs.fails) return fail(ErrorCode::kSystem, "this test broke the writer");
      ++knobs.looks;
      while (!begun_.empty() && !knobs.hold && begun_.front().looks-- == 0) end_one();
      return ended_;
    }
    void quiesce() override {
      const std::lock_guard lock(knobs.mutex);
      while (!begun_.empty()) end_one();
    }

    DeviceKnobs& knobs;

   private:
    struct Begun {
      std::byte* at = nullptr;
      std::vector<std::byte> bytes{};
      std::uint64_t looks = 0;
    };
    Result<bool> begin(const io::MemorySlice& target, std::uint64_t& count, std::vector<std::byte> bytes) {
      const std::lock_guard lock(knobs.mutex);
      if (knobs.fails) return fail(ErrorCode::kSystem, "this test broke the writer");
      const gdr::MemoryRef& memory = dynamic_cast<const DeviceMr&>(*target.mr).memory();
      const bool within = target.length > 0 && target.length <= most_bytes() && target.offset <= memory.length &&
                          target.length <= memory.length - target.offset;
      if (!within) return fail(ErrorCode::kInternal, "outside of the memory");
      if (begun_.size() >= knobs.room) {
        ++knobs.no_room;
        return false;
      }
      ++count;
      begun_.push_back({DeviceMemory::view_of(memory.address + target.offset), std::move(bytes),
                        knobs.most_behind == 0 ? 0 : rng_.below(knobs.most_behind + 1)});
      return true;
    }
    void end_one() {
      const Begun one = begun_.pop_front();
      std::ranges::copy(one.bytes, one.at);
      ++ended_;
    }

    Ring<Begun> begun_;
    std::uint64_t ended_ = 0;
    Rng rng_{17};
  };
  struct DeviceMr final : io::Mr {
    DeviceMr(const gdr::MemoryRef& memory, std::unique_ptr<io::Mr> inner, Writer& its_writer)
        : Mr(memory), view(std::move(inner)), writer(its_writer) {}
    ~DeviceMr() override { writer.quiesce(); }
    std::unique_ptr<io::Mr> view;
    Writer& writer;
  };

  Writer writer_;
  std::vector<io::TxPacket> seen_;
};

}  // namespace clustar::transport::conformance
