// Messages between pairs of ranks over waist 1: sends meet receives by sender and key, in any order and number.
//
// A send is offered by a note. The receiver answers it when a receive fits, and only then the bytes go, straight to
// their place; a short message goes within its offer. So one that nobody receives holds up no other.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "paraexpress/communicator/core/matching.h"
#include "paraexpress/communicator/core/note.h"
#include "paraexpress/communicator/core/standing.h"
#include "paraexpress/engine/mesh.h"
#include "transport/api/transport.h"
#include "transport/base/result.h"

namespace clustar::paraexpress {

// One message, of the rank that sends or receives it. It and its memory stay until it has ended or the lines are
// closed.
struct Message {
  bool sends = false;
  Member peer = 0;  // of a receive also kAnyMember; then it is the sender afterwards
  MessageKey key{};
  std::byte* data = nullptr;           // null: no bytes
  std::uint64_t bytes = 0;             // exactly what comes
  const Registered* memory = nullptr;  // holds it; not needed for up to kMostCarried bytes

  bool ended = false;
  std::optional<Error> error{};
};

struct LinesOptions {
  Member self = 0;
  std::uint32_t ranks = 1;
  // Another rank is in this collective, and it does not end. Called in advance().
  std::function<void(Member from, const Standing&)> heard{};
  // Ranks are in different collectives, as `why` says. Called in advance() and begun().
  std::function<void(const std::string& why)> contradiction{};
};

// Thread rule: one thread at a time.
class Lines {
 public:
  // Of all ranks, over a mesh that has just been connected, which outlives it.
  static Result<std::unique_ptr<Lines>> open(Mesh& mesh, LinesOptions options);

  void begin(Message& message);
  // All messages of this collective, and of those before, have begun.
  void begun(std::uint64_t collective);
  // A receive that nothing was offered to: it has not ended, and will not. False: it goes on.
  bool withdraw(Message& message);
  // This collective does not end: all others learn of it.
  void tell(const Standing& standing);
  // True: something moved. What a peer's failure ends is told by its messages.
  bool advance();
  // Something is under way, so it must be advanced.
  bool busy() const { return open_ > 0; }
  // Tells all that this rank leaves. They have learnt of it, and said the same, once parted().
  void leave();
  bool parted() const;

 private:
  static constexpr std::size_t kNotes = 8;  // under way at once, each way of each pair
  struct Out {
    Note note{};
    Message* carried = nullptr;
  };
  struct Sending {
    transport::Request* request = nullptr;
    std::size_t place = 0;  // of a note
    Message* message = nullptr;
  };
  struct Peer {
    std::deque<Out> notes{};                      // to be sent
    std::deque<Sending> sending_notes{};          // in the order of their posting
    std::deque<Sending> hearing{};                // notes that are received
    std::map<std::uint32_t, Message*> offered{};  // without an answer
    std::deque<Message*> to_send{}, to_receive{};
    std::deque<Sending> sending{}, receiving{};
    std::size_t next_place = 0;
    std::uint32_t next_offer = 0;
    std::optional<Error> gone{};
    bool left = false;  // it has said so
  };
  Lines(Mesh& mesh, LinesOptions options);

  std::byte* place_of(Member peer, bool out, std::size_t place) const;
  std::size_t offset_of(Member peer, bool out, std::size_t place) const;
  Result<bool> advance(Member peer);
  Result<bool> send_notes(Member peer);
  Result<bool> hear_notes(Member peer);
  Result<bool> move_data(Member peer);
  Result<bool> finish(std::deque<Sending>& under_way);
  Result<void> hear(Member peer, std::span<const std::byte> message);
  void hear_offer(Member peer, const Note& note, std::span<const std::byte> carried);
  void accept(Message& message, Offer offer);
  void say(Member peer, const Note& note, Message* carried = nullptr);
  void end(Message& message, std::optional<Error> error = std::nullopt);
  void contradicted(Message& message, const Offer& offer);
  void lose(Member peer, Error error);
  void left(Member peer);
  bool alone() const;  // all others are gone, or have left
  void look_for_stray_offers();
  Message* wanted(std::uint64_t id);

  Mesh& mesh_;
  const LinesOptions options_;
  std::unique_ptr<std::byte[]> memory_{};  // of all peers' notes
  std::unique_ptr<Registered> registered_{};
  std::vector<Peer> peers_{};
  Matching matching_{};
  std::map<std::uint64_t, Message*> wanting_{};  // receives that wait for an offer
  std::uint64_t next_want_ = 0;
  std::uint64_t begun_ = 0;  // collectives up to this one
  std::size_t open_ = 0;     // messages, and notes that are not sent
};

}  // namespace clustar::paraexpress
