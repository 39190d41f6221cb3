#include "paraexpress/communicator/communicator.h"

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "paraexpress/communicator/lines.h"
#include "paraexpress/communicator/tasks.h"
#include "paraexpress/engine/mesh.h"
#include "paraexpress/engine/poll_pause.h"

namespace clustar::paraexpress {
namespace {

using std::chrono::steady_clock;

constexpr auto kPart = std::chrono::seconds(1);
constexpr std::uint64_t kRingFrom = 256 << 10;  // over kernel TCP; shorter ones fit into a switch's buffer
// It is for the communicator to say when an operation is late.
constexpr auto kStall = std::chrono::hours(24 * 365);

class TheCommunicator final : public Communicator {
 public:
  explicit TheCommunicator(const CommunicatorOptions& options) : options_(options) {}
  ~TheCommunicator() override { close(); }

  Result<void> set_up(transport::Transport& transport, const AllGather& all_gather);
  void start(Task task) override;
  void abort(const std::string& why) override;
  void close() override;

 private:
  void serve();
  // Until something is to be done. With the lock.
  void rest(std::unique_lock<std::mutex>& lock, steady_clock::time_point moved);
  void part();

  const CommunicatorOptions options_;
  std::mutex mutex_{};
  std::condition_variable wake_{};
  std::vector<Task> inbox_{};
  std::optional<std::string> abort_{};
  bool engine_ended_ = false;
  bool closing_ = false, closed_ = false;
  std::mutex closers_{};

  // Of the thread, once it runs. In the order of who uses whom.
  std::unique_ptr<Engine> engine_{};
  std::unique_ptr<Mesh> mesh_{};
  std::unique_ptr<Tasks> tasks_{};
  std::unique_ptr<Lines> lines_{};
  std::thread thread_{};
};

Result<void> TheCommunicator::set_up(transport::Transport& transport, const AllGather& all_gather) {
  EngineOptions engine;
  engine.rank = options_.rank;
  engine.ranks = options_.ranks;
  engine.device = options_.device;
  engine.channel.job = options_.job;
  engine.stall = kStall;
  if (std::string_view(transport.name()) == "tcp") engine.ring_from = kRingFrom;
  engine.setup = options_.setup;
  engine.on_end = [this] {
    const std::lock_guard lock(mutex_);
    engine_ended_ = true;
    wake_.notify_all();
  };
  auto made = Engine::create(transport, all_gather, engine);
  if (!made) return tl::unexpected(made.error());
  engine_ = std::move(*made);
  if (options_.ranks > 1) {
    MeshOptions mesh;
    mesh.self = options_.rank;
    mesh.ranks = options_.ranks;
    mesh.device = options_.device;
    mesh.waits.each = options_.setup;
    mesh.channel.job = options_.job;
    mesh.channel.rank = static_cast<int>(options_.rank);
    auto connected = Mesh::connect(transport, all_gather, mesh);
    if (!connected) return tl::unexpected(connected.error());
    mesh_ = std::move(*connected);
  }
  tasks_ = std::make_unique<Tasks>(*engine_, mesh_.get());
  if (mesh_ != nullptr) {
    auto lines = Lines::open(*mesh_, {options_.rank, options_.ranks,
                                      [this](Member from, const Standing& theirs) { tasks_->heard(from, theirs); },
                                      [this](const std::string& why) {
                                        tasks_->fail_all({ErrorCode::kInvalidUsage, why});
                                      }});
    if (!lines) return tl::unexpected(lines.error());
    lines_ = std::move(*lines);
    tasks_->set_lines(lines_.get());
  }
  thread_ = std::thread([this] { serve(); });
  return {};
}

void TheCommunicator::start(Task task) {
  {
    const std::lock_guard lock(mutex_);
    if (!closing_) {
      inbox_.push_back(std::move(task));
      wake_.notify_all();
      return;
    }
  }
  task.ended(fail(ErrorCode::kInvalidUsage, fmt::format("{}: the communicator is closed", task.name)));
}

void TheCommunicator::abort(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (!abort_) abort_ = why;
  wake_.notify_all();
}

void TheCommunicator::rest(std::unique_lock<std::mutex>& lock, steady_clock::time_point moved) {
  const auto wakes = [this] { return closing_ || engine_ended_ || abort_ || !inbox_.empty(); };
  if (!tasks_->must_poll() || tasks_->failed()) {
    const auto until = tasks_->failed() ? steady_clock::time_point::max() : tasks_->next();
    if (until == steady_clock::time_point::max()) return wake_.wait(lock, wakes);
    wake_.wait_until(lock, until, wakes);
    return;
  }
  // Messages move only when they are looked at.
  const auto pause = poll_pause(steady_clock::now() - moved);
  if (pause.count() == 0) {
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
    return;
  }
  wake_.wait_for(lock, pause, wakes);
}

void TheCommunicator::serve() {
  auto moved = steady_clock::now();
  std::unique_lock lock(mutex_);
  while (!closing_) {
    std::vector<Task> fresh = std::exchange(inbox_, {});
    engine_ended_ = false;
    const auto why = std::exchange(abort_, std::nullopt);
    lock.unlock();
    const bool failed = tasks_->failed();
    if (why) tasks_->fail_all({ErrorCode::kInvalidUsage, *why});
    for (Task& task : fresh) tasks_->add(std::move(task));
    const auto now = steady_clock::now();
    const bool any = tasks_->advance(now) || !fresh.empty();
    if (any) moved = now;
    // The others learn of it; nothing is read or written for them any more.
    if (tasks_->failed() && !failed && mesh_ != nullptr) mesh_->close();
    fresh.clear();
    lock.lock();
    if (!any) rest(lock, moved);
  }
  lock.unlock();
  if (tasks_->failed()) return;
  if (!tasks_->idle()) {
    tasks_->fail_all({ErrorCode::kInvalidUsage, "the communicator closed before its operations ended"});
    if (mesh_ != nullptr) mesh_->close();
    return;
  }
  part();
}

// Nobody closes before all have what was sent to them, if they come soon.
void TheCommunicator::part() {
  engine_->close();
  if (lines_ == nullptr) return;
  lines_->leave();
  const auto until = steady_clock::now() + kPart;
  while (!lines_->parted() && steady_clock::now() < until) {
    if (!lines_->advance()) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

void TheCommunicator::close() {
  const std::lock_guard one_at_a_time(closers_);
  if (closed_) return;
  closed_ = true;
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    wake_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  for (const Task& task : std::exchange(inbox_, {})) {
    task.ended(fail(ErrorCode::kInvalidUsage, fmt::format("{}: the communicator is closed", task.name)));
  }
  if (engine_ != nullptr) engine_->close();
  if (mesh_ != nullptr) mesh_->close();
  lines_.reset();
  tasks_.reset();
}

}  // namespace

Result<std::unique_ptr<Communicator>> Communicator::create(transport::Transport& transport, const AllGather& all_gather,
                                                           const CommunicatorOptions& options) {
  auto made = std::make_unique<TheCommunicator>(options);
  if (const auto ok = made->set_up(transport, all_gather); !ok) return tl::unexpected(ok.error());
  return made;
}

}  // namespace clustar::paraexpress
