#include "bench/coflow/aicb.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "bench/coflow/csv.h"
#include "bench/coflow/keys.h"

namespace clustar::bench::coflow {
namespace {

constexpr std::int64_t kMaxWorld = 65536;
constexpr std::int64_t kMaxBytes = 1'000'000'000'000'000;
constexpr std::int64_t kMaxOperations = 1'000'000;  // of an iteration
constexpr double kMaxSteps = 2e7;       // operations of a job; ranks of the operations that differ: some seconds of CPU
constexpr double kMaxIterationS = 1e9;  // times are counted in nanoseconds

// AICB writes CommType.all_reduce, CommGroup.dp_group.
std::string_view without(std::string_view prefix, std::string_view text) {
  if (text.starts_with(prefix)) text.remove_prefix(prefix.size());
  return text;
}

// [rank0 ~ rank127]
Result<std::size_t> read_world(const Csv& csv) {
  std::string_view text = csv.line();
  const auto drop = [&](std::string_view word) {
    const bool there = text.starts_with(word);
    if (there) text.remove_prefix(word.size());
    return there;
  };
  std::int64_t last = 0;
  bool good = drop("[rank0 ~ rank");
  if (good) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), last);
    good = error == std::errc();
    if (good) text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  }
  if (good && text == "]" && last >= 1 && last < kMaxWorld) return static_cast<std::size_t>(last) + 1;
  return csv.wrong(fmt::format(
      "'{}' where the ranks were expected; supported: [rank0 ~ rank127], 2 to {} ranks, one stage of pipeline",
      csv.line(), kMaxWorld));
}

struct Row {
  AicbOperation operation{};
  std::string_view group{};
  std::size_t line = 0;
};

Result<Collective> read_collective(const Csv& csv) {
  static const std::map<std::string_view, Collective> kNames{{"all_reduce", Collective::kAllReduce},
                                                             {"all_gather", Collective::kAllGather},
                                                             {"reduce_scatter", Collective::kReduceScatter},
                                                             {"broadcast", Collective::kBroadcast},
                                                             {"all_to_all", Collective::kAllToAll}};
  const auto found = kNames.find(without("CommType.", csv.field("comm_type")));
  if (found != kNames.end()) return found->second;
  return csv.wrong(
      fmt::format("the operation '{}'; supported: all_reduce, all_gather, reduce_scatter, broadcast, all_to_all, and "
                  "barrier and epoch_end, which send nothing",
                  csv.field("comm_type")));
}

Result<Row> read_row(const Csv& csv, std::size_t world) {
  Row row;
  row.line = csv.number();
  const auto collective = read_collective(csv);
  if (!collective) return tl::unexpected(collective.error());
  row.operation.collective = *collective;
  row.group = without("CommGroup.", csv.field("comm_group"));
  constexpr std::string_view kGroups[] = {"tp_group", "dp_group", "ep_group", "all"};
  if (std::find(std::begin(kGroups), std::end(kGroups), row.group) == std::end(kGroups)) {
    return csv.wrong(fmt::format("the group '{}'; supported: {}", csv.field("comm_group"), fmt::join(kGroups, ", ")));
  }
  const auto size = csv.whole("comm_group_size", 1, static_cast<std::int64_t>(world));
  if (!size) return tl::unexpected(size.error());
  const auto bytes = csv.whole("msg_size", 0, kMaxBytes);
  if (!bytes) return tl::unexpected(bytes.error());
  row.operation.groups = {world, static_cast<std::size_t>(*size), 1};
  row.operation.bytes = static_cast<double>(*bytes);
  if (csv.has("count")) {
    const auto count = csv.whole("count", 1, kMaxOperations);
    if (!count) return tl::unexpected(count.error());
    row.operation.count = static_cast<std::size_t>(*count);
  }
  if (*collective == Collective::kBroadcast && csv.has("src") && csv.field("src") != "None" &&
      !csv.field("src").empty()) {
    const auto root = csv.whole("src", 0, *size - 1);
    if (!root) return tl::unexpected(root.error());
    row.operation.root = static_cast<std::size_t>(*root);
  }
  return row;
}

Result<std::vector<Row>> read_rows(Csv& csv, std::size_t world) {
  std::vector<Row> rows;
  bool closed = false;
  std::size_t operations = 0;
  while (csv.next()) {
    if (const auto ok = csv.split(); !ok) return tl::unexpected(ok.error());
    const std::string_view type = without("CommType.", csv.field("comm_type"));
    if (type == "epoch_end") closed = closed || !rows.empty();
    if (closed || type == "epoch_end" || type == "barrier" || csv.field("stage").starts_with("init")) continue;
    auto row = read_row(csv, world);
    if (!row) return tl::unexpected(row.error());
    operations += row->operation.count;
    if (operations > static_cast<std::size_t>(kMaxOperations)) {
      return csv.wrong(fmt::format("more than {} operations in an iteration", kMaxOperations));
    }
    rows.push_back(*row);
  }
  return rows;
}

