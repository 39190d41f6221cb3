// What a communicator's thread does: starts tasks, moves their messages, and ends them.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>

#include "paraexpress/communicator/core/standing.h"
#include "paraexpress/communicator/lines.h"
#include "paraexpress/communicator/task.h"
#include "paraexpress/engine/engine.h"
#include "paraexpress/engine/staging.h"

namespace clustar::paraexpress {

// Thread rule: one thread at a time.
class Tasks {
 public:
  using Instant = std::chrono::steady_clock::time_point;

  // Both outlive it. Of a communicator of one rank there is no mesh, and there are no lines.
  Tasks(Engine& engine, Mesh* mesh);
  void set_lines(Lines* lines) { lines_ = lines; }

  void add(Task task);
  // True: something moved. Tasks end in here.
  bool advance(Instant now);
  // Messages move only in advance().
  bool must_poll() const { return (lines_ != nullptr && lines_->busy()) || told_; }
  // When advance() must be called at the latest.
  Instant next() const;
  // All that is under way and all that comes ends with this error, and nothing is sent or received any more.
  void fail_all(const Error& error);
  bool failed() const { return failed_.has_value(); }
  bool idle() const { return queue_.empty() && running_.empty() && exchanges_.empty(); }

  void heard(Member from, const Standing& theirs);

 private:
  struct Running {
    Task task{};
    std::uint64_t number = 0;  // of a collective
    Instant since{};
    bool asked = false;  // others were told of it
    Staging::Block* block = nullptr;
    std::unique_ptr<Operation> operation{};
    std::deque<Message> messages{};
  };

  bool start_collectives();
  bool may_start(const Running& one) const;
  void start_operation(Running& one);
  void start_exchange(std::unique_ptr<Running> one);
  bool end_operations();
  bool end_exchanges();
  void end_late(Instant now);
  void look_for_strays(Instant now);
  // False: it failed, and so everything.
  bool copy(const std::function<void(std::byte*)>& copy, const Running& one);

  Engine& engine_;
  Lines* lines_ = nullptr;
  Staging engine_memory_, lines_memory_;
  std::deque<std::unique_ptr<Running>> queue_{};     // collectives of the engine that have not begun
  std::list<std::unique_ptr<Running>> running_{};    // begun, in the order of their starts
  std::list<std::unique_ptr<Running>> exchanges_{};  // under way
  std::list<std::unique_ptr<Running>> abandoned_{};  // failed; messages of theirs still use their memory
  std::size_t staged_ = 0;                           // bytes of running_'s blocks
  std::uint64_t last_number_ = 0;
  Standings standings_{};
  bool told_ = false;  // one does not end, so others may have something to say
  std::optional<Error> failed_{};
};

}  // namespace clustar::paraexpress
