#include "tests/lossy_report/fixture.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

namespace clustar::bench::lossy_report {
namespace {

using nlohmann::json;

// A made-up arm: most rounds take about `base` times the ideal, a part of them waits for time-outs.
struct Shape {
  std::string name, label, transport;
  double base = 1.05, stalls = 0, stall_ms = 0, missing = 0;
};

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all{
      {"tcp-cubic", "TCP cubic", "tcp", 1.9, 0.2, 210, 0},
      {"tcp-bbr", "TCP bbr", "tcp", 1.3, 0.15, 215, 0},
      {"tcp-cubic-rto5", "TCP cubic, rto_min 5 ms", "tcp", 1.8, 0.2, 12, 0},
      {"tcp-bbr-rto5", "TCP bbr, rto_min 5 ms", "tcp", 1.3, 0.15, 14, 0},
      {"clustar-tcp", "clustar TCP, cubic", "clustar-tcp", 1.9, 0.2, 200, 0},
      {"mlt-p0", "MLT, reliable", "mlt", 1.03, 0.02, 2, 0},
      {"mlt-p1", "MLT, 1 % may be missing", "mlt", 1.02, 0, 0, 0.007},
      {"mlt-gbn", "MLT as go-back-N (models RC)", "mlt", 1.6, 0.3, 20, 0},
      {"mlt-deadline", "UBT rule, re-implemented; breaks the loss contract", "mlt", 1.1, 0, 0, 0.02},
  };
  return all;
}

double at(const std::vector<double>& sorted, double fraction) {
  return sorted[static_cast<std::size_t>(fraction * static_cast<double>(sorted.size() - 1))];
}

json arm(const Shape& shape, double ideal_ms, int rounds, std::mt19937& random) {
  std::exponential_distribution<double> extra(40);
  std::uniform_real_distribution<double> chance(0, 1);
  std::vector<double> ms;
  for (int i = 0; i < rounds; ++i) {
    double one = ideal_ms * shape.base * (1 + extra(random));
    while (shape.stalls > 0 && chance(random) < shape.stalls) one += shape.stall_ms;
    ms.push_back(one);
  }
  std::sort(ms.begin(), ms.end());
  json cdf = json::array();
  const std::size_t points = std::min<std::size_t>(200, ms.size());
  for (std::size_t i = 0; i < points; ++i) {
    const std::size_t index = i * (ms.size() - 1) / (points - 1);
    cdf.push_back({ms[index], static_cast<double>(index + 1) / rounds});
  }
  const double p50 = at(ms, 0.5), bytes = 1048576.0 * rounds;
  return {{"name", shape.name},
          {"label", shape.label},
          {"transport", shape.transport},
          {"rounds", rounds},
          {"p50_ms", p50},
          {"p90_ms", at(ms, 0.9)},
          {"p99_ms", at(ms, 0.99)},
          {"p999_ms", at(ms, 0.999)},
          {"mean_ms", p50},
          {"min_ms", ms.front()},
          {"max_ms", ms.back()},
          {"goodput_gbps", 0.2 * ideal_ms / p50},
          {"delivered_bytes", bytes * (1 - shape.missing)},
          {"missing_bytes", bytes * shape.missing},
          {"eligible_bytes", shape.missing > 0 ? bytes : 0},
          {"cpu_s_per_gbit", shape.transport == "tcp" ? 0.21 : 0.24},
          {"machine_cpu_s_per_gbit", shape.transport == "tcp" ? 0.35 : 0.36},
          {"indicative", rounds < 1000},
          {"cdf", cdf},
          {"blocks", {p50 * 0.98, p50, p50 * 1.03}}};
}

json scenario(const std::string& name, const std::string& title, double ideal_ms, int rounds, std::mt19937& random) {
  json arms = json::array();
  for (const Shape& shape : shapes()) arms.push_back(arm(shape, ideal_ms, rounds, random));
  arms.push_back({{"name", "mptcp"},
                  {"label", "MPTCP cubic"},
                  {"transport", "mptcp"},
                  {"rounds", 0},
                  {"skipped", "made up: the kernel has no MPTCP"}});
  return {
      {"name", name},
      {"title", title},
      {"question", "Made up: what does loss do to the tail?"},
      {"fabric",
       {{"hosts", 2},
        {"rate_bps", 200000000},
        {"mtu", 1500},
        {"buffer_bytes", 100000},
        {"topology", "star"},
        {"rules", {{{"port", "towards the receiver"}, {"loss", "1 % of the packets at random"}}}}}},
      {"message_bytes", 1048576},
      {"senders", 1},
      {"messages", 1},
      {"rounds", rounds},
      {"ideal_ms", ideal_ms},
      {"one_way_ms", 0.07},
      {"bucket_ms", 0.61},
      {"delay_mode", "queueing only"},
      {"arms", arms},
      {"bars",
       {{{"text", "mlt-p0: p99 over p50"}, {"at_most", 1.15}, {"figure", 1.08}, {"spread", {1.05, 1.2}}, {"met", true}},
        {{"text", "mlt-p0: p99 times better than tcp-bbr"},
         {"at_least", 4.0},
         {"figure", 3.6},
         {"spread", {3.1, 4.2}},
         {"met", false}},
        {{"text", "mlt-1path: p99 over ideal"}, {"at_most", 1.05}, {"figure", nullptr}, {"met", nullptr}},
        {{"text", "mlt-p0: smallest share of a job in a round over the fair one, and more words of that kind"},
         {"at_least", 0.5},
         {"figure", 0.7},
         {"spread", {0.7, 0.9}},
         {"indicative", true},
         {"met", nullptr},
         {"void_because", "2 packets were dropped behind the switch program, where no rule asks for it"}}}},
      {"notes", {"All figures of this page are made up."}}};
}

json shared(std::mt19937& random) {
  json one = scenario("shared", "Two jobs through one port", 3400, 10, random);
  one["arms"] = json::array();
  for (const char* other : {"tcp-cubic", "tcp-bbr"}) {
    json pair = arm({std::string("mlt-p0+") + other, std::string("MLT beside ") + other, "mlt"}, 3400, 10, random);
    pair["jobs"] = {
        {{"name", "mlt-p0"}, {"goodput_gbps", 0.11}, {"share_of_fair", 1.1}, {"share_by_round", {1.0, 1.2}}},
        {{"name", other}, {"goodput_gbps", 0.09}, {"share_of_fair", 0.9}, {"share_by_round", {1.0, 0.8}}}};
    one["arms"].push_back(pair);
  }
  return one;
}

}  // namespace

