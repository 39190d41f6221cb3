// One call of NCCL's: what it sends comes to where the engine works, the engine sums it up there, and the result goes
// to where NCCL wants it. Memory of a GPU comes and goes by way of its twin.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "gdr/memory.h"
#include "nccl_plugin/collnet/host_twin.h"
#include "paraexpress/engine/engine.h"
#include "paraexpress/engine/staging.h"
#include "transport/base/result.h"

namespace clustar::nccl_plugin {

// As NCCL registered it: its mhandle.
struct CollMemory {
  gdr::MemoryRef memory{};
  HostTwin* twin = nullptr;  // of GPU memory
};
// Where a call reads or writes.
struct CollRange {
  std::byte* data = nullptr;
  const CollMemory* memory = nullptr;
  HostTwin* twin() const { return memory == nullptr ? nullptr : memory->twin; }
};
// Where the engine works: host memory that is registered with it.
struct WorkPlace {
  std::byte* data = nullptr;
  const HostTwin* twin = nullptr;  // that it is in
};

class CollComm;

// Thread rule: one thread at a time, its owner's.
class CollRequest {
 public:
  using Operations = std::vector<std::unique_ptr<paraexpress::Operation>>;

  CollRequest(CollComm& owner, std::size_t bytes) : owner_(owner), bytes_(bytes) {}

  CollComm& owner() const { return owner_; }
  std::size_t bytes() const { return bytes_; }

  // What it does, before it is first advanced. Of no bytes: nothing is copied.
  void brings(const CollRange& send, std::size_t bytes, const WorkPlace& to);
  void takes(const WorkPlace& from, const CollRange& recv, std::size_t bytes);
  void runs(std::function<void(Operations&)> operations) { start_ = std::move(operations); }
  void works_in(paraexpress::Staging::Block* room) { room_ = room; }
  // The twin's part where it works is NCCL's memory to send, which others may send at the same time.
  void works_in_what_it_sends(std::span<const std::byte> twin) { scratch_ = twin; }

  // What it sends is where the engine works, but for what is copied in the host. True: yes.
  Result<bool> arrives();
  void start();
  bool started() const { return started_; }
  // Of the engine's operations. True: they have ended.
  Result<bool> sums();
  // The result is NCCL's. True: yes.
  Result<bool> leaves();

  // NCCL's memory that it reads or writes, or whose twin it uses.
  bool uses(const gdr::MemoryRef& memory) const;
  bool works_beside(const CollRequest& other) const;  // their scratch memory is not the same
  // A copy has been under way for too long: once.
  bool stands_still();

  paraexpress::Staging::Block* room() const { return room_; }
  std::uint64_t fingerprint = 0;  // what all ranks must take it for
  bool taken_back = false;        // NCCL's memory, before the end
  std::optional<Result<void>> outcome{};

 private:
  // Within the host; of no bytes, or to where it is, nothing.
  struct Move {
    std::byte* to = nullptr;
    const std::byte* from = nullptr;
    std::size_t bytes = 0;
    void run();
  };

  CollComm& owner_;
  const std::size_t bytes_;
  std::function<void(Operations&)> start_{};
  Operations operations_{};
  std::span<const std::byte> reads_{}, writes_{}, scratch_{};
  std::optional<TwinCopy> in_{}, out_{};
  Move in_host_{}, out_host_{};
  paraexpress::Staging::Block* room_ = nullptr;  // the owner's, until the end
  bool started_ = false;
};

}  // namespace clustar::nccl_plugin
