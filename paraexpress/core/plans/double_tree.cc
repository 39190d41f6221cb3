#include "paraexpress/core/plans/builders.h"

namespace clustar::paraexpress {
namespace {

constexpr std::size_t kNone = ~std::size_t{0};

// Two binary trees over places 0 .. n-1 so that no place is an inner node of both (Sanders, Speck, Traeff 2009; NCCL's
// double binary trees). In the first the odd places are inside, a balanced search tree, and the even ones are its
// leaves, in order. The second is its mirror image for even n and the same one place further for odd n: odd places
// become even.
class FirstTree {
 public:
  explicit FirstTree(std::size_t n) : parent(n, kNone), n_(n) { root = build(0, n / 2); }

  std::vector<std::size_t> parent;
  std::size_t root = kNone;

 private:
  // The inner places 2i + 1 for i in [low, high), with the leaves between and beside them. Their root.
  std::size_t build(std::size_t low, std::size_t high) {
    if (low == high) return 2 * low < n_ ? 2 * low : kNone;
    const std::size_t middle = low + (high - low) / 2;
    const std::size_t top = 2 * middle + 1;
    for (const std::size_t child : {build(low, middle), build(middle + 1, high)}) {
      if (child != kNone) parent[child] = top;
    }
    return top;
  }

  const std::size_t n_;
};

}  // namespace

Forest double_tree(const Group& group) {
  const std::size_t n = group.ranks;
  const FirstTree first(n);
  Forest forest{group.ranks, group.helpers, {}};
  for (const bool second : {false, true}) {
    const auto member_at = [&](std::size_t place) {
      if (!second) return group.order[place];
      return group.order[n % 2 == 0 ? n - 1 - place : (place + 1) % n];
    };
    Shard shard{1, member_at(first.root), std::vector<Member>(group.members(), kNobody)};
    for (std::size_t place = 0; place < n; ++place) {
      shard.parent[member_at(place)] = member_at(place == first.root ? place : first.parent[place]);
    }
    forest.shards.push_back(std::move(shard));
  }
  return forest;
}

}  // namespace clustar::paraexpress
