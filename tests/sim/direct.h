// Two MLT endpoints and a cable of 5 us between them, which loses what a test tells it to.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <optional>
#include <variant>
#include <vector>

#include "mlt/core/endpoint.h"

namespace clustar::mlt::test {

// 10 % of a collective of 100 MiB over four ranks.
inline SendTerms tolerant_terms() {
  SendTerms terms;
  terms.tolerant = true;
  terms.ranks = terms.edges = 4;
  terms.collective_bytes = 100 << 20;
  terms.tolerance_ppm = 100'000;
  return terms;
}

inline Options opted_in(Options options = {}) {
  options.max_tolerance_ppm = 1'000'000;
  return options;
}

// Opted in, with the driver's times for kernel UDP.
inline Options as_for_a_kernel() {
  Options options = opted_in();
  options.base_rtt = std::chrono::microseconds(100);
  options.probe_floor = std::chrono::milliseconds(2);
  options.ask_cap = std::chrono::milliseconds(4);
  return options;
}

class Direct {
 public:
  explicit Direct(const Options& given = opted_in(), const Endpoint::Joint& of_from = {},
                  const Endpoint::Joint& of_to = {})
      : options(given), from(options, 1, of_from), to(options, 2, of_to) {
    sender = from.open_sender(2, kSecret, now);
    receiver = to.open_receiver(1, kSecret, now);
  }
  ~Direct() { EXPECT_TRUE(from.is_consistent() && to.is_consistent()); }

  bool send(std::uint32_t bytes, std::int32_t tag = 7, const SendTerms& terms = {}) {
    const bool sent_it = from.send(sender, bytes, tag, terms, now).has_value();
    pump();
    return sent_it;
  }
  bool post(std::uint32_t bytes, std::int32_t tag = 7) {
    const bool posted = to.post(receiver, tag, bytes, now).has_value();
    pump();
    return posted;
  }
  void run(Duration time) {
    const TimePoint until = now + time;
    while (true) {
      TimePoint next = std::min(from.next_timeout(), to.next_timeout());
      for (const auto* cable : {&forth, &back}) {
        if (!cable->empty()) next = std::min(next, cable->front().at);
      }
      if (!held.empty()) next = std::min(next, now + std::chrono::microseconds(100));
      if (next > until) break;
      now = std::max(next, now);
      let_go();
      deliver(forth, to);
      deliver(back, from);
      from.on_timeout(now);
      to.on_timeout(now);
      pump();
    }
    now = until;
  }
  // Runs until so many messages were received; how long it took.
  Duration run_until_received(int count) {
    const TimePoint begin = now;
    for (int i = 0; i < 100'000 && received < count; ++i) run(std::chrono::microseconds(1));
    EXPECT_GE(received, count);
    return now - begin;
  }

  static constexpr std::uint64_t kSecret = 99;
  static constexpr Duration kOneWay = std::chrono::microseconds(5);
  Options options;
  TimePoint now{std::chrono::seconds(1)};
  Endpoint from;
  Endpoint to;
  Endpoint::ConnectionId sender = 0;
  Endpoint::ConnectionId receiver = 0;
  int sent = 0;
  int received = 0;
  int truncated = 0;
  std::uint64_t rebuilt = 0;                              // packets
  std::uint64_t missing = 0;                              // bytes
  std::uint64_t sent_missing = 0;                         // packets, as the sender has it
  std::vector<OpenRecord> opened;                         // of each message that was received
  std::vector<Transmit> data;                             // all data packets that left
  std::function<bool(const DataHeader&)> holds = {};      // on the way forth: until it no longer does
  std::function<bool(const DataHeader&)> loses = {};      // on the way forth
  std::function<bool(const Packet&)> loses_control = {};  // on the way forth or back

 private:
  struct Flying {
    TimePoint at;
    std::vector<std::byte> header;
    std::uint32_t payload;
  };
  void let_go() {
    for (std::size_t i = 0; i < held.size();) {
      const auto packet = parse(held[i].header);
      if (holds(std::get<DataHeader>(*packet))) {
        ++i;
        continue;
      }
      held[i].at = now + kOneWay;
      forth.push_back(std::move(held[i]));
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  void deliver(std::deque<Flying>& cable, Endpoint& endpoint) {
    while (!cable.empty() && cable.front().at <= now) {
      const Flying packet = std::move(cable.front());
      cable.pop_front();
      endpoint.on_packet(packet.header, packet.payload, false, now);
      events();
    }
  }
  void pump() {
    events();
    emit(from, forth);
    emit(to, back);
    events();
  }
  void emit(Endpoint& endpoint, std::deque<Flying>& cable) {
    while (const auto out = endpoint.poll_transmit(now)) {
      const Packet& packet = out->transmit.header;
      const auto* header = std::get_if<DataHeader>(&packet);
      if (header != nullptr) data.push_back(out->transmit);
      const bool lost = header != nullptr ? loses && loses(*header) : loses_control && loses_control(packet);
      if (lost) continue;
      std::array<std::byte, kMaxHeader> bytes{};
      const std::size_t size = serialize(packet, bytes);
      const auto end = bytes.begin() + static_cast<std::ptrdiff_t>(size);
      std::deque<Flying>& to_queue = header != nullptr && holds && holds(*header) ? held : cable;
      to_queue.push_back({now + kOneWay, {bytes.begin(), end}, out->transmit.length});
    }
  }
  void events() {
    while (const auto event = to.poll_event()) {
      if (const auto* unstage = std::get_if<Endpoint::Unstage>(&event->what)) {
        to.receiver(receiver).unstaged(unstage->receive);
      } else if (std::holds_alternative<Endpoint::Rebuildable>(event->what)) {
        while (const auto what = to.receiver(receiver).poll_rebuild()) {
          rebuilt += what->count;
          to.rebuilt(receiver, *what, now);
        }
      } else if (const auto* done = std::get_if<ReceiveDone>(&event->what)) {
        ++received;
        truncated += done->truncated ? 1 : 0;
        missing += done->missing;
        opened.push_back(to.receiver(receiver).opened(done->receive));
        to.release(receiver, done->receive);
      }
    }
    while (const auto event = from.poll_event()) {
      if (const auto* done = std::get_if<SendDone>(&event->what)) {
        ++sent;
        sent_missing += done->missing_packets;
      }
    }
  }

  std::deque<Flying> forth;
  std::deque<Flying> back;
  std::deque<Flying> held;
};

}  // namespace clustar::mlt::test
