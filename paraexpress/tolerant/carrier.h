// The Wire of a tolerant group over real channels: notes and elements to and from all other ranks, through memory of
// its own.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "paraexpress/engine/engine.h"
#include "paraexpress/engine/mesh.h"
#include "paraexpress/engine/staging.h"
#include "paraexpress/engine/watch.h"
#include "paraexpress/tolerant/core/wire.h"

namespace clustar::paraexpress::tolerant {

struct CarrierOptions {
  Member self = 0;
  std::uint32_t ranks = 2;
  std::uint32_t buckets = 1;
  std::uint64_t communicator = 0;   // for the accounts of what is lost
  std::uint32_t tolerance_ppm = 0;  // of contributions' bytes
  std::uint64_t most_bytes = 0;     // of its memory
};

// What a Carrier tells: of each of the others' notes, and of each of Wire's sends and receives.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual std::optional<Blame> heard(Member from, std::span<const std::byte> note) = 0;
  virtual std::optional<Blame> came(Member from, const Ticket& ticket, std::span<const ElementRange> missing) = 0;
  virtual void sent(Member to, const Ticket& ticket, std::span<const ElementRange> missing) = 0;
};

// Thread rule: that of the mesh's channels; traffic() from any thread.
class Carrier final : public Wire {
 public:
  static Result<std::unique_ptr<Carrier>> open(Mesh& mesh, const CarrierOptions& options);

  Block take(std::size_t bytes) override;
  void say(Member to, const Note& note) override;
  void send(Member to, Block block, std::size_t bytes, const Ticket& ticket) override;
  void receive(Member from, Block block, std::size_t bytes, const Ticket& ticket) override;

  // What became of the others; asked where a channel fails.
  struct Others {
    std::function<bool(Member)> has_left{};               // it said that it is done
    std::function<Blame(Member, const Error&)> failed{};  // who is to blame
  };
  // A moment's work. What the listener does may send and receive.
  std::optional<Blame> advance(Listener& listener, const Others& others, bool& moved);
  // Something has not left yet, to one who has not.
  bool is_sending(const std::function<bool(Member)>& has_left) const;
  // After the mesh has closed.
  void release();

  EngineTraffic traffic() const;

 private:
  struct Outgoing {
    std::optional<Note> note{};
    Block block{};
    std::size_t bytes = 0;
    Ticket ticket{};
  };
  struct UnderWay {
    transport::Request* request = nullptr;
    Block block{};  // null: a note
    std::size_t bytes = 0;
    Ticket ticket{};
  };
  struct Peer {
    bool gone = false;
    std::deque<Outgoing> to_send{};
    std::deque<UnderWay> notes{}, elements{};                           // being sent
    std::size_t next_place = 0;                                         // of a note
    std::deque<std::pair<std::size_t, transport::Request*>> hearing{};  // places of notes, in order
    std::deque<UnderWay> to_receive{};
    std::deque<UnderWay> receiving[2]{};  // by kind
  };
  Carrier(Mesh& mesh, const CarrierOptions& options);
  std::size_t place_of(Member peer, bool out, std::size_t place) const;
  transport::FlowTag flow_of(const Ticket& ticket, std::size_t bytes) const;
  Result<bool> begin_sends(Member to);
  Result<bool> end_sends(Member to, Listener& listener);
  Result<bool> receive_some(Member from, Listener& listener, std::optional<Blame>& blame);
  Result<bool> hear(Member from, Listener& listener, std::optional<Blame>& blame);
  Result<bool> advance(Member peer, Listener& listener, std::optional<Blame>& blame);
  void lose(Member peer, Listener& listener);

  Mesh& mesh_;
  const CarrierOptions options_;
  Staging staging_;
  std::unordered_map<std::byte*, Staging::Block*> blocks_{};  // that somebody holds
  std::uint64_t taken_ = 0;                                   // bytes of them
  std::unique_ptr<std::byte[]> notes_{};
  std::unique_ptr<Registered> notes_mr_{};
  std::vector<Peer> peers_;
  std::atomic<std::uint64_t> bytes_sent_{0}, bytes_received_{0}, messages_sent_{0}, messages_received_{0};
};

}  // namespace clustar::paraexpress::tolerant
