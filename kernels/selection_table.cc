#include "kernels/selection_table.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace gemmd {
namespace {

constexpr absl::string_view kFirstLine = "gemmd selection table 1";
constexpr float kUnknown = std::numeric_limits<float>::infinity();
constexpr int64_t kTile = 64;  // m and n beyond it count in whole ones
constexpr size_t kMaxValues = size_t{1} << 22;  // of a file, before it is read

// The lines of a text, one after the other, with errors that name them.
class Lines {
 public:
  explicit Lines(absl::string_view text)
      : lines_(absl::StrSplit(text, '\n', absl::SkipWhitespace())) {}

  absl::Status Error(absl::string_view wanted) const {
    return absl::InvalidArgumentError(
        absl::StrCat("line ", next_, ": wanted ", wanted));
  }
  // The next line, "" after the last.
  absl::string_view Next() {
    const size_t at = next_++;
    return at < lines_.size() ? lines_[at] : absl::string_view();
  }
  // What follows "<key>: " on the next line.
  absl::StatusOr<std::string> Value(absl::string_view key) {
    absl::string_view line = Next();
    const std::string prefix = absl::StrCat(key, ": ");
    if (!absl::ConsumePrefix(&line, prefix) || line.empty()) {
      return Error(absl::StrCat("\"", prefix, "...\""));
    }
    return std::string(line);
  }
  absl::StatusOr<std::vector<int64_t>> Sizes(absl::string_view key) {
    const auto text = Value(key);
    if (!text.ok()) return text.status();
    std::vector<int64_t> sizes;
    for (absl::string_view word : absl::StrSplit(*text, ' ')) {
      int64_t size;
      if (!absl::SimpleAtoi(word, &size) || size < 1 ||
          (!sizes.empty() && size <= sizes.back())) {
        return Error("increasing sizes of 1 or more");
      }
      sizes.push_back(size);
    }
    if (sizes.size() < 2) return Error("two sizes or more");
    return sizes;
  }
  bool done() const { return next_ >= lines_.size(); }

 private:
  const std::vector<absl::string_view> lines_;
  size_t next_ = 0;
};

absl::StatusOr<SelectionStamp> ReadStamp(Lines& lines) {
  SelectionStamp stamp;
  for (const auto& [key, field] :
       {std::pair("gpu", &stamp.gpu), std::pair("driver", &stamp.driver),
        std::pair("cuda", &stamp.cuda), std::pair("cublas", &stamp.cublas),
        std::pair("build", &stamp.build)}) {
    auto value = lines.Value(key);
    if (!value.ok()) return value.status();
    *field = *std::move(value);
  }
  return stamp;
}

absl::StatusOr<SelectionGrid> ReadGrid(Lines& lines) {
  SelectionGrid grid;
  for (const auto& [key, field] :
       {std::pair("m", &grid.m), std::pair("n", &grid.n),
        std::pair("k", &grid.k)}) {
    auto sizes = lines.Sizes(key);
    if (!sizes.ok()) return sizes.status();
    *field = *std::move(sizes);
  }
  return grid;
}

absl::StatusOr<float> ReadTime(absl::string_view word, const Lines& lines) {
  float us = kUnknown;
  if (word == "-") return us;
  if (!absl::SimpleAtof(word, &us) || !std::isfinite(us) || us <= 0) {
    return lines.Error("microseconds above 0, or \"-\"");
  }
  return us;
}

// Where `x` lies among `sizes`: between [at] and [at + 1], at that share of the
// way; past the end the share is above 1.
struct Place {
  size_t at;
  double share;
};
Place PlaceOf(double x, const std::vector<double>& places) {
  size_t at = 0;
  while (at + 2 < places.size() && x >= places[at + 1]) ++at;
  const double low = places[at];
  const double high = places[at + 1];
  return {at, std::max(0.0, (x - low) / (high - low))};
}

double InTiles(int64_t size) {
  const auto x = static_cast<double>(size);
  return size <= kTile ? x : std::ceil(x / kTile) * kTile;
}

std::vector<double> PlacesInTiles(const std::vector<int64_t>& sizes) {
  std::vector<double> places;
  places.reserve(sizes.size());
  for (const int64_t size : sizes) places.push_back(InTiles(size));
  const bool apart = std::ranges::adjacent_find(
                         places, std::greater_equal<double>()) == places.end();
  return apart ? places : std::vector<double>(sizes.begin(), sizes.end());
}

bool IsAligned(const float* x, int64_t ld) {
  return reinterpret_cast<uintptr_t>(x) % 16 == 0 && ld % 4 == 0;
}

}  // namespace

std::string SelectionClass::Name() const {
  return absl::StrCat(transpose_a ? "T" : "N", transpose_b ? "T" : "N",
                      aligned ? " aligned" : " unaligned");
}

SelectionClass ClassOf(const SgemmArgs& args) {
  return {args.shape.transpose_a, args.shape.transpose_b,
          IsAligned(args.a, args.lda) && IsAligned(args.b, args.ldb) &&
              IsAligned(args.c, args.ldc)};
}

SelectionTable::SelectionTable(SelectionStamp stamp, SelectionGrid grid,
                               std::vector<std::string> kernels,
                               std::vector<float> us)
    : stamp_(std::move(stamp)),
      grid_(std::move(grid)),
      kernels_(std::move(kernels)),
      us_(std::move(us)),
      places_m_(PlacesInTiles(grid_.m)),
      places_n_(PlacesInTiles(grid_.n)),
      places_k_(grid_.k.begin(), grid_.k.end()) {}

