// DeviceCopy by the copy engines of one GPU: a stream of its own, an event behind every copy.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "gdr/cuda/driver.h"
#include "gdr/cuda/module_api.h"

namespace clustar::gdr::cuda {

// The context, and the host memory of one CudaCopy. It lives as long as the last buffer.
class Home {
 public:
  explicit Home(Context context) : context_(std::move(context)) {}
  ~Home();
  Home(const Home&) = delete;
  Home& operator=(const Home&) = delete;

  const Context& context() const { return context_; }
  Result<std::span<std::byte>> allocate(std::size_t bytes);
  // At once, or, while copies are on their way, when they have ended: one may still read or write it.
  void free(std::byte* begin);
  bool holds(const std::byte* begin, std::size_t bytes) const;

  void copies_begin() { busy_ = true; }
  void copies_ended();
  // Copies that did not end in time may still write: nothing is freed any more.
  void give_up() {
    lost_ = true;
    context_.keep();
  }

 private:
  struct Range {
    std::byte* begin;
    std::size_t bytes;
  };
  void release(std::byte* begin);

  Context context_;
  std::vector<Range> ranges_;
  std::vector<std::byte*> late_;
  bool busy_ = false;
  bool lost_ = false;
};

class CudaCopy final : public DeviceCopy {
 public:
  static Result<std::unique_ptr<DeviceCopy>> open(int device, const CopyOptions& options);
  // Waits for copies on their way, a second at most.
  ~CudaCopy() override;

  const char* name() const override { return "cuda"; }
  Result<std::unique_ptr<HostBuffer>> host_buffer(std::size_t bytes) override;
  Result<std::optional<Ticket>> to_device(std::byte* device, const std::byte* host, std::size_t bytes) override;
  Result<std::optional<Ticket>> to_host(std::byte* host, const std::byte* device, std::size_t bytes) override;
  Result<bool> done(Ticket ticket) override;

 private:
  explicit CudaCopy(Context context) : home_(std::make_shared<Home>(std::move(context))) {}
  Result<void> prepare(unsigned most_outstanding);
  Result<void> warm_up();
  CUevent& event_of(Ticket ticket) { return events_[ticket % events_.size()]; }
  Result<std::optional<Ticket>> copy(std::byte* to, const std::byte* from, const std::byte* host, std::size_t bytes);
  template <class Enqueue>
  Result<std::optional<Ticket>> begin(const char* call, Enqueue&& enqueue);
  // Whether the copy of this ticket has ended, and with it all before; the driver is asked.
  Result<bool> ask(Ticket ticket);
  tl::unexpected<Error> end_of_use(Error error);
  // Of whatever the stream has: copies without a ticket, behind which no event could be recorded, too.
  bool ended_in_time();

  std::shared_ptr<Home> home_;
  // Of the warm-up. Freed at the end only: to free may be to wait for kernels, with the driver's locks held.
  std::unique_ptr<HostBuffer> warm_page_;
  CUdeviceptr warm_memory_ = 0;
  CUstream stream_ = nullptr;
  std::vector<CUevent> events_;  // of the ticket whose number is the index, modulo their count
  Ticket oldest_ = 1;            // not known to have ended
  Ticket next_ = 1;
  std::optional<Error> failed_;  // no copy begins any more
  bool dead_ = false;            // nor does one run
};

}  // namespace clustar::gdr::cuda
