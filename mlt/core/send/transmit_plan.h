// Which packet of which message a sender sends next: by the turns of its messages, what the receiver's credit, the
// congestion window and the pace allow.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "mlt/core/options.h"
#include "mlt/core/send/agenda.h"
#include "mlt/core/send/flight.h"
#include "mlt/core/send/pacer.h"
#include "mlt/core/send/send_credit.h"
#include "mlt/core/send/send_message.h"
#include "transport/base/time.h"

namespace clustar::mlt {

class TransmitPlan {
 public:
  enum class Sort : std::uint8_t {
    kScheduled,   // within the receiver's credit
    kUncredited,  // before it, or past it
    kAgain,
    kParity,  // `index` as DataHeader's
  };
  struct Choice {
    std::uint32_t message = 0, index = 0;
    Sort sort = Sort::kScheduled;
    bool mouse = false;  // it goes past the others
    bool uncredited = false;
  };
  // What of the sender it looks at.
  struct View {
    const SendMessages& messages;
    const SendCredit& credit;
    const Flight& flight;
    std::uint64_t window;  // bytes that may be on their way
  };

  explicit TransmitPlan(const Options& options);

  // A message that is new in its table. Each comes here once, in the order of numbers.
  void add(std::uint32_t id, const SendMessage& message, TimePoint now);
  // Of a message whose `place` has changed, and of which something was never sent.
  void move(std::uint32_t id, const SendMessage& message, TimePoint now);
  // The message ends, whatever was not sent of it.
  void remove(std::uint32_t id, const SendMessage& message);
  // Its next first transmission leaves; before it is counted.
  void on_first(std::uint32_t id, const SendMessage& message);
  void mark_resend(SendMessage& message, std::uint32_t index);
  // It leaves again, or need not.
  void clear_resend(SendMessage& message, std::uint32_t index);

  // A block was sent, and so many packets of parity follow it.
  void add_parity(std::uint32_t message, std::uint32_t block, std::uint32_t rows) {
    parity_.push_back({message, block, 0, rows});
  }
  // The packet that choose() gave leaves. True: it is the block's last.
  bool parity_sent();

  // Messages go in their turns; of each what is sent again before what is new. False: nothing may go now. Written to
  // `choice`, and not returned: it is looked at once per packet.
  bool choose(const View& view, TimePoint now, Choice& choice);
  // Nothing that could go waits for the pace.
  void rest() { paced_ = false; }
  void on_sent(std::uint32_t bytes, TimePoint now) { pacer_.on_sent(bytes, now); }
  void set_rate(std::uint64_t bytes_per_s, TimePoint now);

  // A message of one packet, which waits for no credit.
  bool is_mouse(const SendMessage& message) const;
  // Whether credit, or the right to begin without, allows `bytes` more of the message.
  bool may_start(const SendMessage& message, std::uint32_t bytes, const View& view) const;
  // For its next first transmission.
  bool lacks_credit(const SendMessage& message, const View& view) const;
  // For `bytes` more of what goes ahead of its credit, beside `under_way`.
  bool has_uncredited_room(std::uint32_t bytes, std::uint32_t under_way) const;

  TimePoint next_timeout() const;
  void on_timeout(TimePoint now);
  bool is_consistent(const SendMessages& messages) const;

 private:
  bool parity(const View& view, TimePoint now, Choice& choice);
  bool again(const View& view, std::uint32_t message, TimePoint now, Choice& choice);
  bool fresh(const View& view, TimePoint now, Choice& choice);
  bool mouse(const View& view, TimePoint now, Choice& choice);
  std::optional<std::uint32_t> first_to_repeat(const SendMessages& messages) const;
  bool held_back(const Flight& flight, TimePoint now);

  struct Parity {
    std::uint32_t message, block, next, rows;
  };

  const Options& options_;
  Agenda agenda_;
  std::vector<Parity> parity_;  // to be sent, in order; of few blocks: it goes before what is new
  Pacer pacer_;
  bool ranked_ = false;        // some message has had another turn than the others
  std::uint32_t resends_ = 0;  // packets of all messages
  std::uint32_t unsent_mice_ = 0;
  bool paced_ = false;  // the pacer alone held back the latest packet
  TimePoint send_at_{};
};

}  // namespace clustar::mlt
