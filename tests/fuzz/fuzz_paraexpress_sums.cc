// Any bits of any datatype at any place: every version of the kernels gives the reference's bits, and writes no other
// byte.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "paraexpress/sums/reduce.h"
#include "tests/fuzz/input.h"
#include "tests/unit/paraexpress/sums/reference.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace clustar::paraexpress;
  using clustar::fuzz::require;
  clustar::fuzz::Input input(data, size);
  const auto type = static_cast<DataType>(input.byte() % kDataTypes);
  const Reduction op = input.byte() % 2 == 0 ? Reduction::kSum : Reduction::kMax;
  const std::size_t n = 1 + input.byte() % 5, offset = input.byte() % 64, apart = input.byte() % 8;
  const bool in_place = input.byte() % 2 == 1;
  const std::size_t element = element_bytes(type), bytes = size > 6 ? size - 6 : 0;
  const std::size_t count = std::min<std::size_t>(bytes / n / element, 4096);

  std::vector<std::vector<std::byte>> arrays(n + 1);
  for (auto& array : arrays) array.assign(offset + (n + 1) * apart + count * element + 1, std::byte{0xa5});
  std::vector<const void*> from;
  for (std::size_t i = 0; i < n; ++i) {
    std::byte* const place = arrays[i].data() + offset + i * apart;
    for (std::size_t at = 0; at < count * element; ++at) place[at] = static_cast<std::byte>(input.byte());
    from.push_back(place);
  }
  const auto expected = clustar::tests::reference(from, count, type, op);
  for (const InstructionSet set : {InstructionSet::kPortable, InstructionSet::kAvx2, InstructionSet::kAvx512}) {
    if (!supported(set)) continue;
    const std::size_t target = in_place ? (offset + apart) % n : n;
    auto out = arrays[target];
    auto inputs = from;
    const std::size_t start = offset + target * apart;
    if (in_place) inputs[target] = out.data() + start;
    const auto before = out;
    reduce_into(out.data() + start, inputs, count, type, op, set);
    require(std::equal(expected.begin(), expected.end(), out.begin() + static_cast<std::ptrdiff_t>(start)));
    require(std::equal(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(start), before.begin()));
    require(std::equal(out.begin() + static_cast<std::ptrdiff_t>(start + expected.size()), out.end(),
                       before.begin() + static_cast<std::ptrdiff_t>(start + expected.size())));
  }
  return 0;
}
