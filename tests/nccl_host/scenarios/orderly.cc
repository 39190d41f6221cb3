#include "tests/nccl_host/scenarios/orderly.h"

#include <memory>
#include <thread>
#include <vector>

#include "tests/nccl_host/scenarios/traffic.h"

namespace nccl_host {
namespace {

constexpr int kRounds = 5;

void OneRound(Traffic& traffic, int round) {
  Require(traffic.AllReduce(round), "ncclAllReduce");
  traffic.Finish();
}

// By colour of parity, in reverse order.
void SplitBy(Context& context, ncclComm_t parent, bool share, bool last_without_colour) {
  const bool without = last_without_colour && context.rank == context.ranks() - 1;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.splitShare = share ? 1 : 0;
  ncclComm_t child = nullptr;
  Require(ncclCommSplit(parent, without ? NCCL_SPLIT_NOCOLOR : context.rank % 2, -context.rank, &child, &config),
          "ncclCommSplit");
  RequireThat(without == (child == nullptr), "ncclCommSplit: a communicator without a colour, or none with one");
  Traffic world(context, parent, context.count());
  if (!child) {
    for (int round = 0; round < kRounds; ++round) OneRound(world, round);
    return;
  }
  int members = 0;
  int expected = 0;
  for (int rank = context.rank % 2; rank < context.ranks(); rank += 2) {
    if (last_without_colour && rank == context.ranks() - 1) continue;
    ++members;
    expected += rank > context.rank;
  }
  int count = 0;
  int rank = -1;
  Require(ncclCommCount(child, &count), "ncclCommCount");
  Require(ncclCommUserRank(child, &rank), "ncclCommUserRank");
  RequireThat(count == members && rank == expected,
              "ncclCommSplit: rank or count of the child is not as colours and keys say");
  {
    Traffic part(context, child, context.count());
    for (int round = 0; round < kRounds; ++round) {
      OneRound(part, round);
      OneRound(world, round);
    }
  }
  Require(ncclCommDestroy(child), "ncclCommDestroy");
}

}  // namespace

void Split(Context& context) {
  const ncclComm_t parent = context.NewCommunicator();
  for (const bool share : {false, true}) {
    for (const bool without : {false, true}) SplitBy(context, parent, share, without);
  }
  Require(ncclCommDestroy(parent), "ncclCommDestroy");
}

void Communicators(Context& context) {
  std::vector<ncclComm_t> all;
  std::vector<std::unique_ptr<Traffic>> traffic;
  for (int i = 0; i < 3; ++i) {
    all.push_back(context.NewCommunicator());
    traffic.push_back(std::make_unique<Traffic>(context, all.back(), context.count()));
  }
  for (int round = 0; round < kRounds; ++round) {
    for (auto& each : traffic) OneRound(*each, round);
  }
  for (int round = 0; round < kRounds; ++round) {
    for (auto& each : traffic) Require(each->AllReduce(round), "ncclAllReduce");
    for (auto& each : traffic) each->Finish();
  }
  {
    std::vector<std::jthread> threads;
    for (auto& each : traffic)
      threads.emplace_back([&each] {
        for (int round = 0; round < kRounds; ++round) OneRound(*each, round);
      });
  }
  traffic.clear();
  // Not in the order in which they were made.
  for (const int i : {1, 0, 2}) Require(ncclCommDestroy(all[static_cast<size_t>(i)]), "ncclCommDestroy");
}

void Groups(Context& context) {
  const ncclComm_t first = context.NewCommunicator();
  const ncclComm_t second = context.NewCommunicator();
  {
    std::vector<std::unique_ptr<Traffic>> traffic;
    for (const ncclComm_t communicator : {first, first, first, second, second})
      traffic.push_back(std::make_unique<Traffic>(context, communicator, context.count()));
    for (int round = 0; round < kRounds; ++round) {
      Require(ncclGroupStart(), "ncclGroupStart");
      for (auto& each : traffic) Require(each->AllReduce(round), "ncclAllReduce");
      Require(ncclGroupEnd(), "ncclGroupEnd");
      for (auto& each : traffic) each->Finish();
      traffic[0]->AllToAll(round, 1);
      traffic[3]->AllToAll(round, 3);
    }
  }
  Require(ncclCommDestroy(first), "ncclCommDestroy");
  Require(ncclCommDestroy(second), "ncclCommDestroy");
}

void NonBlocking(Context& context) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t communicator = nullptr;
  const ncclResult_t begun =
      ncclCommInitRankConfig(&communicator, context.ranks(), context.NextId(), context.rank, &config);
  RequireThat(communicator != nullptr, "ncclCommInitRankConfig: no communicator to poll");
  RequireDone(communicator, begun, "ncclCommInitRankConfig");
  {
    Traffic traffic(context, communicator, context.count());
    for (int round = 0; round < kRounds; ++round) {
      RequireDone(communicator, traffic.AllReduce(round), "ncclAllReduce");
      traffic.Finish();
    }
  }
  RequireDone(communicator, ncclCommFinalize(communicator), "ncclCommFinalize");
  Require(ncclCommDestroy(communicator), "ncclCommDestroy");
}

void Scalable(Context& context) {
  ncclUniqueId ids[2] = {context.NextId(), context.NextId()};
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclComm_t communicator = nullptr;
  Require(ncclCommInitRankScalable(&communicator, context.ranks(), context.rank, 2, ids, &config),
          "ncclCommInitRankScalable");
  {
    Traffic traffic(context, communicator, context.count());
    for (int round = 0; round < kRounds; ++round) OneRound(traffic, round);
  }
  Require(ncclCommDestroy(communicator), "ncclCommDestroy");
}

}  // namespace nccl_host
