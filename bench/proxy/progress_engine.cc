#include "bench/proxy/progress_engine.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <utility>

namespace clustar::bench::proxy {
namespace {

using std::chrono::steady_clock;

// Lines whose receive is complete but whose flags stay away would spin forever, as NCCL's kernel does.
constexpr std::chrono::seconds kFlagTimeout{10};
const char* name_of(Collective collective) {
  switch (collective) {
    case Collective::kBroadcast: return "broadcast";
    case Collective::kAllGather: return "all-gather";
    case Collective::kReduceScatter: return "reduce-scatter";
    case Collective::kAllReduce: break;
  }
  return "all-reduce";
}

// The all-gather of the blocks that the ranks have added up, in place.
CollectiveRequest sums_of(const DirectRequest& request, int rank, int size) {
  const std::size_t element = element_bytes(request.type);
  const std::size_t share = block_share(size, request.count, element);
  CollectiveRequest sums{Collective::kAllGather, nullptr, request.data, share, request.type,
                         ReduceOp::kSum,         0,       request.count};
  const std::size_t begin = direct_block(rank, size, request.count, element).begin;
  sums.input = static_cast<const std::byte*>(request.data) + begin * element;
  return sums;
}

}  // namespace

ProgressEngine::ProgressEngine(NetPlugin& plugin, void* ctx, std::span<Link> links, std::span<Link> direct_links,
                               const Config& config)
    : plugin_(plugin),
      ctx_(ctx),
      links_(links),
      direct_links_(direct_links),
      config_(config),
      previous_((config.rank + config.size - 1) % config.size),
      next_((config.rank + 1) % config.size),
      link_of_(static_cast<std::size_t>(config.channels)),
      kernel_(config.protocol),
      simple_kernel_(Protocol::kSimple),
      steps_(link_of_.size()),
      exchanges_(direct_links.size()),
      send_free_(link_of_.size()),
      receive_free_(links.size()) {
  for (std::size_t l = 0; l < links.size(); ++l) {
    for (int c = 0; c < links[l].channels; ++c) link_of_[static_cast<std::size_t>(links[l].first_channel + c)] = l;
  }
  thread_ = std::thread([this] { loop(); });
}

ProgressEngine::~ProgressEngine() { stop(); }

std::shared_ptr<Operation> ProgressEngine::make_operation(const CollectiveRequest& request, Protocol protocol,
                                                          bool record_steps) const {
  auto op = std::make_shared<Operation>();
  op->request = request;
  op->protocol = protocol;
  op->stats.protocol = protocol;
  op->shape = step_shape(request.collective, protocol);
  op->record_steps = record_steps;
  op->started_at = steady_clock::now();
  op->channels.resize(link_of_.size());
  op->groups.resize(links_.size());
  const std::size_t element = element_bytes(request.type);
  const std::size_t total = collective_bytes(request, config_.size);
  for (std::size_t c = 0; c < op->channels.size(); ++c) {
    ChannelWork& work = op->channels[c];
    const ChannelPart part = channel_part(static_cast<int>(c), config_.channels, request.count, total, element);
    work.program = RingProgram(request.collective, protocol, {config_.rank, config_.size, request.root}, part,
                               request.count, element, request.limit);
    work.actions = work.program.actions();
    work.sends = work.program.sends();
    work.receives = work.program.receives();
    GroupWork& group = op->groups[link_of_[c]];
    group.receives = std::max(group.receives, work.receives);
  }
  return op;
}

Result<void> ProgressEngine::queue(std::shared_ptr<Operation> op) {
  {
    const std::lock_guard lock(mutex_);
    if (stop_) return fail(ErrorCode::kInvalidUsage, "the communicator is closed");
    inbox_.push_back(std::move(op));
    news_.store(true, std::memory_order_relaxed);
  }
  changed_.notify_one();
  return {};
}

std::shared_ptr<Completion> ProgressEngine::submit(const CollectiveRequest& request, Protocol protocol,
                                                   bool record_steps) {
  return submit(make_operation(request, protocol, record_steps));
}

std::shared_ptr<Completion> ProgressEngine::submit_direct(const DirectRequest& request, Protocol protocol,
                                                          bool record_steps) {
  auto op = make_operation(sums_of(request, config_.rank, config_.size), protocol, record_steps);
  op->exchange = make_exchange(request);
  profile_exchange(*op->exchange);
  return submit(std::move(op));
}

std::shared_ptr<Completion> ProgressEngine::submit_exchange(const ExchangeRequest& request, Protocol protocol,
                                                            bool record_steps) {
  auto op = make_operation({Collective::kAllGather, nullptr, nullptr, 0, DataType::kUint8}, protocol, record_steps);
  op->exchange = make_exchange(request);
  profile_exchange(*op->exchange);
  return submit(std::move(op));
}

std::shared_ptr<Completion> ProgressEngine::submit(std::shared_ptr<Operation> op) {
  auto completion = op->completion;
  TaskEvents events;
  const bool is_collective = op->request.count > 0;  // otherwise an exchange alone, which has its events already
  if (config_.profiler != nullptr && is_collective) {
    const auto used = std::count_if(op->channels.begin(), op->channels.end(),
                                    [](const ChannelWork& work) { return work.actions > 0; });
    events = op->events = config_.profiler->start_task(op->request, op->protocol, static_cast<int>(used));
    for (ChannelWork& work : op->channels) {
      config_.profiler->prepare(work.send_sub, events.mask, events.coll);
      config_.profiler->prepare(work.receive_sub, events.mask, events.coll);
    }
  }
  if (auto queued = queue(std::move(op)); !queued) completion->finish(tl::unexpected(queued.error()));
  if (config_.profiler != nullptr && is_collective) config_.profiler->stop_task(events);
  return completion;
}

void ProgressEngine::abort() {
  {
    const std::lock_guard lock(mutex_);
    abort_ = true;
    news_.store(true, std::memory_order_relaxed);
  }
  changed_.notify_one();
}

void ProgressEngine::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    news_.store(true, std::memory_order_relaxed);
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

Communicator::Totals ProgressEngine::totals() const {
  const Counters& c = counters_;
  return {c.bytes_sent.read(),        c.bytes_received.read(), c.messages_sent.read(),
          c.messages_received.read(), c.send_retries.read(),   c.idle_yields.read()};
}

void ProgressEngine::loop() {
  while (take_work()) {
    if (error_) {
      fail_all(*error_);
    } else if (pass()) {
      moved_since_clock_ = true;
    } else if (!error_ && !active_.empty()) {
      idle();
    }
  }
  fail_all(error_ ? *error_ : Error{ErrorCode::kInvalidUsage, "the communicator was closed during the collective"});
}

bool ProgressEngine::take_work() {
  if (!active_.empty() && !news_.load(std::memory_order_relaxed)) return true;
  std::unique_lock lock(mutex_);
  const bool was_idle = active_.empty();
  if (was_idle) {
    changed_.wait(lock, [this] { return stop_ || !inbox_.empty(); });
    moved_since_clock_ = true;
  }
  news_.store(false, std::memory_order_relaxed);
  auto arrived = std::exchange(inbox_, {});
  if (abort_ && !error_) error_ = Error{ErrorCode::kInvalidUsage, "the communicator was aborted"};
  const bool go_on = !stop_;
  lock.unlock();  // the profiler's business must not keep who submits
  for (auto& op : arrived) {
    if (go_on && !error_) start_ops(*op);
    active_.push_back(std::move(op));
  }
  return go_on;
}

// As NCCL's ProxyAppend: when the progress thread takes the operations, by channel, the receive first.
void ProgressEngine::start_ops(Operation& op) {
  if (op.exchange) start_exchange(*op.exchange);
  const auto chunk =
      static_cast<int>(wire_shape(op.protocol).step_bytes * static_cast<std::size_t>(op.shape.chunk_steps));
  for (std::size_t c = 0; c < op.channels.size(); ++c) {
    ChannelWork& work = op.channels[c];
    ProxyOpFacts facts{static_cast<int>(c), previous_, static_cast<int>(work.receives), chunk * op.shape.slice_steps,
                       false};
    if (work.receives > 0) start_op(work.receive_sub, facts);
    facts = {facts.channel, next_, static_cast<int>(work.sends), facts.chunk_bytes, true};
    if (work.sends > 0) start_op(work.send_sub, facts);
  }
}

void ProgressEngine::fail_all(const Error& error) {
  for (auto& op : active_) {
    op->completion->finish(tl::unexpected(error));
    failed_.push_back(std::move(op));
  }
  active_.clear();
}

// Operations on one connection run one after the other, but a receive of the next operation is posted as soon as the
// connection is free, while the kernel is still busy with the previous one.
bool ProgressEngine::pass() {
  std::fill(send_free_.begin(), send_free_.end(), 1);
  std::fill(receive_free_.begin(), receive_free_.end(), 1);
  bool kernel_free = true;
  bool exchange_send_free = true;
  bool exchange_receive_free = true;
  bool moved = false;
  for (const auto& shared : active_) {
    if (shared->exchange) moved |= progress_exchange(*shared, exchange_send_free, exchange_receive_free);
    if (error_) return false;
    bool any_free = kernel_free || exchange_send_free || exchange_receive_free;
    moved |= pass_ring(*shared, kernel_free, any_free);
    if (error_) return false;
    if (!any_free && !kernel_free) break;
  }
  finish_front();
  return moved;
}

bool ProgressEngine::pass_ring(Operation& op, bool& kernel_free, bool& any_free) {
  bool moved = false;
  for (std::size_t g = 0; g < links_.size(); ++g) {
    if (!receive_free_[g]) continue;
    moved |= progress_receive(op, g);
    receive_free_[g] = receive_done(op, links_[g]) ? 1 : 0;
    any_free = any_free || receive_free_[g];
    if (error_) return false;
  }
  // The sums that an all-gather takes round have to be there.
  const bool may_run = kernel_free && (!op.exchange || op.exchange->reduction_done);
  for (std::size_t c = 0; c < op.channels.size(); ++c) {
    if (may_run) moved |= run_kernel(op, c);
    if (!send_free_[c]) continue;
    moved |= progress_send(op, c);
    if (error_) return false;
    const ChannelWork& work = op.channels[c];
    send_free_[c] = work.sent == work.sends ? 1 : 0;
    any_free = any_free || send_free_[c];
  }
  if (may_run && !op.kernel_done) {
    op.kernel_done = std::all_of(op.channels.begin(), op.channels.end(),
                                 [](const ChannelWork& work) { return work.action == work.actions; });
    if (op.kernel_done) {
      op.stats.seconds = std::chrono::duration<double>(steady_clock::now() - op.started_at).count();
    }
  }
  kernel_free = kernel_free && op.kernel_done;
  return moved;
}

void ProgressEngine::finish_front() {
  while (!active_.empty()) {
    Operation& op = *active_.front();
    const bool sent = std::all_of(op.channels.begin(), op.channels.end(),
                                  [](const ChannelWork& work) { return work.sent == work.sends; });
    if (!op.kernel_done || !sent || (op.exchange && !op.exchange->sent)) return;
    op.completion->finish(std::move(op.stats));
    active_.pop_front();
  }
}

std::string ProgressEngine::describe_wait(const Operation& op) const {
  if (op.exchange && !(op.exchange->sent && op.exchange->reduction_done)) return describe_exchange(*op.exchange);
  for (std::size_t c = 0; c < op.channels.size(); ++c) {
    const ChannelWork& work = op.channels[c];
    if (work.action == work.actions && work.sent == work.sends) continue;
    const GroupWork& group = op.groups[link_of_[c]];
    return fmt::format(
        "{} of {} elements, channel {}: from rank {} {} of {} slices received ({} posted), to rank {} {} of {} slices "
        "done ({} handed over, {} ready)",
        name_of(op.request.collective), op.request.count, c, previous_, std::min(group.received, work.receives),
        work.receives, group.posted, next_, work.sent, work.sends, work.transmitted, work.filled);
  }
  return name_of(op.request.collective);
}

void ProgressEngine::idle() {
  counters_.idle_yields.add();
  sched_yield();
  if (config_.stall_timeout.count() == 0 && !flags_missing_) return;
  const auto now = steady_clock::now();
  if (moved_since_clock_) {
    moved_since_clock_ = false;
    last_moved_ = now;
    flags_missing_ = false;
    return;
  }
  const auto waited = now - last_moved_;
  const bool stalled = config_.stall_timeout.count() > 0 && waited >= config_.stall_timeout;
  if (flags_missing_ && (stalled || waited >= kFlagTimeout)) {
    error_ = Error{ErrorCode::kInternal,
                   fmt::format("a completed receive lacks the flags of its lines after {} ms, so not all of its bytes "
                               "arrived: {}",
                               std::chrono::duration_cast<std::chrono::milliseconds>(waited).count(),
                               describe_wait(*active_.front()))};
  } else if (stalled) {
    error_ = Error{ErrorCode::kRemote, fmt::format("no transfer moved for {} ms: {}", config_.stall_timeout.count(),
                                                   describe_wait(*active_.front()))};
  }
  flags_missing_ = false;
}

}  // namespace clustar::bench::proxy
