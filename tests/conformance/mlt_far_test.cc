// On a long path sends of long messages are done when they were copied, as those of kernel TCP are.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>

#include "mlt/driver/last_words.h"
#include "tests/conformance/mlt_loss_bed.h"
#include "transport/base/copies.h"

namespace clustar::transport::conformance {
namespace {

using std::chrono::milliseconds;

class MltFar : public MltLossBed {
 protected:
  std::unique_ptr<Transport> create(const Wrap& wrap = {}) {
    return MltBed::create({.wrap = wrap, .adjust = [](mlt::Options& options) {
                             options.base_rtt = options.initial_rtt = milliseconds(2);
                           }});
  }
  Wrap muted() {
    return [this](std::unique_ptr<io::PacketIo> inner) { return std::make_unique<MuteIo>(std::move(inner), mute_); };
  }
  // Nothing that `from` sends afterwards leaves.
  Connection connect_and_mute(Transport& from, Transport& to) {
    mute_ = false;
    Connection connection = connect(from, to);
    mute_ = true;
    return connection;
  }
  // True: none of them is done within 30 ms.
  static bool none_ends(const std::vector<Request*>& requests) {
    const auto end = std::chrono::steady_clock::now() + milliseconds(30);
    while (std::chrono::steady_clock::now() < end) {
      for (Request* request : requests) {
        if (request->test().value().done) return false;
      }
    }
    return true;
  }

