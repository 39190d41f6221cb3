// One endpoint for all channels of a device, since an endpoint costs a provider up to 70 MB and 50 ms: hands out what
// arrives, and knows which of a channel's memory a provider still uses.
//
// Thread rule: all calls need the NIC's lock. Owners are called from within poll(), on whichever thread polls.
#pragma once

#include <rdma/fi_endpoint.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "libfabric_shim/endpoint.h"
#include "libfabric_shim/memory_region.h"
#include "libfabric_shim/rdm/waste_memory.h"
#include "libfabric_shim/rdm/wire.h"
#include "transport/base/log.h"
#include "transport/base/time.h"

namespace clustar::transport::ofi {

class Exchange {
 public:
  // Who posts, or is to get frames. What it is told of may not make it end, nor poll.
  class Owner {
   public:
    // `bytes`: from the chunk header on; only while the call lasts.
    virtual void on_frame(const FrameHead&, std::span<const std::byte>) {}
    // A frame or a payload, by its cookie; the bytes of a frame are those behind its head.
    virtual void on_sent(std::uint32_t, std::size_t) {}
    virtual void on_received(std::uint32_t, std::size_t) {}  // a payload, by its cookie, and its bytes
    virtual void on_cancelled(std::uint32_t) {}              // a receive that cancel_receive() gave up
    // It asked by remind(). True: that is done with.
    virtual bool on_reminder() { return true; }
    virtual void on_failure(const Error& error) = 0;

   protected:
    ~Owner() = default;
  };

  // `payload`: the most that a frame carries behind its headers. The domain outlives it. Error: libfabric's.
  static Result<std::shared_ptr<Exchange>> open(Domain& domain, std::size_t payload, const Clock& clock,
                                                const Log& log);

  ~Exchange() { end_endpoint(); }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  const std::vector<std::byte>& address() const { return address_; }
  Result<fi_addr_t> insert(std::span<const std::byte> address) { return addresses_.insert(address, address_.size()); }

  // Frames for it come to `owner` until close_channel(). Error: no random numbers, no memory, or no number is left.
  Result<ChannelName> open_channel(Owner& owner);
  // Where payloads that its frames announce come: the exchange of a rail, and the channel's number there.
  struct Way {
    std::weak_ptr<Exchange> exchange;
    std::uint32_t number = 0;
  };
  // Payloads that are announced to it later are still asked for, and thrown away: their sender waits for that. `ways`:
  // of all rails.
  void close_channel(const ChannelName& channel, std::vector<Way> ways);

  enum class Sent : std::uint8_t {
    kNoRoom,    // poll, and try again
    kUnderWay,  // on_sent() follows
    kDone,      // nothing follows
  };
  // A frame is copied, so its sender may end. A short one is done at once where the provider moves it without us.
  Result<Sent> send_frame(fi_addr_t to, std::span<const std::byte> head, std::span<const std::byte> payload,
                          Owner& owner, std::uint32_t cookie);
  // The same, but on_sent() follows in any case. False: no room now; poll, and try again.
  Result<bool> post_frame(fi_addr_t to, std::span<const std::byte> head, std::span<const std::byte> payload,
                          Owner& owner, std::uint32_t cookie);
  // Memory of a payload is used until its owner is told so, or payloads_of() is 0.
  struct Payload {
    std::uint64_t tag = 0;
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    void* descriptor = nullptr;
  };
  Result<bool> send_payload(fi_addr_t to, const Payload& payload, Owner& owner, std::uint32_t cookie);
  Result<void> receive_payload(const Payload& payload, Owner& owner, std::uint32_t cookie);
  // A receive for what nobody announced, and which may never come. False: others need the provider's room.
  Result<bool> receive_ahead(const Payload& payload, Owner& owner, std::uint32_t cookie);
  // Nothing was sent for it, nor will be. on_cancelled() follows.
  void cancel_receive(const Owner& owner, std::uint32_t cookie);
  // No memory of receives that are ahead is used when they are over, which is soon; what was sent for them is thrown
  // away for kLeftOver, since its sender waits for that.
  void leave_ahead(const Owner& owner);

  // Each poll calls its on_reminder() from now on, until that is true: for what is due later, and may be the last thing
  // that its caller asks of it for long.
  void remind(Owner& owner);

  // Lets the provider work and hands out what came. Nothing when the poll before found nothing and was just now:
  // callers that test many requests in a row would spend their time in the provider's system calls.
  void poll();

  struct InUse {
    std::size_t sends = 0;
    std::size_t receives = 0;
  };
  InUse payloads_of(const Owner& owner) const;
  // Receives for which nothing has come are given up. Their sender may wait forever.
  void cancel_receives(const Owner& owner);
  // It hears of nothing any more. What it sent is still sent.
  void forget(const Owner& owner);