absl::StatusOr<SelectionTable> SelectionTable::Parse(absl::string_view text) {
  Lines lines(text);
  if (lines.Next() != kFirstLine) {
    return lines.Error(absl::StrCat("\"", kFirstLine, "\""));
  }
  const auto stamp = ReadStamp(lines);
  if (!stamp.ok()) return stamp.status();
  const auto grid = ReadGrid(lines);
  if (!grid.ok()) return grid.status();
  const auto names = lines.Value("kernels");
  if (!names.ok()) return names.status();
  const std::vector<std::string> kernels = absl::StrSplit(*names, ' ');
  const size_t of_a_line = grid->k.size() * kernels.size();
  if (grid->size() * kernels.size() * SelectionClass::kCount > kMaxValues) {
    return lines.Error("a smaller table");
  }
  std::vector<float> us;
  for (int c = 0; c < SelectionClass::kCount; ++c) {
    for (const int64_t m : grid->m) {
      for (const int64_t n : grid->n) {
        absl::string_view line = lines.Next();
        const std::string start = absl::StrCat(
            SelectionClass::OfIndex(c).Name(), " ", m, " ", n, ": ");
        if (!absl::ConsumePrefix(&line, start)) {
          return lines.Error(absl::StrCat("\"", start, "...\""));
        }
        const size_t before = us.size();
        for (absl::string_view word : absl::StrSplit(line, ' ')) {
          if (word == "|") continue;
          const auto time = ReadTime(word, lines);
          if (!time.ok()) return time.status();
          us.push_back(*time);
        }
        if (us.size() - before != of_a_line) {
          return lines.Error(absl::StrCat(of_a_line, " times"));
        }
      }
    }
  }
  if (!lines.done()) return lines.Error("no more lines");
  return SelectionTable(*stamp, *grid, kernels, std::move(us));
}

std::string SelectionTable::ToText() const {
  std::string text = absl::StrCat(
      kFirstLine, "\ngpu: ", stamp_.gpu, "\ndriver: ", stamp_.driver,
      "\ncuda: ", stamp_.cuda, "\ncublas: ", stamp_.cublas,
      "\nbuild: ", stamp_.build, "\nm: ", absl::StrJoin(grid_.m, " "),
      "\nn: ", absl::StrJoin(grid_.n, " "),
      "\nk: ", absl::StrJoin(grid_.k, " "),
      "\nkernels: ", absl::StrJoin(kernels_, " "), "\n");
  const float* next = us_.data();
  for (int c = 0; c < SelectionClass::kCount; ++c) {
    for (const int64_t m : grid_.m) {
      for (const int64_t n : grid_.n) {
        absl::StrAppend(&text, SelectionClass::OfIndex(c).Name(), " ", m, " ",
                        n, ":");
        for (size_t k = 0; k < grid_.k.size(); ++k) {
          if (k > 0) absl::StrAppend(&text, " |");
          for (size_t i = 0; i < kernels_.size(); ++i, ++next) {
            if (std::isinf(*next)) {
              absl::StrAppend(&text, " -");
            } else {
              absl::StrAppendFormat(&text, " %.4g", *next);
            }
          }
        }
        absl::StrAppend(&text, "\n");
      }
    }
  }
  return text;
}

std::span<const float> SelectionTable::Times(int class_index, size_t m,
                                             size_t n, size_t k) const {
  const size_t point =
      ((class_index * grid_.m.size() + m) * grid_.n.size() + n) *
          grid_.k.size() +
      k;
  return std::span(us_).subspan(point * kernels_.size(), kernels_.size());
}

std::span<const float> SelectionTable::Measured(SelectionClass c, int64_t m,
                                                int64_t n, int64_t k) const {
  const auto index = [](const std::vector<int64_t>& sizes, int64_t size) {
    return static_cast<size_t>(std::ranges::find(sizes, size) - sizes.begin());
  };
  return Times(c.index(), index(grid_.m, m), index(grid_.n, n),
               index(grid_.k, k));
}

void SelectionTable::Predict(const SgemmArgs& args,
                             std::span<double> us) const {
  const int c = ClassOf(args).index();
  const Place m = PlaceOf(InTiles(args.shape.m), places_m_);
  const Place n = PlaceOf(InTiles(args.shape.n), places_n_);
  const Place k = PlaceOf(static_cast<double>(args.shape.k), places_k_);
  std::ranges::fill(us, 0.0);
  for (int corner = 0; corner < 8; ++corner) {
    const size_t dm = corner & 1;
    const size_t dn = corner >> 1 & 1;
    const size_t dk = corner >> 2;
    const double weight = (dm == 1 ? m.share : 1 - m.share) *
                          (dn == 1 ? n.share : 1 - n.share) *
                          (dk == 1 ? k.share : 1 - k.share);
    // A corner that does not count may be unknown.
    if (weight == 0) continue;
    const auto times = Times(c, m.at + dm, n.at + dn, k.at + dk);
    for (size_t i = 0; i < kernels_.size(); ++i) {
      us[i] += std::isinf(times[i]) ? kUnknown : weight * times[i];
    }
  }
  // Times that fall with size, continued far enough, fall below any.
  constexpr double kLeast = 0.1;
  for (double& time : us.first(kernels_.size())) {
    time = std::max(time, kLeast);
  }
}

}  // namespace gemmd
