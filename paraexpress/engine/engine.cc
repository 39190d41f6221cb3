#include "paraexpress/engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <limits>
#include <mutex>
#include <utility>

#include "paraexpress/engine/operations.h"
#include "paraexpress/engine/pending.h"
#include "paraexpress/engine/pushes.h"
#include "transport/base/library_thread.h"

namespace clustar::paraexpress {
namespace {

class Started final : public Operation {
 public:
  explicit Started(std::shared_ptr<Pending<double>> pending) : pending_(std::move(pending)) {}
  bool done() const override { return pending_->done(); }
  Result<double> wait() override { return pending_->wait(); }

 private:
  std::shared_ptr<Pending<double>> pending_;
};

double age_of(const Pending<double>& pending) { return std::chrono::duration<double>(pending.age()).count(); }

Work work_of(Collective collective, void* data, std::uint64_t count, DataType type,
             Reduction reduction = Reduction::kSum) {
  Work work;
  work.collective = collective;
  work.data = static_cast<std::byte*>(data);
  work.count = count;
  work.type = type;
  work.reduction = reduction;
  return work;
}

struct Queued {
  Asked asked{};
  std::shared_ptr<Pending<double>> pending{};
};

EngineOptions with_rank(EngineOptions options) {
  options.channel.rank = static_cast<int>(options.rank);
  return options;
}

class TheEngine final : public Engine {
 public:
  explicit TheEngine(EngineOptions options) : options_(with_rank(std::move(options))) {}
  ~TheEngine() override { close(); }

  Result<void> set_up(transport::Transport& transport, const AllGather& all_gather);

  Result<void> add_memory(void* memory, std::size_t bytes) override {
    if (memory == nullptr || bytes == 0) return fail(ErrorCode::kInvalidArgument, "no memory; allowed: 1 byte or more");
    const std::lock_guard lock(mutex_);
    if (failed_) return tl::unexpected(failed_->error);
    if (closed_) return fail(ErrorCode::kInvalidUsage, "the engine is closed");
    if (options_.ranks == 1) {
      memory_.push_back(std::make_unique<Registered>());
      memory_.back()->begin = static_cast<std::byte*>(memory);
      memory_.back()->bytes = bytes;
      return {};
    }
    auto registered = operations_->reg_mr(memory, bytes);
    if (!registered) return tl::unexpected(registered.error());
    memory_.push_back(std::move(*registered));
    return {};
  }
  Result<void> remove_memory(void* memory, std::size_t bytes) override {
    const std::lock_guard lock(mutex_);
    const auto found =
        std::ranges::find_if(memory_, [&](const auto& one) { return one->begin == memory && one->bytes == bytes; });
    if (found == memory_.end()) return {};  // it went when the engine was taken down
    const auto uses = [&](const Queued& one) { return one.asked.work.memory == found->get(); };
    if (std::ranges::any_of(queue_, uses) || std::ranges::any_of(running_, uses)) {
      return fail(ErrorCode::kInvalidUsage, "memory where an operation has not ended");
    }
    memory_.erase(found);
    return {};
  }

  std::unique_ptr<Operation> all_reduce(void* elements, std::size_t count, DataType type,
                                        Reduction reduction) override {
    return start(work_of(Collective::kAllReduce, elements, count, type, reduction), count, element_bytes(type));
  }
  std::unique_ptr<Operation> all_gather(void* blocks, std::size_t bytes) override {
    // start() refuses what the number of elements is too large for.
    Work work = work_of(Collective::kAllGather, blocks, bytes * options_.ranks, DataType::kUint8);
    return start(std::move(work), bytes, options_.ranks);
  }
  std::unique_ptr<Operation> reduce_scatter(void* blocks, std::size_t count, DataType type,
                                            Reduction reduction) override {
    Work work = work_of(Collective::kReduceScatter, blocks, count * options_.ranks, type, reduction);
    return start(std::move(work), count, element_bytes(type) * options_.ranks);
  }
  std::unique_ptr<Operation> broadcast(void* bytes, std::size_t count, Member root) override {
    Work work = work_of(Collective::kBroadcast, bytes, count, DataType::kUint8);
    work.root = root;
    return start(std::move(work), count, 1);
  }
  void agree_on(std::uint64_t what) override {
    const std::lock_guard lock(mutex_);
    agreed_ = (agreed_ ^ what) * 1099511628211;  // FNV-1a: in their order
  }
  std::unique_ptr<Operation> push(void* elements, std::size_t count, DataType type, Reduction reduction) override {
    return start(work_of(Collective::kPush, elements, count, type, reduction), count, element_bytes(type));
  }
  std::unique_ptr<Operation> pull(void* elements, std::size_t count, DataType type) override {
    return start(work_of(Collective::kPull, elements, count, type), count, element_bytes(type));
  }

  Result<void> settle() override {
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [this] { return failed_ || closed_ || (running_.empty() && queue_.empty()); });
    if (!failed_ && !closed_ && pushes_.any()) {
      failed_ = blame(options_.rank, {ErrorCode::kInvalidUsage,
                                      "memory that was pushed and not pulled, where ranks may join or leave"});
      abort_ = true;
      wake_.notify_all();
    }
    if (failed_) return tl::unexpected(failed_->error);
    if (closed_) return fail(ErrorCode::kInvalidUsage, "the engine is closed");
    return {};
  }

