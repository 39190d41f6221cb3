// A host with one IPv4 address on one port of DPDK: finds its neighbours, answers ARP and ping where the kernel does
// not, and gives each datagram to the end that has its port. All ends of a process on the same device share it.
//
// Thread rule: open() any thread; whatever says "locked" with lock() held, by which ends of several threads take turns.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "transport/base/system_clock.h"
#include "transport/io/dpdk/core/neighbours.h"
#include "transport/io/dpdk/core/subnet.h"
#include "transport/io/dpdk/ethernet_device.h"
#include "transport/io/dpdk/inbox.h"
#include "transport/io/dpdk/kernel_side.h"

namespace clustar::transport::io::dpdk {

struct HostCounters {
  std::uint64_t frames_received = 0;
  std::uint64_t frames_sent = 0;
  std::uint64_t asked = 0;     // ARP requests sent
  std::uint64_t answered = 0;  // ARP replies and echo replies sent
  // Lost, by cause.
  std::uint64_t unreachable = 0;  // sent, and nobody says that he has the address
  std::uint64_t foreign = 0;      // neither for us nor a protocol of ours
  std::uint64_t fragments = 0;
  std::uint64_t damaged = 0;  // lengths or checksums
  std::uint64_t unbound = 0;  // for a port that no end has
  std::uint64_t full = 0;     // for an end that reads too slowly
};

struct SendTo {
  Neighbours::Id way = 0;
  Ipv4 ip = 0;
  std::uint16_t from_port = 0;
  std::uint16_t to_port = 0;
  std::uint8_t tos = 0;
};

class Host {
 public:
  static constexpr std::uint8_t kMostPaths = 32;

  // The one that is open, or a new one. `subnet`: of the device.
  static Result<std::shared_ptr<Host>> open(const DeviceSpec& spec, const Subnet& subnet, const PortOptions& options);
  ~Host();
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  const Subnet& subnet() const { return subnet_; }
  const EthernetDevice& device() const { return *device_; }
  std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }

  // Locked. `paths` ports in a row for what comes for `inbox`; the first of them. Error: all are taken.
  Result<std::uint16_t> bind(Inbox& inbox, std::uint8_t paths);
  void unbind(std::uint16_t first);
  // Locked. Error kUnavailable: no route.
  Result<Neighbours::Id> find_way(Ipv4 to);
  void leave_way(Neighbours::Id way);
  bool knows(Neighbours::Id way) const { return neighbours_.mac(way) != nullptr; }

  // Locked. It waits for no answer, and goes to no end of this process.
  bool leaves_at_once(const SendTo& to) const { return to.ip != subnet_.address && knows(to.way); }
  // Locked. A datagram's frame with `payload` bytes behind kUdpHeaderBytes; null: no buffer is free.
  Buffer take(std::size_t payload) { return device_->take(kUdpHeaderBytes + payload); }
  // Locked. The payload is filled in, or behind the frame where leaves_at_once(). It leaves with the next flush(), or
  // waits until the neighbour has answered.
  void send(Buffer frame, const SendTo& to);
  // Locked. False: there is no room.
  bool flush();
  void drop_waiting() { device_->drop_waiting(); }  // of all ends
  std::size_t waiting_bytes() const { return device_->waiting_bytes(); }
  // Locked. Reads what has come, for whichever end it is, and does what is due. Ends but that of `reader` are woken.
  void poll(const Inbox* reader);
  // The device's, and one that tells of ARP where the kernel has it; none where the device has none.
  std::vector<int> ready_fds() const;
  // Locked. Until something is due that no descriptor tells of.
  Duration time_left() const;
  const HostCounters& counters() const { return counters_; }

 private:
  static constexpr std::uint16_t kPortsApart = kMostPaths;
  static constexpr std::uint16_t kFirstPort = 16384;
  struct Binding {
    Inbox* inbox = nullptr;
    std::uint8_t paths = 0;
    std::optional<HeldPorts> held{};
  };

  Host(std::string name, const Subnet& subnet, bool kernel_owns, std::unique_ptr<EthernetDevice> device,
       std::uint32_t random)
      : name_(std::move(name)),
        subnet_(subnet),
        kernel_owns_(kernel_owns),
        device_(std::move(device)),
        neighbours_({}),
        random_(random) {}

  void on_frame(Buffer frame, TimePoint now, bool is_own);
  void on_udp(Buffer frame, const ParsedFrame& parsed, TimePoint now, bool is_own);
  void on_arp(const Arp& arp, TimePoint now);
  void hear_arp(TimePoint now);
  void on_echo(const ParsedFrame& request);
  void do_due(TimePoint now);
  void ask();
  // Whose frames wait for a MAC.
  void release_waiting(Neighbours::Id way);
  void drop_waiting(Neighbours::Id way);
  void address(rte_mbuf& frame, const Mac& mac) const;
  bool is_sound(const ParsedFrame& parsed, const rte_mbuf& frame) const;

  const std::string name_;
  const Subnet subnet_;
  const bool kernel_owns_;
  std::unique_ptr<EthernetDevice> device_;
  SystemClock clock_;
  std::mutex mutex_;
  const Inbox* reader_ = nullptr;  // of the end that polls
  FileDescriptor arp_{};           // where the kernel has ARP's packets: a copy of them
  TimePoint arp_due_{};
  Neighbours neighbours_;
  struct WaitingFrame {
    Buffer frame;
    std::size_t flow = 0;
  };
  std::unordered_map<Neighbours::Id, std::vector<WaitingFrame>> waiting_;
  std::array<Binding, 65536 / kPortsApart> bindings_{};  // by port / kPortsApart
  const std::uint32_t random_;                           // where the search for ports begins
  HostCounters counters_;
};

}  // namespace clustar::transport::io::dpdk