  std::atomic<bool> mute_{false};
};

TEST_F(MltFar, WhoClosesRepeatsWhatWasDoneAndDidNotArrive) {
  const auto here = create(muted());
  const auto there = create();
  std::uint64_t sent_bytes = 0;
  for (const bool posted_before : {true, false}) {
    Connection connection = connect_and_mute(*here, *there);
    constexpr std::size_t kCount = 20;
    constexpr std::size_t kSize = 100'000;
    SendBuffer from(*connection.send, kCount * kSize, 7);
    RecvBuffer to(*connection.recv, kCount * kSize);
    std::vector<Request*> receives, sends;
    const auto post = [&] {
      for (std::size_t i = 0; i < kCount; ++i) {
        receives.push_back(must_recv(*connection.recv, {{to.mr.get(), i * kSize, kSize, static_cast<int>(i % 3)}}));
      }
    };
    if (posted_before) post();
    for (std::size_t i = 0; i < kCount; ++i) {
      sends.push_back(must_send(*connection.send, *from.mr, i * kSize, kSize, static_cast<int>(i % 3)));
    }
    finish(sends);
    const std::vector<std::byte> sent = from.bytes;
    from.mr.reset();  // nothing reads it any more
    std::ranges::fill(from.bytes, std::byte{0xdd});
    std::thread closer([&] { connection.send.reset(); });  // its kernel may need the receiver to read
    if (!posted_before) post();
    finish(receives);
    closer.join();
    sent_bytes += kCount * kSize;
    EXPECT_EQ(here->counters().devices.front().total.sent.bytes, sent_bytes) << "what was done counts as sent";
    EXPECT_EQ(sent, to.bytes);
  }
}

// Of those that come before their receives more than can be staged are dropped, and offered again when the peer is
// gone.
TEST_F(MltFar, WordsThatFoundNoPlaceAreNotLost) {
  const auto here = create(muted());
  const auto there = create();
  for (int round = 0; round < 20; ++round) {
    Connection connection = connect_and_mute(*here, *there);
    constexpr std::size_t kCount = 150;
    constexpr std::size_t kSize = 20'000;
    SendBuffer from(*connection.send, kCount * kSize, 7);
    RecvBuffer to(*connection.recv, kCount * kSize);
    std::vector<Request*> sends, receives;
    for (std::size_t i = 0; i < kCount; ++i) sends.push_back(must_send(*connection.send, *from.mr, i * kSize, kSize));
    finish(sends);
    std::thread closer([&] { connection.send.reset(); });
    for (std::size_t done = 0; done < kCount;) {
      receives.clear();
      for (std::size_t i = 0; i < 30; ++i, ++done) {
        receives.push_back(must_recv(*connection.recv, {{to.mr.get(), done * kSize, kSize, 0}}));
      }
      finish(receives);
    }
    closer.join();
    ASSERT_EQ(from.bytes, to.bytes) << round;
  }
}

TEST_F(MltFar, WhatDoesNotFitIsSentFromWhereItLies) {
  const auto here = create(muted());
  const auto there = create();
  Connection connection = connect(*here, *there);
  constexpr std::size_t kSize = mlt::driver::kFarBufferedBytes;
  constexpr std::size_t kFit = mlt::driver::kFarBuffer / kSize;
  constexpr std::size_t kCount = kFit + 3;
  SendBuffer from(*connection.send, kCount * kSize, 7);
  RecvBuffer to(*connection.recv, kCount * kSize);
  mute_ = true;
  std::vector<Request*> copied, others, receives;
  for (std::size_t i = 0; i < kCount; ++i) {
    (i < kFit ? copied : others).push_back(must_send(*connection.send, *from.mr, i * kSize, kSize));
  }
  finish(copied);
  EXPECT_TRUE(none_ends(others));
  mute_ = false;
  for (std::size_t i = 0; i < kCount; ++i) {
    receives.push_back(must_recv(*connection.recv, {{to.mr.get(), i * kSize, kSize, 0}}));
  }
  std::vector<Request*> rest = others;
  rest.insert(rest.end(), receives.begin(), receives.end());
  finish(rest);
  EXPECT_EQ(from.bytes, to.bytes);
}

TEST_F(MltFar, WhoMayLoseLearnsWhatIsMissing) {
  const auto here = create(muted());
  const auto there = create();
  Connection connection = connect(*here, *there, kOptedIn);
  SendBuffer from(*connection.send, kMiB / 4, 7);
  RecvBuffer to(*connection.recv, kMiB / 4);
  mute_ = true;
  Request* send = must_send(*connection.send, *from.mr, 0, kMiB / 4, 0, {.loss = one_percent_of(kMiB / 4)});
  EXPECT_TRUE(none_ends({send}));
  mute_ = false;
  finish({send, must_recv(*connection.recv, {{to.mr.get(), 0, kMiB / 4, 0}})});
}

// Of all lengths, and acknowledged in no order: memory of one must not be another's.
TEST_F(MltFar, CopiesThatComeFreeInAnyOrderKeepTheirBytes) {
  const auto here = create(faults("loss=0.02"));
  const auto there = create(faults("loss=0.02"));
  Connection connection = connect(*here, *there);
  std::mt19937 random(11);
  constexpr std::size_t kCount = 24;
  constexpr std::size_t kRoom = 600'000;
  SendBuffer from(*connection.send, kCount * kRoom, 7);
  RecvBuffer to(*connection.recv, kCount * kRoom);
  const std::uint64_t before = copied_bytes(Copy::kSendBuffer);
  for (int round = 0; round < 12; ++round) {
    std::vector<Request*> requests;
    std::vector<std::size_t> sizes;
    for (std::size_t i = 0; i < kCount; ++i) {
      sizes.push_back(random() % (random() % 4 == 0 ? kRoom : 60'000));
      requests.push_back(must_recv(*connection.recv, {{to.mr.get(), i * kRoom, sizes[i], static_cast<int>(i % 5)}}));
    }
    for (std::size_t i = 0; i < kCount; ++i) {
      requests.push_back(must_send(*connection.send, *from.mr, i * kRoom, sizes[i], static_cast<int>(i % 5)));
    }
    finish(requests);
    for (std::size_t i = 0; i < kCount; ++i) {
      ASSERT_TRUE(std::ranges::equal(std::span(from.bytes).subspan(i * kRoom, sizes[i]),
                                     std::span(to.bytes).subspan(i * kRoom, sizes[i])))
          << round << " " << i;
    }
  }
  EXPECT_GT(copied_bytes(Copy::kSendBuffer) - before, 10 * kMiB);
}

TEST_F(MltFar, NearbyNothingLongIsCopied) {
  const auto transport = MltBed::create({});
  Connection connection = connect(*transport, *transport);
  SendBuffer from(*connection.send, 100'000, 7);
  RecvBuffer to(*connection.recv, 100'000);
  const std::uint64_t before = copied_bytes(Copy::kSendBuffer);
  finish(
      {must_recv(*connection.recv, {{to.mr.get(), 0, 100'000, 0}}), must_send(*connection.send, *from.mr, 0, 100'000)});
  EXPECT_EQ(copied_bytes(Copy::kSendBuffer), before);
}

}  // namespace
}  // namespace clustar::transport::conformance
