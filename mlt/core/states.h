// States of messages, paths and connections, and which follow which. The tables are what set_state() checks and what
// docs/mlt-states.md is drawn from (a test compares them).
#pragma once

#include <array>
#include <cassert>
#include <cstdint>
#include <span>
#include <string_view>

namespace clustar::mlt {

// A message at its sender.
enum class SendState : std::uint8_t {
  kFree,     // no message
  kOffered,  // no receive is known to be posted: only unscheduled bytes may go
  kSending,  // the receive is posted: credit decides
  kSent,     // every packet was sent once
  kStored,   // the receiver holds all of it and waits for the receive: the caller's memory is free again
  kOver,     // complete, or ended with packets missing
};

// A message at its receiver.
enum class ReceiveState : std::uint8_t {
  kUnseen,     // nothing came
  kStaging,    // came before its receive, which is not posted or not known to be its own
  kArriving,   // has its receive
  kStored,     // complete, without a receive
  kComplete,   // complete, in its receive
  kPartial,    // ended with packets missing
  kTruncated,  // longer than its receive: ended, nothing placed
};

// A receiving connection's part of the line (credit.h).
enum class ShareState : std::uint8_t {
  kIdle,      // wants nothing
  kPromised,  // receives are posted, nothing came yet
  kWaiting,   // data or a probe came; others have the line
  kServed,    // has its share
  kSilent,    // had it, and nothing came for long: others may have it
};

// A path (paths.h).
enum class PathState : std::uint8_t {
  kGood,
  kSidelined,  // lossy or silent: nothing goes there
  kProbing,    // one burst goes there
};

template <class State>
struct Transition {
  State from;
  State to;
  std::string_view why;
};

inline constexpr std::array kSendTransitions = {
    Transition<SendState>{SendState::kFree, SendState::kOffered, "send"},
    Transition<SendState>{SendState::kFree, SendState::kSending, "send, receive posted before"},
    Transition<SendState>{SendState::kOffered, SendState::kSending, "POSTED, or STATE of a posted receive"},
    Transition<SendState>{SendState::kOffered, SendState::kSent, "last packet sent, unscheduled"},
    Transition<SendState>{SendState::kSending, SendState::kSent, "last packet sent"},
    Transition<SendState>{SendState::kSending, SendState::kOver, "STOP (longer than its receive, or static deadline)"},
    Transition<SendState>{SendState::kSent, SendState::kStored, "complete, no receive yet"},
    Transition<SendState>{SendState::kSent, SendState::kOver, "complete, or STOP"},
    Transition<SendState>{SendState::kStored, SendState::kOver, "its receive is posted"},
};

inline constexpr std::array kReceiveTransitions = {
    Transition<ReceiveState>{ReceiveState::kUnseen, ReceiveState::kStaging, "first packet or probe"},
    Transition<ReceiveState>{ReceiveState::kStaging, ReceiveState::kArriving, "matched to its receive"},
    Transition<ReceiveState>{ReceiveState::kStaging, ReceiveState::kStored, "last packet staged"},
    Transition<ReceiveState>{ReceiveState::kStaging, ReceiveState::kTruncated, "matched to a shorter receive"},
    Transition<ReceiveState>{ReceiveState::kStored, ReceiveState::kComplete, "matched to its receive"},
    Transition<ReceiveState>{ReceiveState::kStored, ReceiveState::kTruncated, "matched to a shorter receive"},
    Transition<ReceiveState>{ReceiveState::kArriving, ReceiveState::kComplete, "last packet placed"},
    Transition<ReceiveState>{ReceiveState::kArriving, ReceiveState::kPartial, "ledger charged, or static deadline"},
};

inline constexpr std::array kShareTransitions = {
    Transition<ShareState>{ShareState::kIdle, ShareState::kPromised, "receive posted"},
    Transition<ShareState>{ShareState::kIdle, ShareState::kServed, "receive posted to data or a probe"},
    Transition<ShareState>{ShareState::kIdle, ShareState::kWaiting, "the same, no share free"},
    Transition<ShareState>{ShareState::kPromised, ShareState::kServed, "data or a probe came"},
    Transition<ShareState>{ShareState::kPromised, ShareState::kWaiting, "the same, no share free"},
    Transition<ShareState>{ShareState::kPromised, ShareState::kIdle, "all received"},
    Transition<ShareState>{ShareState::kWaiting, ShareState::kServed, "a share is free"},
    Transition<ShareState>{ShareState::kWaiting, ShareState::kIdle, "all received"},
    Transition<ShareState>{ShareState::kServed, ShareState::kIdle, "all received"},
    Transition<ShareState>{ShareState::kServed, ShareState::kWaiting, "had its turn, others wait"},
    Transition<ShareState>{ShareState::kServed, ShareState::kSilent, "nothing came for long"},
    Transition<ShareState>{ShareState::kSilent, ShareState::kServed, "data or a probe came"},
    Transition<ShareState>{ShareState::kSilent, ShareState::kWaiting, "the same, no share free"},
    Transition<ShareState>{ShareState::kSilent, ShareState::kIdle, "all received"},
};

inline constexpr std::array kPathTransitions = {
    Transition<PathState>{PathState::kGood, PathState::kSidelined, "more loss than the others, or silent"},
    Transition<PathState>{PathState::kSidelined, PathState::kProbing, "back-off is over"},
    Transition<PathState>{PathState::kProbing, PathState::kGood, "probe burst delivered"},
    Transition<PathState>{PathState::kProbing, PathState::kSidelined, "some of it lost, or no verdict in time"},
};

constexpr std::span<const Transition<SendState>> transitions(SendState) { return kSendTransitions; }
constexpr std::span<const Transition<ReceiveState>> transitions(ReceiveState) { return kReceiveTransitions; }
constexpr std::span<const Transition<ShareState>> transitions(ShareState) { return kShareTransitions; }
constexpr std::span<const Transition<PathState>> transitions(PathState) { return kPathTransitions; }

constexpr std::string_view name(SendState state) {
  constexpr std::array<std::string_view, 6> kNames = {"Free", "Offered", "Sending", "Sent", "Stored", "Over"};
  return kNames[static_cast<std::size_t>(state)];
}
constexpr std::string_view name(ReceiveState state) {
  constexpr std::array<std::string_view, 7> kNames = {"Unseen",   "Staging", "Arriving", "Stored",
                                                      "Complete", "Partial", "Truncated"};
  return kNames[static_cast<std::size_t>(state)];
}
constexpr std::string_view name(ShareState state) {
  constexpr std::array<std::string_view, 5> kNames = {"Idle", "Promised", "Waiting", "Served", "Silent"};
  return kNames[static_cast<std::size_t>(state)];
}

constexpr std::string_view name(PathState state) {
  constexpr std::array<std::string_view, 3> kNames = {"Good", "Sidelined", "Probing"};
  return kNames[static_cast<std::size_t>(state)];
}

template <class State>
constexpr bool may_follow(State from, State to) {
  for (const Transition<State>& row : transitions(from)) {
    if (row.from == from && row.to == to) return true;
  }
  return false;
}

// The one way to change a state. A message that is forgotten starts over by assignment.
template <class State>
void set_state(State& state, State next) {
  assert(may_follow(state, next));
  state = next;
}

}  // namespace clustar::mlt
