// Rates by hand: what each policy gives in situations that a person can work out.
#include <gtest/gtest.h>

#include <map>

#include "coflow/registry.h"

namespace clustar::coflow {
namespace {

// Ports of 100 bytes a second.
class Situation {
 public:
  explicit Situation(const std::string& spec, std::size_t ports = 4) : table(ports, 100) {
    const auto policy = find_policy(spec);
    EXPECT_TRUE(policy) << policy.error().message;
    scheduler = policy->make(table);
  }
  CoflowId arrive(const std::vector<FlowSpec>& flows, double weight = 1, std::uint64_t job = 0) {
    CoflowSpec spec;
    spec.job = job;
    spec.weight = weight;
    spec.flows = flows;
    const CoflowId id = table.add(spec, now).value();
    scheduler->arrived(id, now);
    return id;
  }
  void allocate() {
    const Allocation allocation = scheduler->allocate(now);
    for (const RateChange& change : allocation.changes) rates[change.flow] = change.rate;
    shares = allocation.shares;
  }
  // Of a coflow's flows by receiver, then sender.
  std::vector<double> rates_of(CoflowId coflow) {
    std::vector<double> all;
    for (const Receiver& receiver : table.coflow(coflow).receivers) {
      for (const FlowId flow : table.flows_to(receiver)) {
        all.push_back(shares != nullptr ? shares->of(table.flow(flow)) : rates[flow]);
      }
    }
    return all;
  }
  void end(FlowId flow) {
    table.moved(flow, table.flow(flow).left);
    table.finish(flow);
    scheduler->flow_ended(flow, now);
    rates.erase(flow);
    const CoflowId coflow = table.flow(flow).coflow;
    if (table.coflow(coflow).unfinished == 0) scheduler->departed(coflow, now);
  }