  Plan plan_for(std::uint64_t bytes) const override {
    const std::lock_guard lock(mutex_);
    return (operations_ ? operations_->choice() : choice_)->choose(bytes).plan;
  }
  double gain_over_ring(std::uint64_t bytes) const override {
    const std::lock_guard lock(mutex_);
    return (operations_ ? operations_->choice() : choice_)->gain_over_ring(bytes);
  }
  std::uint32_t helpers() const override {
    const std::lock_guard lock(mutex_);
    return operations_ ? operations_->helpers() : helpers_;
  }
  std::string regions() const override {
    const std::lock_guard lock(mutex_);
    return operations_ ? operations_->regions() : regions_;
  }
  std::string regions_found() const override {
    const std::lock_guard lock(mutex_);
    return operations_ ? operations_->regions_found() : regions_found_;
  }
  EngineTraffic traffic() const override {
    const std::lock_guard lock(mutex_);
    return operations_ ? operations_->traffic() : traffic_;
  }

  void abort(const std::string& why) override {
    const std::lock_guard lock(mutex_);
    if (closed_ || failed_) return;
    failed_ = blame(options_.rank, {ErrorCode::kInvalidUsage, why});
    abort_ = true;
    wake_.notify_all();
    idle_.notify_all();
  }

  void close() override {
    {
      const std::lock_guard lock(mutex_);
      if (closed_) return;
      closed_ = true;
      if (!running_.empty() || !queue_.empty()) {
        if (!failed_)
          failed_ = blame(options_.rank, {ErrorCode::kInvalidUsage, "it closed before its operations ended"});
        abort_ = true;
      }
      wake_.notify_all();
      idle_.notify_all();
    }
    end_thread();
    const std::lock_guard lock(mutex_);
    for (const Queued& one : queue_) one.pending->end(fail(ErrorCode::kInvalidUsage, "the engine is closed"));
    queue_.clear();
    take_down();
    tell();
  }

 private:
  // Of `count` times `each` bytes.
  std::unique_ptr<Operation> start(Work work, std::uint64_t count, std::uint64_t each);
  // Nothing is read or written for anybody after it. With the mutex, while no operation runs.
  void take_down() {
    if (operations_ == nullptr) return;
    traffic_ = operations_->traffic();
    choice_ = operations_->choice();
    helpers_ = operations_->helpers();
    regions_ = operations_->regions();
    regions_found_ = operations_->regions_found();
    work_.clear();
    operations_->close();
    memory_.clear();
    operations_.reset();
  }
  void serve();
  void serve_until_closed();
  // Waits. Threads of a library are ended one at a time, so the farewells come first: others of this process may be
  // whom they wait for.
  void end_thread() {
    {
      std::unique_lock lock(mutex_);
      idle_.wait(lock, [this] { return !started_ || served_; });
    }
    thread_.end();
  }
  void tell() const {
    if (options_.on_end) options_.on_end();
  }
  // Begins what may begin. With the lock, which it gives up meanwhile.
  std::optional<Blame> begin(std::unique_lock<std::mutex>& lock);
  void end_what_is_done();

  const EngineOptions options_;
  std::atomic<bool> abort_{false};
  // Of the engine's thread: the operations under way, as many as in running_.
  std::vector<std::unique_ptr<Running>> work_{};