  // Ends the endpoint: no memory is used any more, all owners fail.
  void break_off(const Error& why);
  const std::optional<Error>& broken() const { return broken_; }

 private:
  enum class Kind : std::uint8_t { kFree, kFrameSend, kFrameReceive, kPayloadSend, kPayloadReceive };
  struct Op : fi_context2 {
    Kind kind = Kind::kFree;
    bool ahead = false;  // a receive of receive_ahead(), or what leave_ahead() put in its place
    bool cancelled = false;
    Owner* owner = nullptr;
    std::uint32_t cookie = 0;
    Payload payload{};            // of a frame: its memory here
    WasteMemory::Shared waste{};  // for a payload that nobody wants any more
    std::size_t sent = 0;         // what on_sent() tells
  };
  struct Slab {
    std::unique_ptr<std::byte[]> memory;
    MemoryRegion region;
  };
  struct Closed {
    std::uint64_t key = 0;
    std::vector<Way> ways{};
  };
  static constexpr std::size_t kSlabFrames = 32;
  static constexpr std::size_t kMostInjected = 256;
  static constexpr int kBatchesPerPoll = 16;
  static constexpr int kLastLooks = 256;
  static constexpr Duration kPause = std::chrono::microseconds(2);
  static constexpr std::uint32_t kMostSkipped = 32;
  static constexpr std::size_t kMostClosed = 4096;
  static constexpr Duration kLeftOver = std::chrono::seconds(2);

  Exchange(Domain& domain, CompletionQueue queue, AddressVector addresses, std::size_t payload, const Clock& clock,
           const Log& log)
      : domain_(domain),
        frame_bytes_(ChunkFrame::kMost + payload),
        inject_bytes_(injected_bytes(domain.info())),
        queue_(std::move(queue)),
        addresses_(std::move(addresses)),
        clock_(clock),
        log_(log) {}

  static std::size_t injected_bytes(const fi_info& info);
  void end_endpoint();
  bool pauses();
  // Of frames, so that payloads find room. Frames for which none is posted wait within the provider.
  std::size_t most_posted_frames() const;
  Result<Op*> take_frame();
  Op& take_payload();
  void give_back(Op& op);
  Result<Sent> inject_frame(fi_addr_t to, std::span<const std::byte> head, std::span<const std::byte> payload);
  // What libfabric said: done, again, or a failure.
  Result<bool> taken(Op& op, const char* call, ssize_t code);
  void post_receive(Op& op);
  void finish(Op& op, std::size_t bytes);
  void finish_frame(const Op& op, std::size_t bytes);
  static void waste(const Closed& channel, const FrameHead& head, std::span<const std::byte> bytes);
  // Null: it cannot be thrown away here.
  Op* post_waste(std::uint64_t tag, std::size_t bytes);
  void cancel(Op& op);
  void end_left_over();
  void call_reminded();
  std::size_t most_ahead() const;
  void on_failure(const CompletionQueue::Failure& failure);

  Domain& domain_;
  const std::size_t frame_bytes_;
  const std::size_t inject_bytes_;  // longer frames are not injected
  CompletionQueue queue_;
  AddressVector addresses_;
  std::vector<Slab> slabs_;
  std::optional<Endpoint> endpoint_;  // after the memory that it uses, so that it ends before it
  std::vector<std::byte> address_;
  const Clock& clock_;
  const Log& log_;
  std::deque<Op> ops_;  // stay where they are
  std::vector<Op*> free_frames_;
  std::vector<Op*> free_payloads_;
  WasteMemory waste_;
  std::deque<Op*> waiting_;  // receives for which the provider had no room
  std::unordered_map<std::uint32_t, std::pair<Owner*, std::uint64_t>> channels_;  // with its key
  std::map<std::uint32_t, Closed> closed_;                                        // channels; the latest kMostClosed
  std::uint32_t next_channel_ = 1;
  std::size_t posted_frames_ = 0;
  std::size_t ahead_ = 0;  // receives
  struct LeftOver {
    Op* op = nullptr;
    std::uint32_t number = 0;  // the op's cookie, while it is this one
    TimePoint until{};
  };
  std::deque<LeftOver> left_over_;  // oldest first
  std::uint32_t next_left_over_ = 0;
  std::vector<Owner*> reminded_;
  bool idle_ = false;  // the latest poll found nothing, and nothing was posted since
  TimePoint polled_{};
  std::uint32_t skipped_ = 0;
  std::optional<Error> broken_;
};

}  // namespace clustar::transport::ofi