// 1 without tensor parallelism.
Result<std::size_t> tensor_parallel_size(const std::vector<Row>& rows, const std::string& name) {
  const Row* first = nullptr;
  for (const Row& row : rows) {
    if (row.group != "tp_group") continue;
    if (first == nullptr) first = &row;
    if (row.operation.groups.size == first->operation.groups.size) continue;
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}:{}: tp_group of {} ranks, of {} in line {}; supported: one size", name, row.line,
                            row.operation.groups.size, first->operation.groups.size, first->line));
  }
  return first == nullptr ? 1 : first->operation.groups.size;
}

Result<void> set_stride(Row& row, std::size_t tensor_parallel, const std::string& name) {
  Groups& groups = row.operation.groups;
  if (row.group == "dp_group" || row.group == "ep_group") groups.stride = tensor_parallel;
  const bool all = row.group == "all";
  const bool fits = all ? groups.size == groups.world : groups.world % (groups.size * groups.stride) == 0;
  if (fits) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{}:{}: {} of {} ranks{}; allowed: {}", name, row.line, row.group, groups.size,
                          groups.stride > 1 ? fmt::format(", {} apart", groups.stride) : "",
                          all ? fmt::format("all {}", groups.world)
                              : fmt::format("sizes that divide {} ranks by {}", groups.world, groups.stride)));
}

using Shape = std::tuple<Collective, std::size_t, std::size_t, std::size_t>;  // size, stride, root of the groups

Shape shape_of(const AicbOperation& one) { return {one.collective, one.groups.size, one.groups.stride, one.root}; }

// What would take too long to expand, or find no place in memory, before anything is made of it.
Result<void> check_size(const AicbIteration& iteration, const std::string& name, const AicbOptions& options) {
  std::set<Shape> shapes;
  double flows = 0, operations = 0;
  for (const AicbOperation& one : iteration.operations) {
    shapes.insert(shape_of(one));
    flows += static_cast<double>(flow_bound(one.collective, one.groups, options.layout) * one.count);
    operations += static_cast<double>(one.count);
  }
  const auto wrong = [&](const std::string& what) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("{}: {}", name, what));
  };
  if (flows > kMaxMixSize.flows) {
    return wrong(fmt::format("up to {:.2g} flows in an iteration; allowed: {:.0e}; more ranks_per_port have fewer",
                             flows, kMaxMixSize.flows));
  }
  if (static_cast<double>(shapes.size() * iteration.world) > kMaxSteps) {
    return wrong(fmt::format("{} kinds of operations (by collective, group and src) of {} ranks; allowed: {:.0f}",
                             shapes.size(), iteration.world, kMaxSteps / static_cast<double>(iteration.world)));
  }
  operations *= static_cast<double>(options.iterations);
  if (operations <= kMaxSteps) return {};
  return wrong(fmt::format("{:.2g} operations in {} iterations; allowed: {:.0e}; fewer iterations have fewer",
                           operations, options.iterations, kMaxSteps));
}

Result<void> check_ports(const AicbIteration& iteration, const std::string& name, const AicbOptions& options) {
  const Layout& layout = options.layout;
  if (layout.ranks_per_port > iteration.world) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("{}: ranks_per_port={}; allowed: 1 to {}, its ranks", name,
                                                         layout.ranks_per_port, iteration.world));
  }
  const std::size_t last_port = layout.first_port + layout.ports_of(iteration.world);
  if (last_port > clustar::coflow::kMaxPorts) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: ports {} to {}; allowed: below {}; more ranks_per_port need fewer", name,
                            layout.first_port, last_port - 1, clustar::coflow::kMaxPorts));
  }
  return {};
}

void add_phases(Job& job, const AicbIteration& iteration, const Layout& layout) {
  std::map<Shape, std::vector<clustar::coflow::FlowSpec>> of_one_byte;
  for (const AicbOperation& one : iteration.operations) {
    const Shape shape = shape_of(one);
    auto found = of_one_byte.find(shape);
    if (found == of_one_byte.end()) {
      found = of_one_byte.emplace(shape, flows_of(one.collective, one.groups, layout, one.root)).first;
    }
    Phase phase;
    if (one.bytes > 0) phase.flows = found->second;
    for (auto& flow : phase.flows) flow.bytes *= one.bytes;
    job.phases.insert(job.phases.end(), one.count, phase);
  }
}

Duration nanoseconds(double s) { return Duration(static_cast<Duration::rep>(std::llround(s * 1e9))); }

