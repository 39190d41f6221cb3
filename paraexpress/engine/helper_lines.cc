#include "paraexpress/engine/helper_lines.h"

#include <chrono>
#include <thread>
#include <tuple>
#include <utility>

namespace clustar::paraexpress {
namespace {

TimePoint time_now() { return TimePoint(std::chrono::steady_clock::now().time_since_epoch()); }

// True: it ended; false: not yet. Error: the channel failed.
Result<bool> ended(transport::Request*& request) {
  const auto progress = request->test();
  if (!progress) return tl::unexpected(progress.error());
  if (progress->done) request = nullptr;
  return progress->done;
}

}  // namespace

Result<void> HelperLines::open() {
  for (Line& line : lines_) {
    for (const auto& [memory, bytes, mr] : {std::tuple{line.order.data(), line.order.size(), &line.order_mr},
                                            std::tuple{line.question.data(), line.question.size(), &line.question_mr},
                                            std::tuple{line.answer.data(), line.answer.size(), &line.answer_mr}}) {
      auto registered = mesh_.reg_mr(memory, bytes);
      if (!registered) return tl::unexpected(registered.error());
      *mr = std::move(*registered);
    }
  }
  return {};
}

void HelperLines::heard(std::uint32_t helper) { lines_[helper].pulse.heard(time_now()); }

bool HelperLines::send(Member peer, const Registered& mr, int tag, bool& to_send, transport::Request*& request) {
  if (request != nullptr) {
    const auto done = ended(request);
    if (!done) return false;
  }
  if (!to_send || request != nullptr) return true;
  const transport::FlowTag flow{.traffic_class = 0, .urgency = transport::Urgency::kBlocking};
  auto sent = mesh_.to(peer).send(*mr.to_send[peer], 0, mr.bytes, tag, flow);
  if (!sent) return false;
  request = *sent;
  to_send = request == nullptr;
  return true;
}

bool HelperLines::drive(Line& line, Member peer) {
  if (!send(peer, *line.order_mr, kOrderTag, line.to_order, line.ordering)) return false;
  if (!line.orders.empty() && !line.to_order && line.ordering == nullptr) {
    line.order = line.orders.front();
    line.orders.pop_front();
    line.to_order = true;
    if (!send(peer, *line.order_mr, kOrderTag, line.to_order, line.ordering)) return false;
  }
  if (!send(peer, *line.question_mr, kAskTag, line.to_ask, line.asking)) return false;
  if (line.answering != nullptr) {
    const auto done = ended(line.answering);
    if (!done) return false;
    if (*done) line.pulse.answered(time_now());
  }
  return true;
}

void HelperLines::poll(std::uint32_t helper, bool waits) {
  Line& line = lines_[helper];
  if (line.lost) return;
  const Member peer = ranks_ + helper;
  if (!drive(line, peer)) return lose(helper);
  if (!waits) return;
  const TimePoint now = time_now();
  if (line.pulse.dead(now)) return lose(helper);
  if (!line.pulse.should_ask(now) || line.asking != nullptr || line.answering != nullptr) return;
  const transport::RecvPart part{line.answer_mr->to_receive[peer].get(), 0, line.answer.size(), kAnswerTag};
  const auto posted = mesh_.from(peer).recv({&part, 1});
  if (!posted) return lose(helper);
  if (*posted == nullptr) return;
  line.answering = *posted;
  // Where there is no room for the question there is no way to the helper either: its time runs, too.
  line.to_ask = true;
  line.pulse.asked(now);
}

void HelperLines::order(std::uint32_t helper, const Order& order) {
  Line& line = lines_[helper];
  if (line.lost) return;
  line.orders.push_back(encode_order(order));
}

void HelperLines::flush(Duration limit) {
  const auto until = std::chrono::steady_clock::now() + limit;
  for (bool open = true; open && std::chrono::steady_clock::now() < until;) {
    open = false;
    for (std::uint32_t helper = 0; helper < lines_.size(); ++helper) {
      poll(helper, false);
      const Line& line = lines_[helper];
      open = open || (!line.lost && (!line.orders.empty() || line.to_order || line.ordering != nullptr));
    }
    std::this_thread::yield();
  }
}

void HelperLines::lose(std::uint32_t helper) {
  Line& line = lines_[helper];
  if (std::exchange(line.lost, true)) return;
  line.ordering = line.asking = line.answering = nullptr;
  mesh_.drop(ranks_ + helper);
}

}  // namespace clustar::paraexpress
