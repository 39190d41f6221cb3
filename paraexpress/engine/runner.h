// Runs one operation at a time: a member's program over the mesh.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "paraexpress/core/program.h"
#include "paraexpress/engine/farewell.h"
#include "paraexpress/engine/mesh.h"

namespace clustar::paraexpress {

struct Work {
  Collective collective = Collective::kAllReduce;
  std::byte* data = nullptr;
  std::uint64_t count = 0;  // elements
  DataType type = DataType::kFloat32;
  Reduction reduction = Reduction::kSum;
  const Seat* seat = nullptr;
  std::vector<ElementRange> ranges{};
  std::uint64_t chunk = 0;             // elements
  const Registered* memory = nullptr;  // holds `data`
};

class Runner {
 public:
  // `abort`: looked at now and then; set, an operation ends with blame on this rank.
  Runner(Mesh& mesh, Farewells& farewells, const EngineOptions& options, const std::atomic<bool>& abort);

  // Blocks. What was not done of it when it failed may still be written to until the mesh is gone.
  std::optional<Blame> run(const Work& work);
  EngineTraffic traffic() const;  // any thread

  // Partial sums from one peer that came and are not added yet.
  static constexpr std::uint32_t kWindow = 4;
  // Messages of a link at once.
  static constexpr std::uint32_t kPosted = 4;

 private:
  struct Link {
    std::deque<transport::Request*> requests{};
    std::deque<std::uint64_t> bytes{};
  };
  std::optional<Blame> post(const Work& work, Program& program, std::size_t link, bool& moved);
  std::optional<Blame> take(Program& program, std::size_t link, bool& moved);
  std::optional<Blame> add_up(const Work& work, Program& program, bool& moved);
  // The peer's channel failed: unless the others say who is to blame, it is the peer.
  Blame channel_failed(Member peer, const Error& error);
  Blame stalled(const Program& program) const;
  int tag(bool up) const;
  // Where partial sums of the peer land.
  Result<void> make_places(Member peer, std::uint64_t bytes);

  struct Places {
    std::unique_ptr<std::byte[]> memory{};
    std::uint64_t each = 0;  // bytes
    std::unique_ptr<transport::Mr> mr{};
  };

  Mesh& mesh_;
  Farewells& farewells_;
  const EngineOptions& options_;
  const std::atomic<bool>& abort_;
  std::uint64_t number_ = 0;   // of the operation
  int kind_ = 0;               // what it does, to what
  std::uint64_t element_ = 1;  // bytes
  std::vector<Link> links_;
  std::vector<Places> places_;  // by peer
  std::vector<const void*> inputs_;
  std::atomic<std::uint64_t> bytes_sent_{0}, bytes_received_{0}, messages_sent_{0}, messages_received_{0};
};

}  // namespace clustar::paraexpress
