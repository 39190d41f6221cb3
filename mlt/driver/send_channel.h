// Sending end of a connection.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mlt/driver/connection.h"
#include "mlt/driver/importance_marks.h"
#include "mlt/driver/send_copies.h"
#include "transport/base/ring.h"
#include "transport/message/request_pool.h"

namespace clustar::mlt::driver {

class MltSendChannel final : public transport::SendChannel, public Connection {
 public:
  // `shown`: the peer, in errors.
  MltSendChannel(std::shared_ptr<Engine> engine, net::Socket control, transport::PeerInfo peer, std::string shown);
  ~MltSendChannel() override;

  Result<std::unique_ptr<transport::Mr>> reg_mr(const gdr::MemoryRef& memory) override;
  // Messages of more than kMaxMessageBytes are refused.
  Result<transport::Request*> send(const transport::Mr& mr, std::size_t offset, std::size_t length, int tag,
                                   const transport::FlowTag& flow) override;

  void submit(std::uint32_t index, TimePoint now) override;
  void on_event(const Endpoint::Event& event, TimePoint now) override;
  void on_room(TimePoint now) override { begin_waiting(now); }

 private:
  // 32 requests of up to 8 parts at the receiver are 256 sends here.
  static constexpr std::uint32_t kMaxRequests = 256;

  struct SendRequest final : transport::Request {
    Result<transport::Progress> test() override { return channel->test(*this); }

    MltSendChannel* channel = nullptr;
    std::uint32_t index = 0;
    std::atomic<bool> done{true};       // set with the engine's lock held
    bool submitted = false;             // guarded by the engine's lock
    bool waited = false;                // so is this: it was counted as one that waits
    const transport::Mr* mr = nullptr;  // null: not read any more
    const io::Mr* memory = nullptr;
    std::size_t offset = 0;
    std::size_t length = 0;
    int tag = 0;
    transport::FlowTag flow;                       // whose turn it is, what it is, and what may be lost
    std::vector<transport::MissingRange> missing;  // for good, once done
  };

  // What the core sends: it may outlive its request, whose payload was copied.
  struct Outgoing {
    std::uint32_t length = 0;
    std::optional<std::uint32_t> request;
    std::optional<SendCopies::Copy> copy;
  };

  Result<transport::Progress> test(SendRequest& request);
  SendTerms terms_of(const SendRequest& request);
  const PacketBitmap* important_of(const SendRequest& request, TimePoint now);
  void warn_reliable(const std::string& why);  // unless warned_: a message must not cost a text
  static bool is_short(const SendRequest& request);
  bool may_copy(const SendRequest& request, bool tolerant) const;
  void begin_waiting(TimePoint now);
  bool may_begin(const SendRequest& request) const;
  void begin(SendRequest& request, TimePoint now);
  void count_wait(SendRequest& request);
  std::optional<SendCopies::Copy> copy_of(const SendRequest& request);
  void note_missing(std::uint32_t message, const Outgoing& outgoing);
  std::vector<std::byte> last_words();
  void count_copies();
  void read_control() override;
  bool take_last_words();
  void on_peer_gone(const std::string& what);
  std::uint64_t progress() const override;
  std::string waiting() const override;
  bool uses(const transport::Mr& mr) const override;

  transport::RequestPool<SendRequest> requests_;
  // The following with the engine's lock held.
  Ring<std::uint32_t> waiting_;     // requests that the core has no room for, in order
  std::vector<Outgoing> outgoing_;  // by message, modulo max_messages: the core has no more at a time
  std::uint32_t next_ = 0;          // message
  SendCopies copies_;
  ImportanceMarks marks_;
  std::vector<std::byte> control_in_;  // begins with the frame that is not whole yet
  std::uint64_t finished_ = 0;
  bool told_unmarked_ = false;
  bool warned_ = false;  // of loss terms that contradict the channel or the identity
};

}  // namespace clustar::mlt::driver
