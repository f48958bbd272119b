#include "client/product_check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <vector>

namespace gemmd::client {
namespace {

using Factors = ProductCheck::Factors;
using Precision = SgemmCall::Precision;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kMax = std::numeric_limits<float>::max();
constexpr float kTiny = std::numeric_limits<float>::denorm_min();

// A product of random factors, and its right answer as a server of the given
// precision finds it: sums in order of k in FP32, or of inputs cut to TF32.
class Case {
 public:
  explicit Case(unsigned seed) : random(seed) {}

  void Draw(std::function<float()> number) {
    const auto size = [this] {
      return static_cast<int64_t>(1 + random() % 40);
    };
    factors.size = {
        .m = size(), .n = size(), .k = static_cast<int64_t>(random() % 60)};
    factors.transpose_a = random() % 2;
    factors.transpose_b = random() % 2;
    const auto [m, n, k] = factors.size;
    factors.alpha = random() % 3 == 0 ? 1.0f : number();
    factors.beta = random() % 2 == 0 ? 0.0f : number();
    Fill(&a, factors.transpose_a ? k : m, factors.transpose_a ? m : k, number,
         &factors.a);
    Fill(&b, factors.transpose_b ? n : k, factors.transpose_b ? k : n, number,
         &factors.b);
    Fill(&c, m, n, number, &factors.c);
    if (factors.beta == 0) c.assign(c.size(), kNan);
  }

  void Multiply() {
    const auto [m, n, k] = factors.size;
    product.assign(m * n, kNan);
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        float sum = 0;
        for (int64_t l = 0; l < k; ++l) {
          const float x =
              factors.transpose_a ? At(factors.a, l, i) : At(factors.a, i, l);
          const float y =
              factors.transpose_b ? At(factors.b, j, l) : At(factors.b, l, j);
          sum = std::fma(Cut(x), Cut(y), sum);
        }
        float result = factors.alpha == 0 ? 0 : factors.alpha * sum;
        if (factors.beta != 0) {
          result = std::fma(factors.beta, At(factors.c, i, j), result);
        }
        product[i * n + j] = result;
      }
    }
  }

  absl::Status Check() {
    ProductCheck check(factors, random());
    return check.Check({product.data(), factors.size.m, factors.size.n, 0});
  }

  std::mt19937 random;
  Factors factors;
  std::vector<float> a, b, c, product;

 private:
  static float At(const MatrixView& x, int64_t i, int64_t j) {
    return x.data[i * LeadingDimension(x) + j];
  }
  // Truncates to 10 bits, which is the worst that TF32 units do.
  float Cut(float x) const {
    if (factors.precision != Precision::kTf32 || !std::isfinite(x)) return x;
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    bits &= ~0x1fffu;
    std::memcpy(&x, &bits, sizeof bits);
    return x;
  }
  void Fill(std::vector<float>* to, int64_t rows, int64_t cols,
            const std::function<float()>& number, MatrixView* view) {
    const int64_t ld = cols + random() % 3;
    to->assign(rows * ld, kNan);  // the padding, too
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < cols; ++j) (*to)[i * ld + j] = number();
    }
    *view = {to->data(), rows, cols, ld};
  }
};

unsigned Seed() {
  static const unsigned seed = [] {
    const unsigned value = std::random_device{}();
    std::printf("seed %u\n", value);
    return value;
  }();
  return seed;
}

float Uniform(std::mt19937& random) {
  return std::uniform_real_distribution<float>(-1, 1)(random);
}

