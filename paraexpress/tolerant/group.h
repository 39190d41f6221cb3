// A tolerant group at work: a Party, and the thread that carries for it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "paraexpress/engine/farewell.h"
#include "paraexpress/engine/mesh.h"
#include "paraexpress/engine/pending.h"
#include "paraexpress/tolerant/carrier.h"
#include "paraexpress/tolerant/core/party.h"
#include "paraexpress/tolerant/tolerant.h"
#include "transport/base/library_thread.h"

namespace clustar::paraexpress::tolerant {

class TheGroup final : public Group, private Listener {
 public:
  TheGroup(const GroupOptions& options, const Terms& terms) : options_(options), terms_(terms) {}
  ~TheGroup() override { close(); }
  Result<void> set_up(transport::Transport& transport, const AllGather& all_gather);

  std::unique_ptr<Round> all_reduce(std::uint32_t bucket, void* elements, std::size_t count, DataType type,
                                    bool gives) override;
  bool should_compute() override;
  Result<Residual> residual(std::uint32_t bucket) override;
  Result<void> restore(std::uint32_t bucket, Residual residual) override;
  EngineTraffic traffic() const override;
  void abort(const std::string& why) override;
  void close() override;

 private:
  using Instant = std::chrono::steady_clock::time_point;
  class Started;
  struct Open {
    std::uint32_t bucket = 0;
    std::shared_ptr<Pending<Outcome>> pending{};
    std::byte* elements = nullptr;
    std::uint64_t count = 0;
    DataType type = DataType::kFloat32;
    bool gives = true;
    bool begun = false;
  };

  std::optional<Blame> heard(Member from, std::span<const std::byte> note) override;
  std::optional<Blame> came(Member from, const Ticket& ticket, std::span<const ElementRange> missing) override;
  void sent(Member to, const Ticket& ticket, std::span<const ElementRange> missing) override;

  void serve();
  // With the lock.
  std::optional<Blame> step();
  std::optional<Blame> begin_rounds();
  bool settle();
  std::optional<Blame> look(bool moved);
  std::optional<Blame> look_for_stalls(std::chrono::steady_clock::duration idle) const;
  void rest(std::unique_lock<std::mutex>& lock);
  void end(const std::optional<Blame>& why);
  Result<void> usable(std::uint32_t bucket) const;

  const GroupOptions options_;
  const Terms terms_;

  mutable std::mutex mutex_{};  // of all that follows; the channels are the thread's, once it runs
  std::condition_variable wake_{};
  // In the order of who uses whom.
  std::unique_ptr<Mesh> mesh_{};
  std::unique_ptr<Farewells> farewells_{};
  std::unique_ptr<Carrier> carrier_{};
  std::unique_ptr<Party> party_{};
  std::vector<Open> open_{};
  Instant moved_at_{};
  std::uint64_t looks_ = 0;
  std::optional<Blame> failed_{};
  EngineTraffic traffic_{};  // when it was taken down
  bool closing_ = false;
  std::mutex closers_{};
  LibraryThread thread_{};
};

}  // namespace clustar::paraexpress::tolerant
