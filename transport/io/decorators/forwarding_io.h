// What the decorators share: all calls go to the PacketIo inside. A decorator overrides what it changes.
#pragma once

#include <memory>
#include <utility>

#include "transport/io/packet_io.h"

namespace clustar::transport::io {

class ForwardingIo : public PacketIo {
 public:
  explicit ForwardingIo(std::unique_ptr<PacketIo> inner) : inner_(std::move(inner)) {}

  const Capabilities& capabilities() const override { return inner_->capabilities(); }
  const LinkProfile& link() const override { return inner_->link(); }
  Reach reach() const override { return inner_->reach(); }
  AddressBlob local_address() const override { return inner_->local_address(); }
  Result<PeerId> add_peer(const AddressBlob& address, const net::Endpoint& control) override {
    return inner_->add_peer(address, control);
  }
  Result<void> remove_peer(PeerId peer) override { return inner_->remove_peer(peer); }
  bool allow_fragments() override { return inner_->allow_fragments(); }
  Result<std::unique_ptr<Mr>> reg_mr(const gdr::MemoryRef& memory) override { return inner_->reg_mr(memory); }
  Result<std::size_t> send(std::span<const TxPacket> packets) override { return inner_->send(packets); }
  Result<std::size_t> receive(std::span<RxPacket> packets) override { return inner_->receive(packets); }
  void release(std::span<const RxPacket> packets) override { inner_->release(packets); }
  PlacementHint expect(PeerId peer, std::uint64_t slot, const MemorySlice& target, std::size_t segment_bytes) override {
    return inner_->expect(peer, slot, target, segment_bytes);
  }
  void cancel(PlacementHint landing) override { inner_->cancel(landing); }
  std::uint64_t unsent_bytes() const override { return inner_->unsent_bytes(); }
  void tell_waits() override { inner_->tell_waits(); }
  void quiesce() override { inner_->quiesce(); }
  MemoryWriter* writer() override { return inner_->writer(); }
  std::span<const int> ready_fds() const override { return inner_->ready_fds(); }
  Duration before_sleep() override { return inner_->before_sleep(); }
  void wait(Duration timeout) override { inner_->wait(timeout); }
  std::string describe() const override { return inner_->describe(); }

  PacketIo& inner() { return *inner_; }

 private:
  std::unique_ptr<PacketIo> inner_;
};

// The slice's bytes, which are in host memory; empty if they are not, or lie outside of it.
inline std::span<const std::byte> host_bytes(const MemorySlice& slice) {
  if (slice.mr == nullptr || slice.mr->memory().kind != gdr::MemoryKind::kHost) return {};
  const gdr::MemoryRef& memory = slice.mr->memory();
  if (slice.offset > memory.length || slice.length > memory.length - slice.offset) return {};
  return {memory.address + slice.offset, slice.length};
}

}  // namespace clustar::transport::io