void spread(double compute_s, std::vector<Phase>& phases) {
  const auto upto = [&](std::size_t count) {
    return nanoseconds(compute_s * static_cast<double>(count) / static_cast<double>(phases.size()));
  };
  for (std::size_t i = 0; i < phases.size(); ++i) phases[i].compute = upto(i + 1) - upto(i);
}

}  // namespace

bool is_aicb(std::string_view text) { return text.starts_with("[rank") || text.starts_with("[ pp_stage"); }

Result<AicbIteration> parse_aicb(std::string_view text, const std::string& name) {
  Csv csv(text, name);
  if (!csv.next()) return fail(ErrorCode::kInvalidArgument, name + ": empty; expected: [rank0 ~ rank127]");
  const auto world = read_world(csv);
  if (!world) return tl::unexpected(world.error());
  if (!csv.next()) return csv.wrong("the file ends where the header was expected");
  if (const auto ok = csv.take_header({"comm_type", "comm_group", "comm_group_size", "msg_size", "stage"}); !ok) {
    return tl::unexpected(ok.error());
  }
  auto rows = read_rows(csv, *world);
  if (!rows) return tl::unexpected(rows.error());
  if (rows->empty()) {
    return fail(ErrorCode::kInvalidArgument, name + ": no iteration; expected: operations of other stages than init*");
  }
  const auto tensor_parallel = tensor_parallel_size(*rows, name);
  if (!tensor_parallel) return tl::unexpected(tensor_parallel.error());
  AicbIteration iteration{*world, {}};
  for (Row& row : *rows) {
    if (const auto ok = set_stride(row, *tensor_parallel, name); !ok) return tl::unexpected(ok.error());
    iteration.operations.push_back(row.operation);
  }
  return iteration;
}

Result<AicbOptions> parse_aicb_options(std::string_view text) {
  constexpr double kMostMs = 1e9;
  AicbOptions options;
  bool has_duty = false;
  const Key keys[] = {
      {"ranks_per_port", 1, kMaxWorld, true, into(options.layout.ranks_per_port)},
      {"first_port", 0, clustar::coflow::kMaxPorts - 1, true, into(options.layout.first_port)},
      {"iterations", 1, 1e6, true, into(options.iterations)},
      {"duty", 0.001, 1, false,
       [&](double value) {
         options.duty = value;
         has_duty = true;
       }},
      {"compute_ms", 0, kMostMs, false, [&](double value) { options.compute_ms = value; }},
      {"begins_ms", 0, kMostMs, false, into(options.begins_ms)},
      {"deadline_ms", 1, 3.6e6, true, [&](double value) { options.deadline_ms = static_cast<int>(value); }},
      {"share", 1e-6, 1e6, false, into(options.share)},
      {"tflop", 1e-6, 1e12, false, [&](double value) { options.tflop = value; }},
  };
  if (const auto ok = read_keys(text, keys); !ok) return tl::unexpected(ok.error());
  if (has_duty && options.compute_ms) {
    return fail(ErrorCode::kInvalidArgument, "duty and compute_ms; allowed: one of them");
  }
  return options;
}

Result<Job> aicb_job(const AicbIteration& iteration, const std::string& name, const AicbOptions& options,
                     double bytes_per_s) {
  if (const auto ok = check_ports(iteration, name, options); !ok) return tl::unexpected(ok.error());
  if (const auto ok = check_size(iteration, name, options); !ok) return tl::unexpected(ok.error());
  Job job;
  job.name = name;
  job.iterations = options.iterations;
  job.begins = TimePoint(nanoseconds(options.begins_ms / 1e3));
  job.deadline_ms = options.deadline_ms;
  add_phases(job, iteration, options.layout);
  const double communication_s = alone(job.phases, {}, bytes_per_s).communication_s;
  const double compute_s =
      options.compute_ms ? *options.compute_ms / 1e3 : communication_s * (1 - options.duty) / options.duty;
  if (communication_s + compute_s < 1e-9 || (options.tflop && communication_s <= 0)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: with ranks_per_port={} it sends nothing from port to port; allowed: fewer, or "
                            "compute_ms above 0 and no tflop",
                            name, options.layout.ranks_per_port));
  }
  if (!(communication_s + compute_s <= kMaxIterationS)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: an iteration of {:.2g} s alone, {:.2g} of them communication; allowed: {:.0e}; less "
                            "compute_ms, more duty or more --gbps make it shorter",
                            name, communication_s + compute_s, communication_s, kMaxIterationS));
  }
  spread(compute_s, job.phases);
  job.weight = options.share * (options.tflop ? *options.tflop / communication_s : 1);
  return job;
}

}  // namespace clustar::bench::coflow
