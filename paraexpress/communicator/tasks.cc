#include "paraexpress/communicator/tasks.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

namespace clustar::paraexpress {
namespace {

constexpr std::size_t kMostRunning = 16;                 // the engine runs a few of them at once
constexpr std::size_t kMostStaged = Staging::kMostKept;  // bytes, unless one alone needs more
constexpr auto kPatience = std::chrono::seconds(2);      // before others are asked whether they take it for the same

Standing standing_of(const Task& task, std::uint64_t number) {
  const bool exchange = task.kind == TaskKind::kExchange;
  const bool sums = task.kind == TaskKind::kAllReduce || task.kind == TaskKind::kReduceScatter;
  return {
      number,
      pack(static_cast<std::uint8_t>(task.kind),
           exchange ? static_cast<std::uint8_t>(task.use) : static_cast<std::uint8_t>(sums ? task.type : DataType{}),
           static_cast<std::uint8_t>(sums ? task.reduction : Reduction{}), task.root),
      exchange ? 0 : task.count};
}

bool all_ended(const std::deque<Message>& messages) {
  return std::ranges::all_of(messages, [](const Message& one) { return one.ended; });
}

}  // namespace

Tasks::Tasks(Engine& engine, Mesh* mesh)
    : engine_(engine),
      engine_memory_([&engine](Staging::Block& block) { return engine.add_memory(block.memory.get(), block.bytes); },
                     [&engine](Staging::Block& block) { (void)engine.remove_memory(block.memory.get(), block.bytes); }),
      lines_memory_(
          [mesh](Staging::Block& block) -> Result<void> {
            if (mesh == nullptr) return {};
            auto registered = mesh->reg_mr(block.memory.get(), block.bytes);
            if (!registered) return tl::unexpected(registered.error());
            block.registered = std::move(*registered);
            return {};
          },
          [](Staging::Block& block) { block.registered.reset(); }) {}

void Tasks::add(Task task) {
  auto one = std::make_unique<Running>();
  one->task = std::move(task);
  one->since = std::chrono::steady_clock::now();
  if (one->task.kind != TaskKind::kMessage) {
    one->number = ++last_number_;
    const auto wrong = standings_.begun(standing_of(one->task, one->number));
    if (wrong) fail_all({ErrorCode::kInvalidUsage, *wrong});
  }
  if (failed_) return one->task.ended(tl::unexpected(*failed_));
  if (one->task.kind == TaskKind::kExchange || one->task.kind == TaskKind::kMessage) {
    return start_exchange(std::move(one));
  }
  queue_.push_back(std::move(one));
}

bool Tasks::advance(Instant now) {
  bool moved = end_operations();
  moved = start_collectives() || moved;
  if (lines_ != nullptr && !failed_ && must_poll()) moved = lines_->advance() || moved;
  moved = end_exchanges() || moved;
  if (!failed_) end_late(now);
  if (!failed_) look_for_strays(now);
  return moved;
}

Tasks::Instant Tasks::next() const {
  Instant first = Instant::max();
  for (const auto& one : queue_) first = std::min(first, one->task.deadline);
  for (const auto& one : running_) {
    first = std::min(first, one->task.deadline);
    if (lines_ != nullptr && !one->asked) first = std::min(first, one->since + kPatience);
  }
  for (const auto& one : exchanges_) first = std::min(first, one->task.deadline);
  return first;
}

bool Tasks::copy(const std::function<void(std::byte*)>& copy, const Running& one) {
  if (!copy) return true;
  std::string why;
  try {
    copy(one.block == nullptr ? nullptr : one.block->memory.get());
    return true;
  } catch (const std::exception& error) {
    why = error.what();
  }
  fail_all({ErrorCode::kInternal, fmt::format("{}: a copy failed: {}", one.task.name, why)});
  return false;
}

bool Tasks::may_start(const Running& one) const {
  if (one.task.kind == TaskKind::kBarrier) {
    return running_.empty() && std::ranges::none_of(exchanges_, [&](const auto& other) {
             return other->task.kind == TaskKind::kExchange && other->number < one.number;
           });
  }
  return running_.empty() ||
         (running_.size() < kMostRunning && staged_ + Staging::rounded(one.task.staged) <= kMostStaged);
}

bool Tasks::start_collectives() {
  bool moved = false;
  while (!failed_ && !queue_.empty() && may_start(*queue_.front())) {
    running_.push_back(std::move(queue_.front()));
    queue_.pop_front();
    start_operation(*running_.back());
    moved = true;
  }
  return moved;
}

void Tasks::start_operation(Running& one) {
  const Task& task = one.task;
  auto block = engine_memory_.take(std::max<std::size_t>(task.staged, 1));
  if (!block) return fail_all(block.error());
  one.block = *block;
  staged_ += one.block->bytes;
  if (!copy(task.fill, one)) return;
  std::byte* const memory = one.block->memory.get();
  switch (task.kind) {
    case TaskKind::kAllReduce:
      one.operation = engine_.all_reduce(memory, task.count, task.type, task.reduction);
      return;
    case TaskKind::kAllGather: one.operation = engine_.all_gather(memory, task.count); return;
    case TaskKind::kReduceScatter:
      one.operation = engine_.reduce_scatter(memory, task.count, task.type, task.reduction);
      return;
    case TaskKind::kBroadcast: one.operation = engine_.broadcast(memory, task.count, task.root); return;
    case TaskKind::kBarrier:
      *memory = std::byte{0};
      one.operation = engine_.all_reduce(memory, 1, DataType::kUint8);
      return;
    case TaskKind::kExchange:
    case TaskKind::kMessage: break;
  }
}

bool Tasks::end_operations() {
  bool moved = false;
  for (auto at = running_.begin(); !failed_ && at != running_.end();) {
    Running& one = **at;
    if (one.operation == nullptr || !one.operation->done()) {
      ++at;
      continue;
    }
    moved = true;
    const auto result = one.operation->wait();
    if (!result) {
      fail_all({result.error().code, fmt::format("{}: {}", one.task.name, result.error().message)});
      break;
    }
    if (!copy(one.task.take, one)) break;
    staged_ -= one.block->bytes;
    engine_memory_.give_back(one.block);
    const auto over = std::move(*at);
    at = running_.erase(at);
    over->task.ended(0);
  }
  if (running_.empty()) told_ = false;
  return moved;
}

void Tasks::start_exchange(std::unique_ptr<Running> one) {
  const Task& task = one->task;
  if (task.staged > 0) {
    auto block = lines_memory_.take(task.staged);
    if (!block) return one->task.ended(tl::unexpected(block.error()));
    one->block = *block;
  }
  exchanges_.push_back(std::move(one));
  Running& kept = *exchanges_.back();
  if (!copy(task.fill, kept)) return;
  const MessageKey key{task.use, task.kind == TaskKind::kMessage ? task.tag : kept.number};
  for (const Transfer& transfer : task.transfers) {
    Message& message = kept.messages.emplace_back();
    message.sends = transfer.sends;
    message.peer = transfer.peer;
    message.key = key;
    message.bytes = transfer.bytes;
    if (kept.block == nullptr) continue;
    message.data = kept.block->memory.get() + transfer.offset;
    message.memory = kept.block->registered.get();
  }
  for (Message& message : kept.messages) {
    if (lines_ != nullptr) {
      lines_->begin(message);
    } else {
      message.ended = true;
      message.error = Error{ErrorCode::kInvalidArgument, "a message to or from a rank, where there is one rank"};
    }
  }
  if (lines_ != nullptr && task.kind == TaskKind::kExchange) lines_->begun(kept.number);
}

bool Tasks::end_exchanges() {
  bool moved = false;
  for (auto at = exchanges_.begin(); !failed_ && at != exchanges_.end();) {
    Running& one = **at;
    const auto bad =
        std::ranges::find_if(one.messages, [](const Message& message) { return message.error.has_value(); });
    const bool ended = all_ended(one.messages);
    if (bad == one.messages.end() && !ended) {
      ++at;
      continue;
    }
    moved = true;
    if (bad != one.messages.end() && one.task.kind == TaskKind::kExchange) {
      fail_all({bad->error->code, fmt::format("{}: {}", one.task.name, bad->error->message)});
      break;
    }
    if (bad == one.messages.end() && !copy(one.task.take, one)) break;
    auto over = std::move(*at);
    at = exchanges_.erase(at);
    if (ended && over->block != nullptr) lines_memory_.give_back(over->block);
    if (bad != over->messages.end()) {
      over->task.ended(fail(bad->error->code, fmt::format("{}: {}", over->task.name, bad->error->message)));
    } else {
      over->task.ended(over->messages.empty() ? 0 : over->messages.front().peer);
    }
    if (!ended) abandoned_.push_back(std::move(over));
  }
  std::erase_if(abandoned_, [this](const auto& one) {
    if (!all_ended(one->messages)) return false;
    if (one->block != nullptr) lines_memory_.give_back(one->block);
    return true;
  });
  return moved;
}

// Collectives are the same on all ranks, so one that is late ends all. Messages are independent of each other.
void Tasks::end_late(Instant now) {
  const auto late = [now](const auto& one) { return one->task.deadline <= now; };
  const auto text = [now](const Running& one) {
    return fmt::format("it did not end within its timeout of {:.3g} s",
                       std::chrono::duration<double>(now - one.since).count());
  };
  const auto late_collective = [&](const auto& one) { return late(one) && one->task.kind != TaskKind::kMessage; };
  for (const auto* list : {&running_, &exchanges_}) {
    const auto at = std::ranges::find_if(*list, late_collective);
    if (at != list->end()) return fail_all({ErrorCode::kRemote, fmt::format("{}: {}", (*at)->task.name, text(**at))});
  }
  const auto queued = std::ranges::find_if(queue_, late);
  if (queued != queue_.end()) {
    return fail_all({ErrorCode::kRemote, fmt::format("{}: {}", (*queued)->task.name, text(**queued))});
  }
  for (const auto& one : exchanges_) {
    if (!late(one)) continue;
    const Error error{ErrorCode::kRemote, text(*one)};
    for (Message& message : one->messages) {
      if (message.ended) continue;
      // What was offered or matched still uses the memory; it is only not waited for.
      message.error = error;
      if (!message.sends && lines_->withdraw(message)) message.ended = true;
    }
  }
  end_exchanges();
}

void Tasks::look_for_strays(Instant now) {
  if (lines_ == nullptr) return;
  for (const auto* list : {&running_, &exchanges_}) {
    for (const auto& one : *list) {
      if (one->task.kind == TaskKind::kMessage || now - one->since < kPatience) continue;
      if (list == &running_) told_ = true;
      if (std::exchange(one->asked, true)) continue;
      lines_->tell(standing_of(one->task, one->number));
    }
  }
}

void Tasks::heard(Member from, const Standing& theirs) {
  const auto wrong = standings_.heard(from, theirs);
  if (wrong) fail_all({ErrorCode::kInvalidUsage, *wrong});
}

void Tasks::fail_all(const Error& error) {
  if (failed_) return;
  failed_ = error;
  engine_.abort(error.message);
  std::list<std::unique_ptr<Running>> all;
  all.splice(all.end(), running_);
  all.splice(all.end(), exchanges_);
  for (auto& one : queue_) all.push_back(std::move(one));
  queue_.clear();
  for (const auto& one : all) one->task.ended(tl::unexpected(error));
  // Their memory is still used by the engine until it is closed, and by the lines until these are.
  abandoned_.splice(abandoned_.end(), all);
}

}  // namespace clustar::paraexpress
