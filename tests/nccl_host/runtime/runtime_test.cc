#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <vector>

#include "tests/nccl_host/runtime/event.h"
#include "tests/nccl_host/runtime/memory.h"
#include "tests/nccl_host/runtime/stream.h"

namespace nccl_host {
namespace {

TEST(Stream, WorksInOrderOfAdding) {
  std::vector<int> seen;
  Stream stream;
  for (int i = 0; i < 100; ++i) stream.Add([&seen, i] { seen.push_back(i); });
  stream.Synchronize();
  ASSERT_EQ(seen.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(seen[static_cast<size_t>(i)], i);
}

TEST(Stream, AddDoesNotWaitForTheWork) {
  std::promise<void> go;
  Stream stream;
  const uint64_t number = stream.Add([future = go.get_future().share()] { future.wait(); });
  EXPECT_FALSE(stream.Done(number));
  EXPECT_FALSE(stream.Idle());
  go.set_value();
  stream.Wait(number);
  EXPECT_TRUE(stream.Idle());
}

TEST(Stream, EndsWhatWasAddedWhenDestroyed) {
  int done = 0;
  {
    Stream stream;
    for (int i = 0; i < 10; ++i) stream.Add([&done] { ++done; });
  }
  EXPECT_EQ(done, 10);
}

TEST(Event, NeverRecordedIsDone) {
  Event event;
  EXPECT_TRUE(event.Done());
  event.Synchronize();
}

TEST(Event, IsDoneWhenItsPointInTheStreamIs) {
  std::promise<void> go;
  const auto stream = std::make_shared<Stream>();
  stream->Add([future = go.get_future().share()] { future.wait(); });
  Event event;
  event.Record(stream);
  EXPECT_FALSE(event.Done());
  go.set_value();
  event.Synchronize();
  EXPECT_TRUE(event.Done());
}

TEST(Event, HoldsBackAnotherStream) {
  std::promise<void> go;
  const auto first = std::make_shared<Stream>();
  Stream second;
  bool first_done = false;
  bool seen = false;
  first->Add([&first_done, future = go.get_future().share()] {
    future.wait();
    first_done = true;
  });
  Event event;
  event.Record(first);
  event.HoldBack(second);
  second.Add([&] { seen = first_done; });
  go.set_value();
  second.Synchronize();
  EXPECT_TRUE(seen);
}

TEST(Event, OfTheSameStreamHoldsNothingBack) {
  const auto stream = std::make_shared<Stream>();
  Event event;
  event.Record(stream);
  event.HoldBack(*stream);
  stream->Synchronize();
}

TEST(Memory, FindsTheRangeOfAnAddressInside) {
  Memory memory;
  auto* begin = static_cast<char*>(memory.Allocate(100, MemoryKind::kDevice));
  ASSERT_NE(begin, nullptr);
  EXPECT_EQ(begin[99], 0);
  const auto range = memory.Find(begin + 99);
  ASSERT_TRUE(range);
  EXPECT_EQ(range->begin, reinterpret_cast<uintptr_t>(begin));
  EXPECT_EQ(range->kind, MemoryKind::kDevice);
  EXPECT_FALSE(memory.Find(begin + 100));
  EXPECT_FALSE(memory.Find(begin - 1));
  EXPECT_TRUE(memory.Free(begin));
  EXPECT_FALSE(memory.Find(begin));
  EXPECT_FALSE(memory.Free(begin));
}

TEST(Memory, RegisteredIsUnregisteredAndNotFreed) {
  Memory memory;
  std::vector<char> own(64);
  EXPECT_TRUE(memory.Register(own.data(), own.size()));
  EXPECT_FALSE(memory.Register(own.data(), own.size()));
  EXPECT_FALSE(memory.Free(own.data()));
  EXPECT_TRUE(memory.Unregister(own.data()));
  EXPECT_FALSE(memory.Unregister(own.data()));
  EXPECT_EQ(memory.count(), 0u);
}

}  // namespace
}  // namespace nccl_host
