#include "bench/coflow/live/agent.h"

#include <sys/prctl.h>

#include <deque>
#include <utility>
#include <vector>

#include "transport/base/system_clock.h"

namespace clustar::bench::coflow::live {
namespace {

constexpr auto kListens = std::chrono::seconds(10);
constexpr Duration kNap = std::chrono::milliseconds(5);
// Of one that had nothing to do for kQuiet: most jobs of a queue wait, and all share this machine's processors.
constexpr Duration kLongNap = std::chrono::milliseconds(100);
constexpr Duration kQuiet = std::chrono::seconds(1);

class Agent {
 public:
  Agent(const ControlEnd& conductor, Lanes& lanes) : conductor_(conductor), lanes_(lanes) {}

  // Errors: of a lane. False: the conductor is gone.
  Result<bool> step() {
    Message message;
    for (;;) {
      const auto state = conductor_.receive(message);
      if (state == ControlEnd::State::kClosed) return false;
      if (state == ControlEnd::State::kNothing) break;
      busy_ = clock_.now();
      if (const auto ok = hear(message); !ok) return tl::unexpected(ok.error());
    }
    if (opening_) {
      const auto open = lanes_.open();
      if (!open) return tl::unexpected(open.error());
      if (*open) {
        opening_ = false;
        say({.word = Word::kReady});
      }
    }
    arrived_.clear();
    if (const auto ok = lanes_.move(arrived_); !ok) return tl::unexpected(ok.error());
    for (const LaneId lane : arrived_) say({.word = Word::kArrived, .lane = lane, .at = clock_.now()});
    if (gone_) return false;
    if (!arrived_.empty()) busy_ = clock_.now();
    lanes_.wait(conductor_.fd(), opening_ ? Duration(std::chrono::milliseconds(1)) : nap());
    return true;
  }

 private:
  Result<void> hear(const Message& message) {
    switch (message.word) {
      case Word::kListen: {
        const auto handle = lanes_.listen(message.lane);
        if (!handle) return tl::unexpected(handle.error());
        say({.word = Word::kHandle, .lane = message.lane, .handle = *handle});
        return {};
      }
      case Word::kConnect: return lanes_.connect(message.lane, message.handle);
      case Word::kOpen: opening_ = true; return {};
      case Word::kSend: lanes_.send(message.lane, message.flow); return {};
      case Word::kReceive: lanes_.receive(message.lane, message.flow.bytes); return {};
      default: return fail(ErrorCode::kInternal, "a word that is not for an agent");
    }
  }

  Duration nap() const { return clock_.now() - busy_ > kQuiet ? kLongNap : kNap; }

  void say(const Message& message) { gone_ = gone_ || !conductor_.send(message, kListens); }

  const ControlEnd& conductor_;
  Lanes& lanes_;
  const SystemClock clock_{};
  bool opening_ = false;
  bool gone_ = false;
  TimePoint busy_{};  // when it last heard or had something
  std::vector<LaneId> arrived_;
};

}  // namespace

int run_agent(const ControlEnd& conductor, const std::function<Result<std::unique_ptr<Lanes>>()>& make_lanes) {
  prctl(PR_SET_TIMERSLACK, 1000);
  const auto lanes = make_lanes();
  if (!lanes) {
    (void)conductor.send(failed(lanes.error().message), kListens);
    return 1;
  }
  Agent agent(conductor, **lanes);
  for (;;) {
    const auto more = agent.step();
    if (!more) {
      (void)conductor.send(failed(more.error().message), kListens);
      return 1;
    }
    if (!*more) return 0;
  }
}

}  // namespace clustar::bench::coflow::live
