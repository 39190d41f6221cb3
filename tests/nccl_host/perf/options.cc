#include "tests/nccl_host/perf/options.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "tests/nccl_host/ranks/arguments.h"

namespace nccl_host {
namespace {

constexpr const char* kUsage = R"(usage: nccl-host-perf [options]

  -g, --ranks N        ranks, each a process of its own, 1 to 64 (2)
  -C, --collective C   all_reduce, reduce_scatter, all_gather, broadcast, reduce, sendrecv (all_reduce)
  -b, --minbytes N     smallest size, with K, M or G (1M); per rank
  -e, --maxbytes N     largest size (that of -b)
  -f, --stepfactor N   from one size to the next, 2 to 1024 (2)
  -n, --iters N        calls per size, 1 to 1000000 (2)
  -d, --datatype T     int8, uint8, int32, uint32, int64, uint64, half, float, double, bfloat16 (float)
  -o, --op O           sum, prod, max, min, avg, premulsum: by 2 (sum)
  -r, --root R         of broadcast and reduce, 0 to ranks - 1 (0)
  -c, --check 0|1      compare all bits of all results (1)
  -T, --timeout S      end all ranks after S seconds, 1 to 3600 (60)
  -L, --launch WORDS   start each rank by these words, {rank} replaced, as `clustar fabric exec {rank} --`
  -h, --help           this text

example: scripts/nccl-host -- nccl-host-perf -g 4 -C all_reduce -b 8 -e 4M -f 8 -d half -o avg
exit status: 0 all right; 1 wrong bits, an error of NCCL or too late; 2 wrong usage
)";

constexpr const char* kProgram = "nccl-host-perf";

template <class Value>
Value Named(const std::string& option, const std::string& text,
            const std::vector<std::pair<const char*, Value>>& names) {
  std::string all;
  for (const auto& [name, value] : names) {
    if (text == name) return value;
    all += all.empty() ? name : std::string(", ") + name;
  }
  WrongUsage(kProgram, option + " needs one of " + all + ", not '" + text + "'");
}

const std::vector<std::pair<const char*, Collective>> kCollectives{
    {"all_reduce", Collective::kAllReduce}, {"reduce_scatter", Collective::kReduceScatter},
    {"all_gather", Collective::kAllGather}, {"broadcast", Collective::kBroadcast},
    {"reduce", Collective::kReduce},        {"sendrecv", Collective::kSendRecv}};
const std::vector<std::pair<const char*, Datatype>> kTypes{
    {"int8", Datatype::kInt8},        {"uint8", Datatype::kUint8},   {"int32", Datatype::kInt32},
    {"uint32", Datatype::kUint32},    {"int64", Datatype::kInt64},   {"uint64", Datatype::kUint64},
    {"half", Datatype::kFloat16},     {"float", Datatype::kFloat32}, {"double", Datatype::kFloat64},
    {"bfloat16", Datatype::kBfloat16}};
const std::vector<std::pair<const char*, Operation>> kOperations{
    {"sum", Operation::kSum}, {"prod", Operation::kProd}, {"max", Operation::kMax},
    {"min", Operation::kMin}, {"avg", Operation::kAvg},   {"premulsum", Operation::kPreMulSum}};

}  // namespace

Options ParseOrExit(int argc, char** argv) {
  Options options;
  options.program = kProgram;
  constexpr size_t kMost = size_t{4} << 30;
  bool has_maximum = false;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    const auto is = [&](const char* brief, const char* full) { return option == brief || option == full; };
    if (is("-h", "--help")) {
      std::fputs(kUsage, stdout);
      std::exit(0);
    }
    if (i + 1 == argc) WrongUsage(kProgram, "'" + option + "' is unknown or needs a value");
    const std::string text = argv[++i];
    const auto number = [&](size_t least, size_t most) { return NumberOrExit(kProgram, option, text, least, most); };
    if (TakeRankOption(options, option, text)) continue;
    if (is("-C", "--collective"))
      options.collective = Named(option, options.collective_name = text, kCollectives);
    else if (is("-b", "--minbytes"))
      options.min_bytes = number(1, kMost);
    else if (is("-e", "--maxbytes"))
      has_maximum = true, options.max_bytes = number(1, kMost);
    else if (is("-f", "--stepfactor"))
      options.factor = number(2, 1024);
    else if (is("-n", "--iters"))
      options.iterations = static_cast<int>(number(1, 1000000));
    else if (is("-d", "--datatype"))
      options.type = Named(option, options.type_name = text, kTypes);
    else if (is("-o", "--op"))
      options.op = Named(option, options.op_name = text, kOperations);
    else if (is("-r", "--root"))
      options.root = static_cast<int>(number(0, 63));
    else if (is("-c", "--check"))
      options.check = number(0, 1) == 1;
    else
      WrongUsage(kProgram, "unknown option '" + option + "'");
  }
  if (!has_maximum) options.max_bytes = options.min_bytes;
  if (options.max_bytes < options.min_bytes) WrongUsage(kProgram, "--maxbytes must not be less than --minbytes");
  if (options.root >= options.ranks)
    WrongUsage(kProgram, "--root needs a rank, 0 to " + std::to_string(options.ranks - 1));
  return options;
}

}  // namespace nccl_host
