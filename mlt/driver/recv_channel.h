// Receiving end of a connection.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "mlt/driver/connection.h"
#include "transport/message/receive_groups.h"
#include "transport/message/request_pool.h"

namespace clustar::mlt::driver {

class MltRecvChannel final : public transport::RecvChannel, public Connection {
 public:
  // `shown`: the peer, in errors.
  MltRecvChannel(std::shared_ptr<Engine> engine, net::Socket control, transport::PeerInfo peer, std::string shown);
  ~MltRecvChannel() override;

  Result<std::unique_ptr<transport::Mr>> reg_mr(const gdr::MemoryRef& memory) override;
  Result<transport::Request*> recv(std::span<const transport::RecvPart> parts) override;
  Result<transport::Request*> flush(std::span<const transport::RecvPart> parts) override;

  void submit(std::uint32_t index, TimePoint now) override;
  void place(const Placement& placement, std::span<const std::byte> payload, bool placed) override;
  void on_event(const Endpoint::Event& event, TimePoint now) override;
  void on_written(std::uint32_t request) override;

 private:
  static constexpr std::uint32_t kMaxGroups = transport::ReceiveGroups::kMost;
  static constexpr std::uint32_t kMaxFlushes = 32;  // at a time; a receive whose flush is not done is not over for NCCL
  static constexpr std::uint32_t kFlush = 1u << 31;  // a request's index with it is that of a flush

  struct Part {
    const transport::Mr* mr = nullptr;
    std::byte* target = nullptr;  // of memory of a device: never looked at, and known to be filled by its address only
    std::size_t offset = 0;       // of the target in `mr`
    std::size_t length = 0;
    int tag = 0;
    bool device = false;
    io::PlacementHint landing{};
  };
  // One request: receives that complete together.
  struct Group final : transport::Request {
    Result<transport::Progress> test() override { return channel->test(*this); }

    MltRecvChannel* channel = nullptr;
    std::uint32_t index = 0;
    std::atomic<bool> done{true};  // set with the engine's lock held
    bool submitted = false;        // guarded by the engine's lock, as the counts below
    std::uint32_t open = 0;        // parts that are not done
    std::size_t count = 0;
    std::array<Part, transport::kMaxRecvParts> parts{};
    std::array<std::size_t, transport::kMaxRecvParts> sizes{};
    std::array<transport::ReceivedMessage, transport::kMaxRecvParts> messages{};
    std::vector<transport::MissingRange> missing;
  };
  struct FlushRequest final : transport::Request {
    Result<transport::Progress> test() override { return channel->test(*this); }

    MltRecvChannel* channel = nullptr;
    std::uint32_t index = 0;
    std::atomic<bool> done{true};  // as of a Group
    bool submitted = false;
    std::size_t count = 0;
    std::array<transport::RecvPart, transport::kMaxRecvParts> parts{};
  };
  struct PartRef {
    std::uint32_t group = 0;
    std::uint32_t part = 0;
  };

  Result<transport::Progress> test(Group& group);
  Result<transport::Progress> test(FlushRequest& flush);
  // True: it is done. Error: the channel's.
  Result<bool> poke(const std::atomic<bool>& done);
  void submit_flush(FlushRequest& flush);
  io::MemorySlice slice(const Part& part, std::size_t offset, std::size_t length) const;
  void end(Group& group);
  void expect(std::uint32_t receive, Part& part);
  void copy(std::uint32_t receive, std::size_t offset, std::span<const std::byte> bytes);
  bool is_there(const Placement& placement, std::span<const std::byte> payload) const;
  std::span<std::byte> staging(std::uint32_t buffer);
  std::span<std::byte> parity(std::uint32_t buffer);
  void on_unstage(std::uint32_t receive);
  void on_rebuildable(TimePoint now);
  void on_done(const ReceiveDone& done);
  std::vector<std::byte> last_words();
  bool hear_last_words();
  bool offer_last_words(std::size_t from);
  void fail_if_waiting();
  void read_control() override;
  std::uint64_t progress() const override;
  std::string waiting() const override;
  bool uses(const transport::Mr& mr) const override;

  transport::RequestPool<Group> groups_;
  transport::RequestPool<FlushRequest> flushes_;
  // The following with the engine's lock held.
  std::vector<PartRef> part_of_;  // by the core's receive
  std::vector<std::unique_ptr<std::byte[]>> staging_;
  std::vector<std::unique_ptr<std::byte[]>> parity_;
  std::vector<std::byte> control_in_;  // begins with what is not whole yet
  std::vector<std::byte> words_;       // what the sender said before it closed, in clear
  std::uint64_t finished_ = 0;
  std::size_t placed_ =
      0;  // bytes copied and not counted yet: an atomic sum per packet would wait for the packet's stores
};

}  // namespace clustar::mlt::driver
