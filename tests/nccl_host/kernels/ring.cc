#include "tests/nccl_host/kernels/ring.h"

#include <algorithm>

namespace nccl_host {
namespace {

// Calls visit(offset, count) for each chunk of the part; a part without elements has none.
template <class Visit>
void EachChunk(const Part& part, Visit visit) {
  for (size_t done = 0; done < part.count; done += part.chunk)
    visit(part.offset + done, std::min(part.chunk, part.count - done));
}

template <class Visit>
void EachPiece(size_t bytes, size_t chunk, Visit visit) {
  size_t done = 0;
  do {
    const size_t count = std::min(chunk, bytes - done);
    visit(done, count);
    done += count;
  } while (done < bytes);
}

}  // namespace

void AllReduce(const Ring& ring, Part part, const Buffers& buffers, Primitive& primitive) {
  const size_t ranks = ring.ranks.size();
  const auto index = static_cast<size_t>(ring.index);
  const size_t per_loop = ranks * part.chunk;
  for (size_t done = 0; done < part.count; done += per_loop) {
    const size_t rest = part.count - done;
    size_t chunk = part.chunk;
    if (rest < per_loop) {
      // The last loop shares what is left evenly, in pieces of 16 bytes.
      const size_t grain = 16 / buffers.element;
      chunk = ((rest + ranks - 1) / ranks + grain - 1) / grain * grain;
    }
    const auto step = [&](size_t piece, bool receive, bool send, bool input, bool output, bool finish) {
      const size_t begin = piece % ranks * chunk;
      const size_t count = begin < rest ? std::min(chunk, rest - begin) : 0;
      const size_t at = (part.offset + done + begin) * buffers.element;
      primitive.Do(
          {receive, send, input ? buffers.input + at : nullptr, output ? buffers.output + at : nullptr, count, finish});
    };
    step(index + ranks - 1, false, true, true, false, false);
    for (size_t j = 2; j < ranks; ++j) step(index + ranks - j, true, true, true, false, false);
    step(index, true, true, true, true, true);
    for (size_t j = 1; j + 1 < ranks; ++j) step(index + ranks - j, true, true, false, true, false);
    step(index + 1, true, false, false, true, false);
  }
}

void ReduceScatter(const Ring& ring, const Part& part, const Buffers& buffers, Primitive& primitive) {
  const size_t ranks = ring.ranks.size();
  EachChunk(part, [&](size_t offset, size_t count) {
    const auto input = [&](size_t position) {
      return buffers.input + (offset + static_cast<size_t>(ring.ranks[position]) * part.total) * buffers.element;
    };
    primitive.Do({false, true, input(ranks - 1), nullptr, count, false});
    for (size_t j = 2; j < ranks; ++j) primitive.Do({true, true, input(ranks - j), nullptr, count, false});
    primitive.Do({true, false, input(0), buffers.output + offset * buffers.element, count, true});
  });
}

void AllGather(const Ring& ring, const Part& part, const Buffers& buffers, Primitive& primitive) {
  const size_t ranks = ring.ranks.size();
  EachChunk(part, [&](size_t offset, size_t count) {
    const auto output = [&](size_t position) {
      return buffers.output + (offset + static_cast<size_t>(ring.ranks[position]) * part.total) * buffers.element;
    };
    const char* const own = buffers.input + offset * buffers.element;
    primitive.Do({false, true, own, own == output(0) ? nullptr : output(0), count, false});
    for (size_t j = 1; j + 1 < ranks; ++j) primitive.Do({true, true, nullptr, output(ranks - j), count, false});
    primitive.Do({true, false, nullptr, output(1), count, false});
  });
}

void Broadcast(const Ring& ring, const Part& part, const Buffers& buffers, int root, Primitive& primitive) {
  const bool first = ring.ranks[0] == root;
  const bool last = ring.ranks[1] == root;
  EachChunk(part, [&](size_t offset, size_t count) {
    char* const output = buffers.output + offset * buffers.element;
    if (first) {
      const char* const input = buffers.input + offset * buffers.element;
      primitive.Do({false, true, input, input == output ? nullptr : output, count, false});
    } else {
      primitive.Do({true, !last, nullptr, output, count, false});
    }
  });
}

void Reduce(const Ring& ring, const Part& part, const Buffers& buffers, int root, Primitive& primitive) {
  const bool first = ring.ranks.back() == root;
  const bool last = ring.ranks[0] == root;
  EachChunk(part, [&](size_t offset, size_t count) {
    const size_t at = offset * buffers.element;
    primitive.Do({!first, !last, buffers.input + at, last ? buffers.output + at : nullptr, count, last});
  });
}

void SendAll(const char* input, size_t bytes, size_t chunk, Primitive& primitive) {
  EachPiece(bytes, chunk, [&](size_t at, size_t count) {
    primitive.Do({false, true, input + at, nullptr, count, false});
  });
}

void ReceiveAll(char* output, size_t bytes, size_t chunk, Primitive& primitive) {
  EachPiece(bytes, chunk, [&](size_t at, size_t count) {
    primitive.Do({true, false, nullptr, output + at, count, false});
  });
}

}  // namespace nccl_host
