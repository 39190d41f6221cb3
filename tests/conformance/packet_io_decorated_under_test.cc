#include <unistd.h>

#include <filesystem>
#include <string>

#include "tests/conformance/packet_io_under_test.h"
#include "tests/packet_io/pcap_io.h"
#include "tests/packet_io/trace_io.h"
#include "tests/temp_path.h"
#include "transport/io/decorators/faulty_io.h"

namespace clustar::transport::conformance {
namespace {

// An end that belongs to its bed, for decorators, which own what they decorate.
class Borrowed final : public io::PacketIo {
 public:
  explicit Borrowed(io::PacketIo& end) : end_(end) {}
  const io::Capabilities& capabilities() const override { return end_.capabilities(); }
  const io::LinkProfile& link() const override { return end_.link(); }
  io::Reach reach() const override { return end_.reach(); }
  io::AddressBlob local_address() const override { return end_.local_address(); }
  Result<io::PeerId> add_peer(const io::AddressBlob& address, const net::Endpoint& control) override {
    return end_.add_peer(address, control);
  }
  Result<void> remove_peer(io::PeerId peer) override { return end_.remove_peer(peer); }
  Result<std::unique_ptr<io::Mr>> reg_mr(const gdr::MemoryRef& memory) override { return end_.reg_mr(memory); }
  Result<std::size_t> send(std::span<const io::TxPacket> packets) override { return end_.send(packets); }
  Result<std::size_t> receive(std::span<io::RxPacket> packets) override { return end_.receive(packets); }
  void release(std::span<const io::RxPacket> packets) override { end_.release(packets); }
  io::PlacementHint expect(io::PeerId peer, std::uint64_t slot, const io::MemorySlice& target,
                           std::size_t bytes) override {
    return end_.expect(peer, slot, target, bytes);
  }
  void cancel(io::PlacementHint landing) override { end_.cancel(landing); }
  void quiesce() override { end_.quiesce(); }
  std::span<const int> ready_fds() const override { return end_.ready_fds(); }
  Duration before_sleep() override { return end_.before_sleep(); }
  void wait(Duration timeout) override { end_.wait(timeout); }

 private:
  io::PacketIo& end_;
};

using Decorate = std::function<Result<std::unique_ptr<io::PacketIo>>(std::unique_ptr<io::PacketIo>, std::size_t end)>;

class DecoratedBed final : public PacketIoBed {
 public:
  static Result<std::unique_ptr<PacketIoBed>> create(const PacketIoUnderTest& plain, const Decorate& decorate) {
    auto bed = std::make_unique<DecoratedBed>();
    auto created = plain.create();
    if (!created) return created;
    bed->plain_ = std::move(*created);
    for (std::size_t i = 0; i < kEnds; ++i) {
      auto end = decorate(std::make_unique<Borrowed>(bed->plain_->end(i)), i);
      if (!end) return tl::unexpected(end.error());
      bed->ends_[i] = std::move(*end);
    }
    bed->as_in(*bed->plain_);
    return bed;
  }
  // Here one thread plays all hosts, so the other ends get their chance to send what they hold.
  io::PacketIo& end(std::size_t index) override {
    flush();
    return *ends_[index];
  }
  net::Endpoint control(std::size_t end) override { return plain_->control(end); }
  void advance(Duration duration) override {
    plain_->advance(duration);
    flush();
  }
  bool refuses_bursts() const override { return plain_->refuses_bursts(); }
  bool marks_incast() const override { return plain_->marks_incast(); }

 private:
  void flush() {
    for (const auto& end : ends_) {
      const auto* faulty = dynamic_cast<const io::FaultyIo*>(end.get());
      if (faulty != nullptr && faulty->held() > 0) end->wait(Duration(0));
    }
  }

  std::unique_ptr<PacketIoBed> plain_;
  std::unique_ptr<io::PacketIo> ends_[kEnds];  // go before the ends that they borrow
};

PacketIoUnderTest variant(const PacketIoUnderTest& plain, const std::string& name, const Decorate& decorate) {
  return {plain.name + "_" + name, [=] { return DecoratedBed::create(plain, decorate); }};
}

Decorate faulty(const char* spec) {
  return [spec](std::unique_ptr<io::PacketIo> inner, std::size_t) -> Result<std::unique_ptr<io::PacketIo>> {
    return io::FaultyIo::create(std::move(inner), io::FaultSpec::parse(spec).value(), {.held_packets = 256});
  };
}

// Takes its file away with it.
struct TemporaryPcap {
  explicit TemporaryPcap(std::size_t end) : path(tests::temp_path("conformance_" + std::to_string(end))) {}
  ~TemporaryPcap() { std::filesystem::remove(path); }
  TemporaryPcap(const TemporaryPcap&) = delete;
  TemporaryPcap& operator=(const TemporaryPcap&) = delete;
  std::string path;
};

class PcapWithFile final : public io::ForwardingIo {
 public:
  PcapWithFile(std::unique_ptr<io::PacketIo> inner, std::unique_ptr<TemporaryPcap> file)
      : ForwardingIo(std::make_unique<io::PcapIo>(
            std::move(inner), io::PcapIoOptions{.file = {.path = file->path, .max_bytes = 4 << 20}})),
        file_(std::move(file)) {}

 private:
  std::unique_ptr<TemporaryPcap> file_;
};

}  // namespace

std::vector<PacketIoUnderTest> decorated(const PacketIoUnderTest& plain) {
  using Created = Result<std::unique_ptr<io::PacketIo>>;
  const auto pcap = [](std::unique_ptr<io::PacketIo> inner, std::size_t end) -> Created {
    return std::make_unique<PcapWithFile>(std::move(inner), std::make_unique<TemporaryPcap>(end));
  };
  const auto trace = [](std::unique_ptr<io::PacketIo> inner, std::size_t) -> Created {
    return std::make_unique<io::TraceIo>(std::move(inner));
  };
  return {
      variant(plain, "faulty_without_faults", faulty("")),
      variant(plain, "faulty_held", faulty("delay=1ns")),  // all packets are copied, and leave in the next call
      variant(plain, "faulty_out_of_scope", faulty("loss=1,delay=1s,path=254")),
      variant(plain, "pcap", pcap),
      variant(plain, "trace", trace),
  };
}

}  // namespace clustar::transport::conformance
