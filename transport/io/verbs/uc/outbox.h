// What UcIo says of its own accord, until the datagrams' device takes it; and the headers of written packets, gathered
// into as few datagrams as they need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "transport/io/packet_io.h"
#include "transport/io/verbs/uc/wire.h"

namespace clustar::transport::io::verbs::uc {

class Outbox {
 public:
  // Datagrams; a batch of headers is two of them.
  static constexpr std::size_t kMost = 256;

  // `datagrams` outlives this. Error: its memory cannot be registered.
  static Result<std::unique_ptr<Outbox>> make(PacketIo& datagrams);

  bool room(std::size_t datagrams = 1) const { return waiting_.size() + datagrams <= kMost; }
  bool empty() const { return waiting_.empty(); }
  // With room() for one. `body`: behind the preamble, at most 116 bytes.
  void say(PeerId peer, std::uint8_t path, const Preamble& preamble, std::span<const std::byte> body);

  // The header of write `number` to `peer` joins the batch that is being gathered, or begins another one. False: no
  // room for it now, or the header is too long for any.
  bool gather(PeerId peer, const Preamble& preamble, std::uint32_t number, const WrittenHeader& header);
  void close();  // the batch goes with the next flush()
  void forget(PeerId peer);

  // Offers what waits, in order. Error: the device's end.
  Result<void> flush();
  // So many packets of others were taken by the device: what counts for its in_flight.
  void passed(std::size_t packets) { taken_ += packets; }
  std::uint64_t taken() const { return taken_; }  // by the device, with those
  std::uint64_t batches() const { return batches_; }

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
  Outbox(PacketIo& datagrams, std::uint32_t blocks);
  bool begin(PeerId peer, const Preamble& preamble, std::uint32_t number, std::uint8_t pair);
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

  // The batch that is being gathered.
  std::uint32_t open_ = kNone;
  PeerId open_peer_ = 0;
  Preamble open_preamble_{};
  std::uint8_t open_pair_ = 0;
  std::uint32_t open_next_ = 0;  // number
  std::size_t open_used_ = 0;
};

}  // namespace clustar::transport::io::verbs::uc