// Every exponent, sign and special value there is.
float AnyBits(std::mt19937& random) {
  const auto bits = static_cast<uint32_t>(random());
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

float Nasty(std::mt19937& random) {
  const float values[] = {0.0f,   -0.0f,  1.0f,  -1.0f,          kInf,
                          -kInf,  kNan,   kMax,  -kMax,          kTiny,
                          -kTiny, 1e-30f, 1e30f, 1.17549435e-38f};
  return random() % 8 == 0 ? values[random() % std::size(values)]
                           : Uniform(random);
}

TEST(ProductCheckTest, ARightProductPassesWhateverItIsMadeOf) {
  Case x(Seed());
  const std::function<float()> kinds[] = {
      [&] { return Uniform(x.random); },
      [&] { return AnyBits(x.random); },
      [&] { return Nasty(x.random); },
      [&] { return Uniform(x.random) * 1e-38f; },
      [&] { return Uniform(x.random) * 1e-20f; },
      [&] { return Uniform(x.random) * 1e19f; },
      [&] { return std::exp2(Uniform(x.random) * 60); },
      [&] { return 1 + 0x1p-13f; },  // every rounding goes one way
      [&] { return x.random() % 5 == 0 ? Uniform(x.random) : 0.0f; },
  };
  for (int round = 0; round < 1000; ++round) {
    for (const std::function<float()>& number : kinds) {
      x.factors.precision =
          round % 3 == 0 ? Precision::kTf32 : Precision::kFp32;
      x.Draw(number);
      x.Multiply();
      const absl::Status status = x.Check();
      ASSERT_TRUE(status.ok())
          << status << " m " << x.factors.size.m << " n " << x.factors.size.n
          << " k " << x.factors.size.k << " alpha " << x.factors.alpha
          << " beta " << x.factors.beta << " kind " << &number - kinds
          << " round " << round;
    }
  }
}

TEST(ProductCheckTest, ARightLargeProductPasses) {
  // Sums of one sign, where the errors of float32 add up most.
  Case x(Seed());
  for (Precision precision : {Precision::kFp32, Precision::kTf32}) {
    x.factors.precision = precision;
    x.factors.size = {.m = 3, .n = 40, .k = 20'000};
    x.a.resize(3 * 20'000);
    x.b.resize(20'000 * 40);
    for (float& v : x.a) v = 1 + Uniform(x.random) * 1e-3f;
    for (float& v : x.b) v = 1 + Uniform(x.random) * 1e-3f;
    x.factors.a = {x.a.data(), 3, 20'000, 0};
    x.factors.b = {x.b.data(), 20'000, 40, 0};
    x.Multiply();
    const absl::Status status = x.Check();
    EXPECT_TRUE(status.ok()) << status;
  }
}

// Counts how many of `rounds` wrong products pass.
int Missed(int rounds, const std::function<void(Case&)>& spoil) {
  Case x(Seed() + 1);
  int missed = 0;
  for (int round = 0; round < rounds; ++round) {
    x.Draw([&] { return Uniform(x.random); });
    if (x.factors.size.k == 0 || x.factors.alpha == 0) continue;
    x.Multiply();
    spoil(x);
    missed += x.Check().ok();
  }
  return missed;
}

TEST(ProductCheckTest, OneWrongElementIsFound) {
  EXPECT_EQ(Missed(2000,
                   [](Case& x) {
                     float& element = x.product[x.random() % x.product.size()];
                     element += x.random() % 2 == 0 ? 0.1f : -0.1f;
                   }),
            0);
}

TEST(ProductCheckTest, AWrongExponentSignOrNanIsFound) {
  EXPECT_EQ(Missed(2000,
                   [](Case& x) {
                     float& element = x.product[x.random() % x.product.size()];
                     switch (x.random() % 3) {
                       case 0:
                         element = element * 4 + (element < 0 ? -1 : 1);
                         break;
                       case 1:
                         element = -element + (element < 0 ? 1 : -1);
                         break;
                       default:
                         element = x.random() % 2 == 0 ? kNan : kInf;
                     }
                   }),
            0);
}

TEST(ProductCheckTest, ErrorsThatCancelAreMissedAsSeldomAsPromised) {
  // Two elements of a row, off by the same: a vector of signs misses it with
  // one half, eight with 1/256; the bound is six standard deviations above.
  const int rounds = 4000;
  const int missed = Missed(rounds, [](Case& x) {
    const int64_t n = x.factors.size.n;
    if (n < 2) {
      x.product[0] += 1;
      return;
    }
    x.product[0] += 1;
    x.product[n - 1] += 1;
  });
  EXPECT_LT(missed, rounds / 256.0 + 6 * std::sqrt(rounds / 256.0));
  EXPECT_GT(missed, 0);  // eight vectors are not more than they are
}

TEST(ProductCheckTest, SwappedRowsAndAStaleProductAreFound) {
  EXPECT_EQ(
      Missed(500, [](Case& x) { x.product.assign(x.product.size(), 0.5f); }),
      0);
}

TEST(ProductCheckTest, AWrongElementBesideANanIsFound) {
  // The NaN of B takes its column out, that of A its row; the rest is checked.
  Case x(Seed() + 2);
  int found = 0;
  for (int round = 0; round < 300; ++round) {
    x.Draw([&] { return Uniform(x.random); });
    const auto [m, n, k] = x.factors.size;
    if (m < 3 || n < 3 || k < 1) continue;
    x.a[0] = kNan;  // row 0 of op(A), in either form
    x.b[0] = kInf;  // column 0 of op(B)
    x.Multiply();
    ASSERT_TRUE(x.Check().ok());
    x.product[2 * n + 2] += 1;
    ASSERT_FALSE(x.Check().ok());
    ++found;
  }
  EXPECT_GT(found, 100);
}

}  // namespace
}  // namespace gemmd::client
