// A kind of packets as small as one can be: mailboxes within this process. It shows what a new one has to bring, and
// MLT runs over it (mlt_elsewhere_under_test.cc).
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "transport/base/file_descriptor.h"
#include "transport/io/packet_io.h"

namespace clustar::transport::conformance {

class ToyIo final : public io::PacketIo {
 public:
  const io::Capabilities& capabilities() const override { return capabilities_; }
  const io::LinkProfile& link() const override { return link_; }
  io::AddressBlob local_address() const override;
  Result<io::PeerId> add_peer(const io::AddressBlob& address, const net::Endpoint& control) override;
  Result<void> remove_peer(io::PeerId peer) override;
  Result<std::unique_ptr<io::Mr>> reg_mr(const gdr::MemoryRef& memory) override;
  Result<std::size_t> send(std::span<const io::TxPacket> packets) override;
  Result<std::size_t> receive(std::span<io::RxPacket> packets) override;
  void release(std::span<const io::RxPacket> packets) override;
  io::PlacementHint expect(io::PeerId, std::uint64_t, const io::MemorySlice&, std::size_t) override { return {}; }
  void cancel(io::PlacementHint) override {}
  std::span<const int> ready_fds() const override { return {&ready_, 1}; }
  void wait(Duration timeout) override;

 private:
  struct Packet {
    std::uint32_t from = 0;  // the sender's mailbox
    io::RxPacket info;
    std::vector<std::byte> bytes;
  };
  struct Mailbox {
    static constexpr std::size_t kMost = 16384;
    std::uint32_t number = 0;
    FileDescriptor event;  // readable while `packets` has any
    std::mutex mutex;
    std::deque<std::unique_ptr<Packet>> packets;
    void put(std::unique_ptr<Packet> packet);  // lost when full
  };
  struct Registry;  // of all mailboxes
  static std::shared_ptr<Mailbox> find(std::uint32_t number);
  static std::shared_ptr<Mailbox> open();
  const char* wrong_with(const io::TxPacket& packet) const;

  // It would, but there is no switch that marks.
  const io::Capabilities capabilities_{.max_packet = 4096, .paths = 4, .marks = true};
  const io::LinkProfile link_ = io::LinkProfile::usual(io::LinkKind::kKernel);
  const std::shared_ptr<Mailbox> mailbox_ = open();
  const int ready_ = mailbox_->event.fd();
  std::map<io::PeerId, std::weak_ptr<Mailbox>> peers_;  // a PeerId is a mailbox's number
};

}  // namespace clustar::transport::conformance
