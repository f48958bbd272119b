// The client library against a real server.
//
//   client_server_program ADDRESS UNIX_ADDRESS
//
// The server takes messages of 4 MiB at most and shares memory over the unix
// socket.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "client/product_check.h"
#include "gemmd/client.h"
#include "tests/support/client_matrices.h"

namespace gemmd {
namespace {

std::string server_address;
std::string unix_address;

// Verifies every product that it can.
class ClientServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto client = Client::Create(
        {.address = server_address, .connections = 2, .verify_fraction = 1});
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
  }
  ResidentMatrix Upload(const Matrix& x, const UploadOptions& options = {}) {
    auto matrix = client_->Upload(x.view(), options);
    EXPECT_TRUE(matrix.ok()) << matrix.status();
    return matrix.ok() ? *std::move(matrix) : ResidentMatrix();
  }
  Matrix Product(const SgemmCall& call) {
    auto answer = client_->Sgemm(call);
    EXPECT_TRUE(answer.ok()) << answer.status();
    return answer.ok() ? std::move(answer->c) : Matrix();
  }
  Matrix Download(const ResidentMatrix& matrix) {
    auto numbers = client_->Download(matrix);
    EXPECT_TRUE(numbers.ok()) << numbers.status();
    return numbers.ok() ? *std::move(numbers) : Matrix();
  }

  std::unique_ptr<Client> client_;
};

TEST_F(ClientServerTest, InlineProductsAreVerified) {
  for (int n : {1, 7, 64, 200, 700}) {
    const Matrix a = RandomMatrix(n, n + 3);
    const Matrix b = RandomMatrix(n, n + 3);
    Matrix c = RandomMatrix(n, n);
    const auto answer = client_->Sgemm({.a = a.view(),
                                        .b = b.view(),
                                        .c = c.view(),
                                        .transpose_b = true,
                                        .alpha = -1.5f,
                                        .beta = 0.5f,
                                        .output = c.mutable_view()});
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_TRUE(answer->verified);
  }
}

TEST_F(ClientServerTest, AResidentMatrixGivesTheBitsOfAnInlineOne) {
  const Matrix a = RandomMatrix(33, 500);
  const Matrix b = RandomMatrix(500, 77);
  const ResidentMatrix resident_a = Upload(a);
  const ResidentMatrix resident_b = Upload(b, {.source_lives = true});
  const Matrix inline_product = Product({.a = a.view(), .b = b.view()});
  EXPECT_TRUE(
      SameBits(Product({.a = a.view(), .b = resident_b}), inline_product));
  EXPECT_TRUE(
      SameBits(Product({.a = resident_a, .b = resident_b}), inline_product));
  auto stays = client_->Sgemm(
      {.a = resident_a, .b = resident_b, .resident_output = ResidentOutput{}});
  ASSERT_TRUE(stays.ok()) << stays.status();
  EXPECT_TRUE(SameBits(Download(stays->resident), inline_product));
}

