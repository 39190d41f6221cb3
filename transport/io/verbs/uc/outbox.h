// What UcIo says of its own accord, until the datagrams' device takes it; and the headers of written packets, gathered
// into as few datagrams as they need. Each header is sent twice, because the loss of a datagram is the loss of all
// packets whose headers only it had: a batch's headers stand in the next batch's datagram, too. If there is none soon,
// or it is another peer's, its own datagram is sent again, by another path where there is one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "transport/base/time.h"
#include "transport/io/packet_io.h"
#include "transport/io/verbs/uc/wire.h"

namespace clustar::transport::io::verbs::uc {

class Outbox {
 public:
  static constexpr std::size_t kMost = 256;  // datagrams
  // A batch waits for the next one twice as long as they came apart lately, within these bounds.
  static constexpr Duration kNextBatch = std::chrono::microseconds(100);
  static constexpr Duration kLongestWait = std::chrono::milliseconds(2);

  // `datagrams` outlives this. Error: its memory cannot be registered.
  static Result<std::unique_ptr<Outbox>> make(PacketIo& datagrams);

  bool room(std::size_t datagrams = 1) const { return waiting_.size() + datagrams <= kMost; }
  bool empty() const { return waiting_.empty(); }  // but for second copies that are not due
  bool owes() const { return owed_.block != kNone; }
  // With room() for one. `body`: behind the preamble, at most 116 bytes.
  void say(PeerId peer, std::uint8_t path, const Preamble& preamble, std::span<const std::byte> body);

  // The header of write `number` to `peer` joins the batch that is being gathered, or begins another one. False: no
  // room for it now, or the header is too long for any.
  bool gather(PeerId peer, const Preamble& preamble, std::uint32_t number, const WrittenHeader& header);
  void close();  // the batch goes with the next flush()
  void forget(PeerId peer);

  // Offers what waits, in order, and second copies that are due at `now`. Error: the device's end.
  Result<void> flush(TimePoint now);
  // So many packets of others were taken by the device: what counts for its in_flight.
  void passed(std::size_t packets) { taken_ += packets; }
  std::uint64_t taken() const { return taken_; }  // by the device, with those
  std::uint64_t batches() const { return batches_; }
  std::uint64_t alone() const { return alone_; }  // of them, those whose second copy was their own datagram again

 private:
  struct Block {
    std::uint64_t free_at = 0;  // once so many packets were taken
    int waiting = 0;            // datagrams with it that were not
  };
  static constexpr std::uint32_t kNone = 0xffffffff;
  struct Waiting {
    TxPacket packet{};
    std::uint32_t block = kNone;
  };
  // One batch: where its headers stand in a block, behind the repeated ones of the batch before.
  struct Batch {
    std::uint32_t block = kNone;
    PeerId peer = 0;
    Preamble preamble{};  // its number counts all headers of the datagram
    std::uint8_t pair = 0;
    std::uint32_t next = 0;     // number
    std::uint16_t repeats = 0;  // headers
    std::size_t begin = 0;      // of its own headers
    std::size_t end = 0;
  };
  Outbox(PacketIo& datagrams, std::uint32_t blocks);
  bool begin(PeerId peer, const Preamble& preamble, std::uint32_t number, std::uint8_t pair);
  // The headers that are owed stand in front of the batch that begins, if they are those before its first.
  void repeat_owed(std::uint32_t number);
  void pay();
  Duration patience() const { return std::clamp<Duration>(2 * apart_, kNextBatch, kLongestWait); }
  void wait(const Batch& batch, std::size_t other_path);
  std::span<std::byte> bytes(std::uint32_t block);

  PacketIo& datagrams_;
  const std::size_t block_bytes_;
  std::vector<std::byte> memory_;
  std::unique_ptr<Mr> mr_;
  std::vector<Block> blocks_;
  std::uint32_t next_block_ = 0;
  std::vector<Waiting> waiting_;
  std::vector<TxPacket> offered_;
  std::uint64_t taken_ = 0;
  std::uint64_t batches_ = 0;
  std::uint64_t alone_ = 0;

  Batch open_{};  // being gathered
  Batch owed_{};  // was sent once
  TimePoint owed_since_{};
  TimePoint now_{};  // of the latest flush()
  Duration apart_{0};
};

}  // namespace clustar::transport::io::verbs::uc
