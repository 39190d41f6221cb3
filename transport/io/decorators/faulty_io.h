// Faults on the way out (and losses on the way in), for tests and for `--inject-loss`. Nothing sleeps: packets that are
// late leave inside of a later send(), receive() or wait().
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "transport/base/ring.h"
#include "transport/base/system_clock.h"
#include "transport/io/decorators/fault_dice.h"
#include "transport/io/decorators/fault_spec.h"
#include "transport/io/decorators/forwarding_io.h"
#include "transport/io/decorators/held_packets.h"

namespace clustar::transport::io {

struct FaultyIoOptions {
  // Packets that leave later, twice or changed have memory here, so that the caller's is free as the backend promised;
  // when it is full, send() takes no more. At least 2. A delay of D at B bytes a second needs D * B / packet of them.
  std::size_t held_packets = 1024;
  const Clock* clock = nullptr;  // outlives the FaultyIo; null: the machine's
  std::string name{};            // the faults in describe(); empty: FaultSpec::to_string()
};

// Packets. A packet counts under every fault that it met.
struct FaultCounters {
  std::uint64_t taken = 0;  // by send()
  std::uint64_t untouched = 0;
  std::uint64_t lost = 0;
  std::uint64_t burst_lost = 0;
  std::uint64_t reordered = 0;
  std::uint64_t duplicated = 0;
  std::uint64_t corrupted = 0;
  std::uint64_t delayed = 0;
  std::uint64_t not_copied = 0;     // payload not in host memory: sent at once and unchanged, whatever was drawn
  std::uint64_t refused = 0;        // held packets that the backend then could not send
  std::uint64_t back_pressure = 0;  // calls of send() that found the memory for held packets full
  std::uint64_t received_lost = 0;  // loss and burst, on the way in
};

class FaultyIo final : public ForwardingIo {
 public:
  // Error: the backend does not register the memory for held packets.
  static Result<std::unique_ptr<FaultyIo>> create(std::unique_ptr<PacketIo> inner, const FaultSpec& spec,
                                                  const FaultyIoOptions& options = {});

  Result<PeerId> add_peer(const AddressBlob& address, const net::Endpoint& control) override;
  Result<void> remove_peer(PeerId peer) override;
  // What a packet meets is drawn when it is first offered, so refused ones must be offered again before others.
  Result<std::size_t> send(std::span<const TxPacket> packets) override;
  Result<std::size_t> receive(std::span<RxPacket> packets) override;
  // A packet that is held back leaves inside of a later call, and no descriptor becomes readable for it.
  std::span<const int> ready_fds() const override {
    return spec_.copies() ? std::span<const int>() : ForwardingIo::ready_fds();
  }
  // May return early, when a held packet has left.
  void wait(Duration timeout) override;
  std::string describe() const override;  // the inner's, and what was done

  const FaultSpec& spec() const { return spec_; }
  const FaultCounters& counters() const { return counters_; }
  // Packets that were taken and have not left.
  std::size_t held() const { return line_.size() + held_back_.size() + backlog(); }

 private:
  static constexpr std::size_t kBurst = 64;
  struct HeldBack {
    HeldPackets::Id id;
    std::uint64_t after;  // departures
    TimePoint until;
  };

  FaultyIo(std::unique_ptr<PacketIo> inner, const FaultSpec& spec, const FaultyIoOptions& options);

  TimePoint now() const { return clock_->now(); }
  std::size_t backlog() const { return ready_.size() + batch_.size() - batch_sent_; }
  Fate& fate_of(std::span<const TxPacket> packets, std::size_t index);
  void forget_fates(std::size_t count);

  Result<std::size_t> step(std::span<const TxPacket> packets, TimePoint now);
  Result<std::size_t> send_untouched(std::span<const TxPacket> packets);
  bool can_be_sent(const TxPacket& packet) const;
  std::size_t lose(const Fate& fate);
  std::size_t hold(const TxPacket& packet, const Fate& fate, TimePoint now);
  void corrupt(HeldPackets::Id id, std::uint64_t draw);
  void place(HeldPackets::Id id, TimePoint now);

  // Sends what is due. Error: the device's end.
  Result<void> flush(TimePoint now);
  void release_held_back(TimePoint now);
  std::size_t next_burst() const;
  bool next_batch(TimePoint now);
  Result<std::size_t> send_inner(std::span<const TxPacket> packets);
  void cool_down(std::size_t count);
  TimePoint next_due();
  std::size_t lose_received(std::span<RxPacket> packets);

  FaultSpec spec_;
  std::string name_;
  std::vector<PeerId> removed_;  // the latest ones: packets for them are not held, but refused by the backend
  SystemClock system_clock_;
  const Clock* clock_;
  FaultDice out_;
  FaultDice in_;
  FaultCounters counters_;

  std::array<Fate, kBurst> drawn_;  // of the packets that were offered and not taken, oldest at drawn_head_
  std::size_t drawn_head_ = 0;
  std::size_t drawn_count_ = 0;

  // A held packet is in line_ (delayed), then in held_back_ (reordered), then in ready_, then in batch_.
  HeldPackets pool_;
  Ring<HeldPackets::Id> line_;  // by due time
  std::vector<HeldBack> held_back_;
  Ring<HeldPackets::Id> ready_;
  std::vector<HeldPackets::Id> batch_;
  std::vector<TxPacket> batch_packets_;
  std::size_t batch_sent_ = 0;
  std::vector<HeldPackets::Id> cooling_;  // handed to a backend that may still read them
  TimePoint last_due_{};
  std::uint64_t departed_ = 0;  // handed to the backend
  bool took_less_ = false;      // the last send()
};

}  // namespace clustar::transport::io