TEST_F(ClientServerTest, AnUploadOverTwoConnectionsComesBackAsItWent) {
  // 24 MiB, cut where blocks of the digest are not.
  const Matrix x = RandomMatrix(6'301, 1'001);
  const ResidentMatrix matrix = Upload(x);
  EXPECT_TRUE(SameBits(Download(matrix), x));
  Matrix rows(5, 1'001);
  ASSERT_TRUE(client_->Download(matrix, 3'149, rows.mutable_view()).ok());
  EXPECT_TRUE(SameBits(rows.data(), x.data() + 3'149 * 1'001, 5 * 1'001));
  // Held already: under a second name at once.
  const ResidentMatrix again = Upload(x);
  EXPECT_TRUE(SameBits(Download(again), x));
}

TEST_F(ClientServerTest, SmallAndEmptyMatricesAreMatrices) {
  for (auto [rows, cols] :
       {std::pair<int64_t, int64_t>{1, 1}, {0, 5}, {5, 0}, {3, 1}}) {
    const Matrix x = RandomMatrix(rows, cols);
    for (bool digest : {false, true}) {
      const ResidentMatrix matrix = Upload(x, {.digest = digest});
      ASSERT_TRUE(matrix) << rows << " x " << cols;
      EXPECT_TRUE(SameBits(Download(matrix), x));
    }
  }
}

TEST_F(ClientServerTest, AccumulatesOnTheServer) {
  const Matrix a = RandomMatrix(20, 30);
  const Matrix b = RandomMatrix(30, 40);
  const Matrix start = RandomMatrix(20, 40);
  ResidentMatrix sum = Upload(start);
  for (int i = 0; i < 3; ++i) {
    const auto answer =
        client_->Sgemm({.a = a.view(),
                        .b = b.view(),
                        .c = sum,
                        .beta = 1.0f,
                        .resident_output = ResidentOutput{.into = &sum}});
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_FALSE(answer->execution.replayed);
  }
  const Matrix total = Download(sum);
  const Matrix once = Product({.a = a.view(), .b = b.view()});
  for (int i = 0; i < 20 * 40; ++i) {
    EXPECT_NEAR(total.data()[i], start.data()[i] + 3 * once.data()[i], 1e-4f);
  }
}

TEST_F(ClientServerTest, ARepeatedRequestIdIsAppliedOnce) {
  const Matrix a = RandomMatrix(20, 30);
  const Matrix b = RandomMatrix(30, 40);
  const Matrix start = RandomMatrix(20, 40);
  ResidentMatrix sum = Upload(start);
  const SgemmCall call = {.a = a.view(),
                          .b = b.view(),
                          .c = sum,
                          .beta = 1.0f,
                          .resident_output = ResidentOutput{.into = &sum},
                          .request_id = "only-once"};
  ASSERT_TRUE(client_->Sgemm(call).ok());
  const Matrix once = Download(sum);
  const auto repeated = client_->Sgemm(call);
  ASSERT_TRUE(repeated.ok()) << repeated.status();
  EXPECT_TRUE(repeated->execution.replayed);
  EXPECT_TRUE(SameBits(Download(sum), once));
}

TEST_F(ClientServerTest, AMatrixThatWasDeletedIsUploadedAgain) {
  const Matrix a = RandomMatrix(9, 50);
  const Matrix b = RandomMatrix(50, 60);
  const ResidentMatrix resident = Upload(b, {.source_lives = true});
  const Matrix before = Product({.a = a.view(), .b = resident});
  ASSERT_TRUE(client_->DeleteMatrix(resident.id()).ok());
  EXPECT_TRUE(SameBits(Product({.a = a.view(), .b = resident}), before));
  ASSERT_TRUE(client_->DeleteMatrix(resident.id()).ok());
  EXPECT_TRUE(SameBits(Download(resident), b));
}

TEST_F(ClientServerTest, ListsWhatIsThereAndDropsWhatIsNot) {
  const Matrix x = RandomMatrix(10, 20);
  std::string id;
  {
    const ResidentMatrix matrix = Upload(x, {.id = "listed"});
    id = matrix.id();
    const auto all = client_->ListMatrices();
    ASSERT_TRUE(all.ok()) << all.status();
    ASSERT_EQ(all->size(), 1u);
    EXPECT_EQ(all->front().id, "listed");
    EXPECT_EQ(all->front().rows, 10);
    EXPECT_EQ(all->front().cols, 20);
    EXPECT_TRUE(all->front().complete);
    EXPECT_GE(all->front().device_bytes, 800u);
    EXPECT_GT(all->front().expires_in, absl::Minutes(1));
    EXPECT_TRUE(client_->FindMatrix("listed").ok());
    // Ids are a client's own.
    auto other = *Client::Create({.address = server_address});
    EXPECT_TRUE(absl::IsNotFound(other->FindMatrix("listed").status()));
  }
  for (int i = 0; i < 1000 && client_->FindMatrix(id).ok(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_TRUE(absl::IsNotFound(client_->FindMatrix(id).status()));
}

TEST_F(ClientServerTest, ProductsOfAnySizeAreVerified) {
  for (auto [m, n, k] : {std::array<int64_t, 3>{1500, 1100, 20},  // answer
                         {20, 30, 70'000},                        // operands
                         {1300, 1200, 1100}}) {                   // all
    const Matrix a = RandomMatrix(m, k);
    const Matrix b = RandomMatrix(k, n);
    const auto answer = client_->Sgemm({.a = a.view(), .b = b.view()});
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_TRUE(answer->verified);
    EXPECT_EQ(answer->c.rows(), m);
    EXPECT_EQ(answer->c.cols(), n);
  }
}

TEST_F(ClientServerTest, ManyThreadsShareAMatrix) {
  const Matrix b = RandomMatrix(200, 300);
  const ResidentMatrix resident = Upload(b, {.source_lives = true});
  std::vector<Matrix> rows;
  for (int i = 0; i < 8; ++i) rows.push_back(RandomMatrix(1, 200));
  std::vector<std::jthread> threads;
  threads.reserve(rows.size());
  for (const Matrix& row : rows) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) {
        const auto answer = client_->Sgemm({.a = row.view(), .b = resident});
        ASSERT_TRUE(answer.ok()) << answer.status();
        EXPECT_TRUE(answer->verified);
      }
    });
  }
}

// Copies into the memory from `offset` on, with `padding` between the rows, and
// moves the offset on.
MutableMatrixView Place(const SharedMemory& memory, const Matrix& x,
                        int64_t padding, size_t* offset) {
  const int64_t ld = x.cols() + padding;
  MutableMatrixView to = memory.Matrix(x.rows(), ld, *offset);
  to.cols = x.cols();
  for (int64_t i = 0; i < x.rows(); ++i) {
    std::memcpy(to.data + i * ld, x.data() + i * x.cols(), 4 * x.cols());
  }
  *offset += 4 * x.rows() * ld;
  return to;
}

TEST(SharedMemoryTest, ProductsReadAndWriteItWhereItIs) {
  auto client =
      *Client::Create({.address = unix_address, .verify_fraction = 1});
  const auto memory = client->ShareMemory(64 << 20);
  ASSERT_TRUE(memory.ok()) << memory.status();
  for (auto [m, n, k] : {std::array<int64_t, 3>{1, 1, 1},
                         {33, 20, 70},
                         {1300, 1200, 100}}) {  // an answer above 4 MiB
    const Matrix a = RandomMatrix(m, k);
    const Matrix b = RandomMatrix(k, n);
    const Matrix c = RandomMatrix(m, n);
    size_t offset = 0;
    const MutableMatrixView shared_a = Place(*memory, a, 3, &offset);
    const MutableMatrixView shared_b = Place(*memory, b, 0, &offset);
    const MutableMatrixView shared_c = Place(*memory, c, 5, &offset);
    const auto here =
        client->Sgemm({.a = a.view(), .b = b.view(), .c = c.view(), .beta = 2});
    ASSERT_TRUE(here.ok()) << here.status();
    // In the place of C.
    const auto shared = client->Sgemm({.a = shared_a,
                                       .b = shared_b,
                                       .c = shared_c,
                                       .beta = 2,
                                       .output = shared_c});
    ASSERT_TRUE(shared.ok()) << shared.status();
    EXPECT_TRUE(shared->verified);
    EXPECT_EQ(shared->c.data(), nullptr);
    for (int64_t i = 0; i < m; ++i) {
      ASSERT_TRUE(
          SameBits(shared_c.data + i * (n + 5), &here->c.data()[i * n], n))
          << i;
    }
    // Some here, some there.
    const auto mixed = client->Sgemm({.a = a.view(), .b = shared_b});
    ASSERT_TRUE(mixed.ok()) << mixed.status();
    EXPECT_TRUE(mixed->verified);
  }
}

TEST(SharedMemoryTest, IsOfUnixSocketsAlone) {
  auto client = *Client::Create({.address = server_address});
  EXPECT_TRUE(absl::IsFailedPrecondition(client->ShareMemory(4096).status()));
  auto nobody = *Client::Create({.address = "unix:/tmp/gemmd_no_such_socket"});
  EXPECT_TRUE(absl::IsUnavailable(nobody->ShareMemory(4096).status()));
}

}  // namespace
}  // namespace gemmd

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s ADDRESS UNIX_ADDRESS\n", argv[0]);
    return 2;
  }
  gemmd::server_address = argv[1];
  gemmd::unix_address = argv[2];
  return RUN_ALL_TESTS();
}
