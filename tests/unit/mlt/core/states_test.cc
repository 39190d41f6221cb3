// The tables of mlt/core/states.h: sound in themselves, and drawn in docs/mlt-states.md.
#include "mlt/core/states.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <utility>

namespace clustar::mlt {
namespace {

template <class State>
std::string diagram(const std::string& title, State first) {
  std::string text = "## " + title + "\n\n```mermaid\nstateDiagram-v2\n  [*] --> " + std::string(name(first)) + "\n";
  for (const Transition<State>& row : transitions(first)) {
    text +=
        "  " + std::string(name(row.from)) + " --> " + std::string(name(row.to)) + ": " + std::string(row.why) + "\n";
  }
  return text + "```\n\n";
}

std::string document() {
  return "# States of the MLT core\n\n"
         "Drawn from the tables of [states.h](../mlt/core/states.h), which `set_state()` checks in debug builds; a "
         "test\n"
         "(`tests/unit/mlt/core/states_test.cc`) compares this page with them and says how to renew it. What each "
         "state "
         "means is\n"
         "written there; what the packets are, in [wire.h](../mlt/core/wire.h).\n\n" +
         diagram("A message at its sender", SendState::kFree) +
         diagram("A message at its receiver", ReceiveState::kUnseen) +
         diagram("A receiving connection's part of the line", ShareState::kIdle) + diagram("A path", PathState::kGood);
}

TEST(MltStates, TheDocumentShowsTheTables) {
  std::ifstream in(std::string(CLUSTAR_SOURCE_DIR) + "/docs/mlt-states.md");
  const std::string written((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  if (written != document()) std::ofstream("mlt-states.md") << document();
  EXPECT_EQ(written, document()) << "docs/mlt-states.md is out of date: copy mlt-states.md from this test's folder";
}

template <class State>
void check(State first, int count) {
  std::set<State> reached{first};
  std::set<std::pair<State, State>> seen;
  for (const Transition<State>& row : transitions(first)) {
    EXPECT_TRUE(seen.insert({row.from, row.to}).second) << name(row.from) << " to " << name(row.to) << " twice";
    EXPECT_NE(row.from, row.to);
    EXPECT_FALSE(row.why.empty());
  }
  for (int round = 0; round < count; ++round) {
    for (const Transition<State>& row : transitions(first)) {
      if (reached.contains(row.from)) reached.insert(row.to);
    }
  }
  EXPECT_EQ(reached.size(), static_cast<std::size_t>(count)) << "a state that is never reached";
}

TEST(MltStates, EachIsReachedAndNoTransitionIsNamedTwice) {
  check(SendState::kFree, 6);
  check(ReceiveState::kUnseen, 7);
  check(ShareState::kIdle, 5);
  check(PathState::kGood, 3);
}

TEST(MltStates, WhatIsNotInTheTableMayNotFollow) {
  EXPECT_TRUE(may_follow(SendState::kSending, SendState::kSent));
  EXPECT_FALSE(may_follow(SendState::kOver, SendState::kSending));
  EXPECT_FALSE(may_follow(ReceiveState::kStaging, ReceiveState::kPartial)) << "no receive, no decision";
  EXPECT_FALSE(may_follow(PathState::kSidelined, PathState::kGood)) << "only by a probe";
}

}  // namespace
}  // namespace clustar::mlt
