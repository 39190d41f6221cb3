// The thread on which listen, connect, accept, regMr, deregMr and close run, as on NCCL's proxy service thread.
#pragma once

#include <condition_variable>
#include <functional>
#include <future>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>

namespace clustar::bench::proxy {

class ServiceThread {
 public:
  ServiceThread() : thread_([this] { loop(); }) {}
  ~ServiceThread() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  ServiceThread(const ServiceThread&) = delete;
  ServiceThread& operator=(const ServiceThread&) = delete;

  // Runs `work` there and waits for its result. One caller at a time.
  template <class F>
  std::invoke_result_t<F&> run(F work) {
    std::packaged_task<std::invoke_result_t<F&>()> task(std::move(work));
    auto result = task.get_future();
    {
      const std::lock_guard lock(mutex_);
      job_ = [&task] { task(); };
    }
    changed_.notify_all();
    return result.get();
  }

 private:
  void loop() {
    for (;;) {
      std::function<void()> job;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return stop_ || job_; });
        if (!job_) return;
        job = std::exchange(job_, nullptr);
      }
      job();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> job_;
  bool stop_ = false;
  std::thread thread_;  // last: starts when the rest is there
};

}  // namespace clustar::bench::proxy