json made_up_document() {
  std::mt19937 random(1);
  json scenarios = json::array();
  scenarios.push_back(scenario("loss", "1 MiB messages, 1 % random loss (made up)", 44.2, 1000, random));
  scenarios.push_back(scenario("incast", "15-to-1 incast, 128 KiB each (made up)", 82.9, 1000, random));
  scenarios.push_back(scenario("micro-bursts", "Micro-bursts of 60 to 90 % loss (made up)", 44.2, 1000, random));
  scenarios.push_back(scenario("bad-path", "One of four spines loses 5 % (made up)", 44.2, 1000, random));
  scenarios.push_back(shared(random));
  scenarios.push_back(scenario("cpu", "CPU of a stream at 1 Gbit/s (made up)", 1050, 200, random));
  return {{"command", "perf"},
          {"suite", "lossy"},
          {"command_line", "clustar perf --suite lossy --json lossy.json"},
          {"version", "made up"},
          {"machine", {{"cpu", "made up"}, {"cores", 2}, {"memory_gb", 24}, {"kernel", "6.1"}}},
          {"results",
           {{"scenarios", scenarios},
            {"load_average_before", {0.4, 0.5, 0.6}},
            {"load_average_after", {1.4, 0.9, 0.7}},
            {"other_cpu", {{"cores_used", 0.12}, {"cores", 2}, {"seconds", 900}, {"disturbs", false}}}}}};
}

}  // namespace clustar::bench::lossy_report
