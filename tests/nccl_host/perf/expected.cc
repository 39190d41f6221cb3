#include "tests/nccl_host/perf/expected.h"

#include <algorithm>
#include <cstring>

namespace nccl_host {
namespace {

template <class T>
void Put(std::vector<char>& to, size_t index, int value) {
  T element;
  if constexpr (std::is_same_v<T, Bfloat16>)
    element = Bfloat16(static_cast<float>(value));
  else
    element = static_cast<T>(value);
  std::memcpy(to.data() + index * sizeof(T), &element, sizeof(T));
}

bool Reduces(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kReduceScatter ||
         collective == Collective::kReduce;
}

// Of rank's element; small enough that 8 ranks' sum fits int8 and is exact in bfloat16.
int Given(const Options& options, int rank, size_t index) {
  switch (options.op) {
    // At most one rank in four multiplies by 2, so 64 ranks would be too many for int8: those wrap alike in all bits.
    case Operation::kProd: return static_cast<size_t>(rank) % 4 == index % 4 ? 2 : 1;
    // A multiple of the number of ranks, so that the average is exact where its reciprocal is.
    case Operation::kAvg: return static_cast<int>((index + static_cast<size_t>(rank)) % 2) * options.ranks;
    default: return static_cast<int>((index * 3 + static_cast<size_t>(rank) * 5) % 7) + 1;
  }
}

int Reduced(const Options& options, size_t index) {
  int result = Given(options, 0, index);
  for (int rank = 1; rank < options.ranks; ++rank) {
    const int next = Given(options, rank, index);
    switch (options.op) {
      case Operation::kProd: result *= next; break;
      case Operation::kMax: result = std::max(result, next); break;
      case Operation::kMin: result = std::min(result, next); break;
      default: result += next;
    }
  }
  if (options.op == Operation::kAvg) return result / options.ranks;
  if (options.op == Operation::kPreMulSum) return result * 2;
  return result;
}

}  // namespace

std::vector<char> Values(Datatype type, size_t count, const std::function<int(size_t)>& value) {
  std::vector<char> result(count * SizeOf(type));
  for (size_t i = 0; i < count; ++i) {
    switch (type) {
      case Datatype::kInt8:
      case Datatype::kUint8: Put<uint8_t>(result, i, value(i)); break;
      case Datatype::kInt32:
      case Datatype::kUint32: Put<uint32_t>(result, i, value(i)); break;
      case Datatype::kInt64:
      case Datatype::kUint64: Put<uint64_t>(result, i, value(i)); break;
      case Datatype::kFloat16: Put<Float16>(result, i, value(i)); break;
      case Datatype::kFloat32: Put<float>(result, i, value(i)); break;
      case Datatype::kFloat64: Put<double>(result, i, value(i)); break;
      case Datatype::kBfloat16: Put<Bfloat16>(result, i, value(i)); break;
    }
  }
  return result;
}

std::vector<char> Input(const Problem& problem, int rank) {
  const Options& options = problem.options;
  const size_t pieces = options.collective == Collective::kReduceScatter ? static_cast<size_t>(options.ranks) : 1;
  return Values(options.type, problem.count * pieces, [&](size_t i) { return Given(options, rank, i); });
}

std::vector<char> Output(const Problem& problem, int rank) {
  const Options& options = problem.options;
  const size_t count = problem.count;
  if (Reduces(options.collective)) {
    if (options.collective == Collective::kReduce && rank != options.root) return {};
    const size_t begin = options.collective == Collective::kReduceScatter ? static_cast<size_t>(rank) * count : 0;
    return Values(options.type, count, [&](size_t i) { return Reduced(options, begin + i); });
  }
  if (options.collective == Collective::kAllGather)
    return Values(options.type, count * static_cast<size_t>(options.ranks),
                  [&](size_t i) { return Given(options, static_cast<int>(i / count), i % count); });
  const int from =
      options.collective == Collective::kBroadcast ? options.root : (rank + options.ranks - 1) % options.ranks;
  return Values(options.type, count, [&](size_t i) { return Given(options, from, i); });
}

uint64_t Different(const Problem& problem, const std::vector<char>& expected, const void* actual) {
  const size_t size = SizeOf(problem.options.type);
  uint64_t result = 0;
  for (size_t at = 0; at < expected.size(); at += size)
    result += std::memcmp(expected.data() + at, static_cast<const char*>(actual) + at, size) != 0;
  return result;
}

}  // namespace nccl_host