  Table table;
  std::unique_ptr<Scheduler> scheduler;
  TimePoint now{};
  std::map<FlowId, double> rates;
  const PortShares* shares = nullptr;
};

using Given = std::vector<double>;

// Flows of 30 and 60 bytes out of one port end together: MADD gives them 1:2.
TEST(CoflowPolicies, MaddEndsACoflowsFlowsTogether) {
  Situation at("sebf");
  const CoflowId coflow = at.arrive({{0, 1, 30}, {0, 2, 60}});
  at.allocate();
  EXPECT_NEAR(at.rates_of(coflow)[0], 100.0 / 3, 1e-9);
  EXPECT_NEAR(at.rates_of(coflow)[1], 200.0 / 3, 1e-9);
}

TEST(CoflowPolicies, SebfServesTheSmallerBottleneckAndBackfills) {
  Situation at("sebf");
  const CoflowId large = at.arrive({{0, 1, 100}, {3, 2, 10}, {3, 3, 10}});
  const CoflowId small = at.arrive({{0, 2, 50}});
  at.allocate();
  EXPECT_EQ(at.rates_of(small), (Given{100}));
  // Ports 0 and 2 are taken, so the larger is skipped, and gets what is left for it.
  EXPECT_EQ(at.rates_of(large), (Given{0, 0, 100}));
}

// Two that are skipped share what is left, flow by flow.
TEST(CoflowPolicies, MaddSharesAmongTheSkipped) {
  Situation at("sebf");
  at.arrive({{0, 1, 50}});
  const CoflowId a = at.arrive({{0, 2, 100}, {2, 3, 10}});
  const CoflowId b = at.arrive({{0, 2, 110}, {1, 3, 10}});
  at.allocate();
  EXPECT_EQ(at.rates_of(a), (Given{0, 50}));
  EXPECT_EQ(at.rates_of(b), (Given{0, 50}));
}

// No timeout: only arrivals and departures are looked at.
TEST(CoflowPolicies, DarkMovesCoflowsAtEventsOnlyAndToTheEndOfTheNextQueue) {
  Situation at("dark:first=100,factor=10,queues=3");
  const CoflowId early = at.arrive({{0, 1, 1000}});
  const CoflowId late = at.arrive({{0, 2, 1000}});
  at.allocate();
  EXPECT_EQ(at.rates_of(early), (Given{100}));
  EXPECT_EQ(at.rates_of(late), (Given{0}));
  EXPECT_FALSE(at.scheduler->next_timeout(at.now));
  at.table.moved(at.table.flows_to(at.table.coflow(early).receivers[0])[0], 500);
  at.allocate();
  EXPECT_EQ(at.rates_of(early), (Given{0}));
  EXPECT_EQ(at.rates_of(late), (Given{100}));
}

TEST(CoflowPolicies, LcfComparesWhatIsLeftWhenACoflowComes) {
  Situation at("lcf");
  const CoflowId early = at.arrive({{0, 1, 100}});
  at.table.moved(at.table.flows_to(at.table.coflow(early).receivers[0])[0], 90);
  const CoflowId late = at.arrive({{0, 2, 50}});
  at.allocate();
  EXPECT_EQ(at.rates_of(early), (Given{100})) << "10 bytes are left of it";
  EXPECT_EQ(at.rates_of(late), (Given{0}));
}

TEST(CoflowPolicies, KeysOrderAsTheirNamesSay) {
  // One receiver of 90 from three senders (flows of 30); two receivers of 40 and 5 from one sender.
  const std::vector<FlowSpec> wide{{0, 3, 30}, {1, 3, 30}, {2, 3, 30}};
  const std::vector<FlowSpec> narrow{{0, 3, 40}, {0, 2, 5}};
  const auto first_is_wide = [&](const std::string& policy) {
    Situation at(policy);
    const CoflowId one = at.arrive(wide);
    const CoflowId other = at.arrive(narrow);
    at.allocate();
    // Both need port 3: the flow that goes first leaves the other less than a third of it there.
    double into_wide = 0;
    for (const double rate : at.rates_of(one)) into_wide += rate;
    return into_wide > at.rates_of(other)[1];
  };
  EXPECT_TRUE(first_is_wide("fifo")) << "it came first";
  EXPECT_TRUE(first_is_wide("scf")) << "its longest flow has 30 bytes, the other's 40";
  EXPECT_FALSE(first_is_wide("lcf")) << "45 bytes against 90";
  EXPECT_FALSE(first_is_wide("sebf")) << "45 bytes at port 0 against 90 at port 3";
}

TEST(CoflowPolicies, ScfAndNcfMoveTheLaterAhead) {
  for (const std::string policy : {"scf", "ncf"}) {
    Situation at(policy);
    // Longest flow 40, or two senders and two receivers; then longest flow 30 and one receiver.
    const CoflowId early = at.arrive({{0, 3, 40}, {policy == "scf" ? 0u : 1u, 2, 5}});
    const CoflowId late = at.arrive({{0, 3, 30}, {1, 3, 30}, {2, 3, 30}});
    at.allocate();
    double into_late = 0;
    for (const double rate : at.rates_of(late)) into_late += rate;
    EXPECT_NEAR(into_late, 100, 1e-9) << policy;
    EXPECT_EQ(at.rates_of(early)[1], 0) << policy;
  }
}

TEST(CoflowPolicies, WeightsMoveCoflowsAhead) {
  for (const char* policy : {"sebf", "bssi", "match"}) {
    Situation at(policy);
    const CoflowId large = at.arrive({{0, 1, 100}}, 10);
    const CoflowId small = at.arrive({{0, 1, 50}});
    at.allocate();
    EXPECT_EQ(at.rates_of(large), (Given{100})) << policy;
    EXPECT_EQ(at.rates_of(small), (Given{0})) << policy;
  }
}

TEST(CoflowPolicies, DeadlinesAdmitWhatCanEndInTime) {
  Situation at("sebf:deadlines=1");
  const auto offer = [&](double bytes, int deadline_s) {
    CoflowSpec spec;
    spec.flows = {{0, 1, bytes}};
    spec.deadline = std::chrono::seconds(deadline_s);
    const CoflowId id = at.table.add(spec, at.now).value();
    const bool fits = at.scheduler->admits(id, at.now);
    if (fits) at.scheduler->arrived(id, at.now);
    return fits;
  };
  EXPECT_TRUE(offer(500, 10)) << "half of the port";
  EXPECT_TRUE(offer(400, 10)) << "0.4 of it";
  EXPECT_FALSE(offer(200, 10)) << "0.1 is left";
  EXPECT_TRUE(offer(100, 10));
}

// What a flow cannot use of a share, CoflowSim's fairness leaves idle.
TEST(CoflowPolicies, FairWastesWhatMaxMinGivesAway) {
  const auto rates = [](const std::string& policy) {
    Situation at(policy);
    // Port 0 sends three flows; port 3 receives one of them and one of port 1's.
    const CoflowId a = at.arrive({{0, 1, 10}, {0, 2, 10}, {0, 3, 10}});
    const CoflowId b = at.arrive({{1, 3, 10}});
    at.allocate();
    return std::pair(at.rates_of(a)[2], at.rates_of(b)[0]);
  };
  EXPECT_NEAR(rates("fair").first, 100.0 / 3, 1e-9);
  EXPECT_NEAR(rates("fair").second, 50, 1e-9) << "half of port 3, though the other half is not used up";
  EXPECT_NEAR(rates("maxmin").first, 100.0 / 3, 1e-9);
  EXPECT_NEAR(rates("maxmin").second, 200.0 / 3, 1e-9);
}

TEST(CoflowPolicies, PfpTakesTheShortestFlowOfEachReceiver) {
  Situation at("pfp");
  const CoflowId a = at.arrive({{0, 1, 50}, {0, 2, 20}});
  const CoflowId b = at.arrive({{3, 1, 40}});
  at.allocate();
  // Receiver 1 takes the 40 of port 3 before the 50 of port 0; receiver 2 its only flow.
  EXPECT_EQ(at.rates_of(b), (Given{100}));
  EXPECT_EQ(at.rates_of(a), (Given{0, 100}));
}

TEST(CoflowPolicies, DclasDemotesWhoHasSentMuch) {
  Situation at("dclas:first=100,factor=10,queues=3");
  const CoflowId early = at.arrive({{0, 1, 1000}});
  const CoflowId late = at.arrive({{0, 1, 1000}});
  at.allocate();
  EXPECT_EQ(at.rates_of(early), (Given{100}));
  EXPECT_EQ(at.rates_of(late), (Given{0})) << "first in, first out within a queue";
  ASSERT_TRUE(at.scheduler->next_timeout(at.now));
  EXPECT_EQ(*at.scheduler->next_timeout(at.now), at.now + std::chrono::seconds(1)) << "100 bytes at 100 a second";
  at.now += std::chrono::seconds(1);
  at.table.moved(at.table.flows_to(at.table.coflow(early).receivers[0])[0], 100);
  at.allocate();
  EXPECT_EQ(at.rates_of(early), (Given{0}));
  EXPECT_EQ(at.rates_of(late), (Given{100}));
}

TEST(CoflowPolicies, DclasLetsHeavierCoflowsSendMore) {
  Situation at("dclas:first=100,factor=10,queues=3");
  at.arrive({{0, 1, 1000}}, 2.5);
  at.allocate();
  ASSERT_TRUE(at.scheduler->next_timeout(at.now));
  EXPECT_EQ(*at.scheduler->next_timeout(at.now), at.now + std::chrono::milliseconds(2500))
      << "250 bytes at 100 a second";
}

// Without a coordinator: each sender by what it sent itself, with limits divided by the number of senders.
TEST(CoflowPolicies, LocalDclasDemotesSenderBySender) {
  Situation at("dclas:first=100,factor=10,queues=3,local=1");
  const CoflowId first = at.arrive({{0, 2, 1000}, {1, 3, 1000}});
  const CoflowId second = at.arrive({{0, 2, 1000}, {1, 3, 1000}});
  at.allocate();
  EXPECT_EQ(at.rates_of(first), (Given{100, 100}));
  at.now += std::chrono::milliseconds(500);
  at.table.moved(at.table.flows_to(at.table.coflow(first).receivers[0])[0], 50);  // port 0's part of 100
  at.allocate();
  EXPECT_EQ(at.rates_of(first), (Given{0, 100}));
  EXPECT_EQ(at.rates_of(second), (Given{100, 0}));
}

TEST(CoflowPolicies, BssiSharesInsideALevel) {
  Situation each("bssi"), one("bssi:levels=1");
  for (Situation* at : {&each, &one}) {
    at->arrive({{0, 1, 100}});
    at->arrive({{0, 1, 10}});
    at->allocate();
  }
  EXPECT_EQ(each.rates_of(0), (Given{0}));
  EXPECT_EQ(each.rates_of(1), (Given{100}));
  EXPECT_EQ(one.rates_of(0), (Given{50}));
  EXPECT_EQ(one.rates_of(1), (Given{50}));
}

TEST(CoflowPolicies, MatchServesBottlenecksFirstAndFillsUp) {
  Situation at("match");
  // Port 3 receives most: it takes the sender that has most left, port 0.
  const CoflowId high = at.arrive({{0, 3, 40}, {1, 3, 20}, {0, 2, 5}});
  const CoflowId low = at.arrive({{1, 2, 500}, {0, 1, 500}});
  at.allocate();
  EXPECT_EQ(at.rates_of(high), (Given{0, 100, 0})) << "by receiver: 2, then 3 from 0 and from 1";
  EXPECT_EQ(at.rates_of(low), (Given{0, 100})) << "ports 1 and 2 are idle otherwise";
  // The flow ends: port 3 goes on with port 1, whose lower flow makes way, and port 0 with the flow to port 2.
  at.end(at.table.flows_to(at.table.coflow(high).receivers[1])[0]);
  at.allocate();
  EXPECT_EQ(at.rates_of(high), (Given{100, 100}));
  EXPECT_EQ(at.rates_of(low), (Given{0, 0}));
}

// Two jobs want one port all the time: the one with the smaller coflows goes first, until it is ahead by the larger.
TEST(CoflowPolicies, TurnsLetNoJobGetFarAhead) {
  Situation at("turns");
  const CoflowId large = at.arrive({{0, 1, 100}}, 1, 1);
  double small_sent = 0;
  CoflowId small = at.arrive({{0, 1, 30}}, 1, 2);
  at.allocate();
  // 30 four times: 90 are not more than 100 ahead, 120 are.
  for (int turn = 0; turn < 4; ++turn) {
    ASSERT_EQ(at.rates_of(large), (Given{0})) << turn;
    ASSERT_EQ(at.rates_of(small), (Given{100})) << turn;
    at.end(at.table.flows_to(at.table.coflow(small).receivers[0])[0]);
    small_sent += 30;
    small = at.arrive({{0, 1, 30}}, 1, 2);
    at.allocate();
  }
  EXPECT_EQ(at.rates_of(large), (Given{100})) << small_sent << " against nothing";
  // The order is looked at again when that may be over: 20 bytes later.
  ASSERT_TRUE(at.scheduler->next_timeout(at.now));
  at.now = *at.scheduler->next_timeout(at.now);
  EXPECT_EQ(at.now, TimePoint(std::chrono::milliseconds(200)));
  at.table.moved(at.table.flows_to(at.table.coflow(large).receivers[0])[0], 20);
  at.allocate();
  EXPECT_EQ(at.rates_of(large), (Given{0})) << "120 against 20";
  EXPECT_EQ(at.rates_of(small), (Given{100}));
}

// Who had to wait has not lost its claim when it comes back from computing.
TEST(CoflowPolicies, TurnsRememberWhoWaited) {
  Situation at("turns");
  const auto end = [&](CoflowId coflow) { at.end(at.table.flows_to(at.table.coflow(coflow).receivers[0])[0]); };
  const CoflowId large = at.arrive({{0, 1, 300}}, 1, 1);
  for (int turn = 0; turn < 4; ++turn) end(at.arrive({{0, 1, 100}}, 1, 2));
  end(large);
  // 300 against 400: more than the larger of these two.
  const CoflowId small = at.arrive({{0, 1, 40}}, 1, 2);
  at.allocate();
  EXPECT_EQ(at.rates_of(small), (Given{100}));
  const CoflowId back = at.arrive({{0, 1, 50}}, 1, 1);
  at.allocate();
  EXPECT_EQ(at.rates_of(small), (Given{0}));
  EXPECT_EQ(at.rates_of(back), (Given{100}));
  // Who was never there has no claim: it is as far as the least served that is there, and smaller.
  const CoflowId newcomer = at.arrive({{0, 1, 10}}, 1, 3);
  at.allocate();
  EXPECT_EQ(at.rates_of(newcomer), (Given{100}));
  end(newcomer);
  at.allocate();
  EXPECT_EQ(at.rates_of(back), (Given{100}));
}

// What a job was served where nobody else was is no debt to those that it meets later.
TEST(CoflowPolicies, TurnsCountOnlyAmongThoseThatMeet) {
  Situation at("turns");
  const auto end = [&](CoflowId coflow) { at.end(at.table.flows_to(at.table.coflow(coflow).receivers[0])[0]); };
  at.arrive({{2, 3, 100}}, 1, 9);  // elsewhere, and served little
  for (int turn = 0; turn < 50; ++turn) {
    const CoflowId alone = at.arrive({{0, 1, 10}}, 1, 1);
    at.allocate();
    end(alone);
  }
  const CoflowId first = at.arrive({{0, 1, 10}}, 1, 1);
  at.arrive({{0, 1, 20}}, 1, 2);
  at.allocate();
  EXPECT_EQ(at.rates_of(first), (Given{100})) << "alike, and smaller, whatever it had before";
}

TEST(CoflowPolicyNames, ErrorsSayWhatIsAllowed) {
  const auto error = [](const std::string& spec) {
    const auto found = find_policy(spec);
    return found ? std::string() : found.error().message;
  };
  EXPECT_NE(error("varys").find("allowed: fifo, scf"), std::string::npos) << error("varys");
  EXPECT_NE(error("dclas:E=8").find("there is no E; allowed: queues"), std::string::npos) << error("dclas:E=8");
  EXPECT_NE(error("dclas:factor=1").find("allowed: 1.01"), std::string::npos) << error("dclas:factor=1");
  EXPECT_NE(error("dclas:factor=nan").find("factor is 'nan'"), std::string::npos) << error("dclas:factor=nan");
  EXPECT_NE(error("bssi:levels=2.5").find("whole numbers"), std::string::npos) << error("bssi:levels=2.5");
  EXPECT_NE(error("bssi:levels=1e30").find("whole numbers from 0 to 1000"), std::string::npos);
  EXPECT_NE(error("dclas:queues=nan").find("queues is 'nan'"), std::string::npos);
  EXPECT_NE(error("bssi:levels").find("key=value"), std::string::npos) << error("bssi:levels");
  EXPECT_NE(error("bssi:levels=2,levels=3").find("twice"), std::string::npos);
  EXPECT_NE(error("match:levels=2").find("allowed: nothing"), std::string::npos) << error("match:levels=2");
  EXPECT_EQ(error("dclas:queues=5,first=1e6"), "");
}

}  // namespace
}  // namespace clustar::coflow