  mutable std::mutex mutex_{};
  std::condition_variable wake_{};
  std::condition_variable idle_{};            // nothing runs or is queued, or nothing will any more; the thread's end
  std::unique_ptr<Operations> operations_{};  // until it is taken down
  std::deque<Queued> queue_{};
  std::vector<Queued> running_{};
  std::vector<std::unique_ptr<Registered>> memory_{};
  Pushes pushes_{};
  std::optional<Blame> failed_{};
  // When it was taken down.
  EngineTraffic traffic_{};
  std::shared_ptr<const PlanChoice> choice_{};
  std::uint32_t helpers_ = 0;
  std::string regions_{}, regions_found_{};
  std::uint64_t agreed_ = 0;
  bool closed_ = false;
  bool started_ = false, served_ = false;  // its thread; has ended
  LibraryThread thread_{};
};

Result<void> TheEngine::set_up(transport::Transport& transport, const AllGather& all_gather) {
  operations_ = std::make_unique<Operations>(options_, abort_);
  if (const auto ok = operations_->connect(transport, all_gather); !ok) return ok;
  thread_.start([this] { serve(); }, [this] { abort("its library was unloaded"); });
  const std::lock_guard lock(mutex_);
  started_ = true;
  return {};
}

// What this rank cannot do fails the engine: the others would take its next operation for this one.
std::unique_ptr<Operation> TheEngine::start(Work work, std::uint64_t count, std::uint64_t each) {
  const std::uint64_t bytes = count * each;
  auto pending = std::make_shared<Pending<double>>();
  auto operation = std::make_unique<Started>(pending);
  const std::lock_guard lock(mutex_);
  if (failed_ || closed_) {
    pending->end(failed_ ? Result<double>(tl::unexpected(failed_->error))
                         : fail(ErrorCode::kInvalidUsage, "the engine is closed"));
  } else if (count == 0) {
    pending->end(0.0);
  } else {
    const bool too_many = count > std::numeric_limits<std::uint64_t>::max() / each;
    for (const auto& one : memory_) {
      if (!too_many && one->holds(work.data, bytes)) work.memory = one.get();
    }
    const auto refuse = [&](const Error& error) {
      failed_ = blame(options_.rank, error);
      pending->end(tl::unexpected(failed_->error));
      abort_ = true;
      wake_.notify_all();
      return std::move(operation);
    };
    if (work.memory == nullptr) {
      return refuse({ErrorCode::kInvalidArgument, "memory that was not added: call add_memory() for all of it first"});
    }
    if (work.root >= options_.ranks) {
      return refuse({ErrorCode::kInvalidArgument,
                     fmt::format("a broadcast from rank {}; allowed: 0 to {}", work.root, options_.ranks - 1)});
    }
    work.agreed = agreed_;
    auto pushed = pushes_.admit(work.collective, work.data, bytes, work.type);
    if (!pushed) return refuse(pushed.error());
    if (options_.ranks == 1) {
      pending->end(0.0);
      return operation;
    }
    queue_.push_back({{std::move(work), bytes, std::move(*pushed)}, std::move(pending)});
    wake_.notify_all();
  }
  return operation;
}

std::optional<Blame> TheEngine::begin(std::unique_lock<std::mutex>& lock) {
  while (!queue_.empty() && !failed_ && operations_->may_begin(queue_.front().asked)) {
    running_.push_back(std::move(queue_.front()));
    queue_.pop_front();
    Asked asked = running_.back().asked;
    lock.unlock();
    auto begun = operations_->begin(std::move(asked));
    lock.lock();
    if (!begun) return begun.error();
    if (*begun != nullptr) {
      work_.push_back(std::move(*begun));
      continue;
    }
    const double seconds = age_of(*running_.back().pending);
    operations_->count(seconds);
    if (failed_) continue;
    running_.back().pending->end(seconds);
    running_.pop_back();
    tell();
  }
  return std::nullopt;
}

void TheEngine::end_what_is_done() {
  const std::size_t before = work_.size();
  for (std::size_t i = 0; i < work_.size();) {
    if (!work_[i]->done()) {
      ++i;
      continue;
    }
    const double seconds = age_of(*running_[i].pending);
    operations_->end(*work_[i], seconds);
    running_[i].pending->end(seconds);
    work_.erase(work_.begin() + static_cast<std::ptrdiff_t>(i));
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  if (work_.size() != before) tell();
}

void TheEngine::serve() {
  serve_until_closed();
  const std::lock_guard lock(mutex_);
  served_ = true;
  idle_.notify_all();
}

// The engine's thread: it alone uses the channels.
void TheEngine::serve_until_closed() {
  std::unique_lock lock(mutex_);
  std::optional<Blame> found;
  for (;;) {
    if (work_.empty()) wake_.wait(lock, [&] { return closed_ || failed_ || !queue_.empty(); });
    if (!failed_) found = begin(lock);
    if (!found && !failed_ && !work_.empty()) {
      lock.unlock();
      found = operations_->advance(work_);
      lock.lock();
      if (!found && !failed_) end_what_is_done();
    }
    if (running_.empty() && queue_.empty()) idle_.notify_all();
    if (found && !failed_) failed_ = found;
    if (failed_ || (work_.empty() && queue_.empty() && closed_)) break;
  }
  const std::optional<Blame> why = failed_;
  if (options_.ranks > 1) {
    lock.unlock();
    const auto last_word = operations_->part(why);
    lock.lock();
    if (why) failed_ = last_word;
  }
  idle_.notify_all();
  if (!why) return;
  // Only then is the memory of operations its owner's again.
  take_down();
  for (const Queued& one : running_) one.pending->end(tl::unexpected(failed_->error));
  for (const Queued& one : queue_) one.pending->end(tl::unexpected(failed_->error));
  running_.clear();
  queue_.clear();
  tell();
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::create(transport::Transport& transport, const AllGather& all_gather,
                                               const EngineOptions& options) {
  if (options.ranks < 1 || options.ranks > kMostRanks || options.rank >= options.ranks) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("rank {} of {}; allowed: 1 to {} ranks, numbered from 0",
                                                         options.rank, options.ranks, kMostRanks));
  }
  if (options.helpers > kMostHelpers) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} helpers; allowed: 0 to {}", options.helpers, kMostHelpers));
  }
  if (options.chunk_bytes < kLeastChunk || options.chunk_bytes > kMostChunk) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("chunks of {} bytes; allowed: {} to {}", options.chunk_bytes, kLeastChunk, kMostChunk));
  }
  auto engine = std::make_unique<TheEngine>(options);
  if (const auto ok = engine->set_up(transport, all_gather); !ok) return tl::unexpected(ok.error());
  return engine;
}

}  // namespace clustar::paraexpress
