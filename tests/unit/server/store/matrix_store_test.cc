// Names, room, time and outputs.

#include "server/store/matrix_store.h"

#include "proto/error_details.h"
#include "tests/unit/server/store/store_fixture.h"

namespace gemmd {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using ::testing::HasSubstr;

class MatrixStoreTest : public StoreFixture {};

TEST_F(MatrixStoreTest, AnotherClientSeesNothing) {
  const std::string bytes = RandomBytes(64);
  UploadSpec spec = Spec("a", 4, 4);
  spec.digest = DigestOf(bytes);
  ASSERT_TRUE(Upload(spec, bytes).ok());
  EXPECT_EQ(FindCode("a", "bob"), absl::StatusCode::kNotFound);
  EXPECT_EQ(store_->Delete("bob", "a").code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(store_->List("bob").empty());
  // I7: a digest finds only the caller's own.
  spec.client = "bob";
  const auto bobs = store_->BeginUpload(spec);
  ASSERT_TRUE(bobs.ok());
  EXPECT_FALSE((*bobs)->already_held());
  EXPECT_EQ(FindCode("a"), absl::StatusCode::kOk) << "the same id, two owners";
}

TEST_F(MatrixStoreTest, AnIdThatIsTakenIsRefused) {
  ASSERT_TRUE(Upload("a", 4, 4).ok());
  EXPECT_EQ(Upload("a", 4, 4).status().code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Upload("a", 2, 8).status().code(),
            absl::StatusCode::kAlreadyExists);
}

TEST_F(MatrixStoreTest, TheSameDataIsHeldOnceUnderEveryNameOfIt) {
  const std::string bytes = RandomBytes(64);
  UploadSpec spec = Spec("a", 4, 4);
  spec.digest = DigestOf(bytes);
  ASSERT_TRUE(Upload(spec, bytes).ok());
  for (const char* const id : {"a", "b", ""}) {
    spec.id = id;
    auto upload = store_->BeginUpload(spec);
    ASSERT_TRUE(upload.ok()) << upload.status();
    EXPECT_TRUE((*upload)->already_held());
    EXPECT_EQ((*upload)->missing_bytes(), 0u);
    EXPECT_EQ(Append(**upload, "x").code(), absl::StatusCode::kInvalidArgument);
    const auto result = Finish(**upload);
    ASSERT_TRUE(result.ok());
    EXPECT_TRUE(result->complete && result->already_held);
    EXPECT_FALSE(result->id.empty());
    EXPECT_EQ(*store_->Find("alice", result->id), *store_->Find("alice", "a"));
  }
  EXPECT_EQ(store_->used_bytes(), 64u);
  EXPECT_EQ(store_->matrices(), 3);
  // Not another shape with the same bytes.
  spec.id = "c";
  spec.rows = spec.row_count = 2;
  spec.cols = 8;
  const auto other = store_->BeginUpload(spec);
  ASSERT_TRUE(other.ok());
  EXPECT_FALSE((*other)->already_held());
  // The data lives as long as a name of it.
  ASSERT_TRUE(store_->Delete("alice", "a").ok());
  EXPECT_EQ(ReadBack(*store_->Find("alice", "b")), bytes);
  // Another's digest under a name that is taken is not that matrix.
  spec = Spec("b", 4, 4);
  spec.digest = std::string(32, 'x');
  EXPECT_EQ(store_->BeginUpload(spec).status().code(),
            absl::StatusCode::kAlreadyExists);
}

TEST_F(MatrixStoreTest, ExpiresAfterItsLastUse) {
  Make({.ttl = absl::Minutes(10)}, {1 << 20});
  UploadSpec brief = Spec("brief", 4, 4);
  brief.ttl = absl::Minutes(1);
  ASSERT_TRUE(Upload(brief, RandomBytes(64)).ok());
  ASSERT_TRUE(Upload("usual", 4, 4).ok());
  const MonotonicTime start = MonotonicClock::now();
  store_->RemoveExpired(start + std::chrono::seconds(59));
  EXPECT_EQ(store_->matrices(), 2);
  store_->RemoveExpired(start + minutes(2));
  EXPECT_EQ(FindCode("brief"), absl::StatusCode::kNotFound);
  EXPECT_EQ(FindCode("usual"), absl::StatusCode::kOk);
  store_->RemoveExpired(start + minutes(11));
  EXPECT_EQ(FindCode("usual"), absl::StatusCode::kNotFound);
  EXPECT_EQ(observer_.count(Removal::kExpired), 2);
  EXPECT_EQ(store_->used_bytes(), 0u);
}

TEST_F(MatrixStoreTest, WhatIsInUseDoesNotExpireAndIsUsedUntilThen) {
  Make({.ttl = absl::Minutes(10)}, {1 << 20});
  ASSERT_TRUE(Upload("a", 4, 4).ok());
  auto used = store_->Find("alice", "a");
  const MonotonicTime start = MonotonicClock::now();
  store_->RemoveExpired(start + minutes(60));
  EXPECT_EQ(store_->matrices(), 1);
  EXPECT_EQ(store_->List("alice")[0].uses, 1);
  used->reset();
  store_->RemoveExpired(start + minutes(69));
  EXPECT_EQ(store_->matrices(), 1) << "it was used until minute 60";
  store_->RemoveExpired(start + minutes(71));
  EXPECT_EQ(store_->matrices(), 0);
}

TEST_F(MatrixStoreTest, ANameExpiresThoughTheDataIsUsedByAnother) {
  Make({.ttl = absl::Minutes(10)}, {1 << 20});
  const std::string bytes = RandomBytes(64);
  UploadSpec spec = Spec("a", 4, 4);
  spec.digest = DigestOf(bytes);
  ASSERT_TRUE(Upload(spec, bytes).ok());
  spec.id = "b";
  ASSERT_TRUE(Upload(spec, bytes).ok());
  const auto used = store_->Find("alice", "b");
  store_->RemoveExpired(MonotonicClock::now() + minutes(11));
  EXPECT_EQ(FindCode("a"), absl::StatusCode::kNotFound);
  EXPECT_EQ(FindCode("b"), absl::StatusCode::kOk);
}

TEST_F(MatrixStoreTest, ItsOwnThreadLooksAfterTheTime) {
  Make({.ttl = absl::Milliseconds(5)}, {1 << 20});
  ASSERT_TRUE(Upload("a", 4, 4).ok());
  // The observer is told last.
  while (observer_.count(Removal::kExpired) == 0) std::this_thread::yield();
  EXPECT_EQ(observer_.count(Removal::kExpired), 1);
  EXPECT_EQ(store_->matrices(), 0);
}

TEST_F(MatrixStoreTest, DeletingWhatIsInUseIsSafe) {
  const std::string bytes = RandomBytes(64);
  ASSERT_TRUE(Upload(Spec("a", 4, 4), bytes).ok());
  auto matrix = store_->Find("alice", "a");
  ASSERT_TRUE(store_->Delete("alice", "a").ok());
  EXPECT_EQ(FindCode("a"), absl::StatusCode::kNotFound);
  EXPECT_EQ(store_->used_bytes(), 64u) << "it is still there for its user";
  EXPECT_EQ(ReadBack(*matrix), bytes);
  ASSERT_TRUE(Upload("a", 4, 4).ok()) << "the name is free";
  matrix->reset();
  EXPECT_EQ(store_->used_bytes(), 64u);
  EXPECT_EQ(observer_.count(Removal::kDeleted), 1);
}

TEST_F(MatrixStoreTest, MakesRoomWithTheLeastRecentlyUsed) {
  Make({}, {4096});
  for (const char* const id : {"a", "b", "c", "d"}) {
    ASSERT_TRUE(Upload(id, 16, 16).ok());
  }
  ASSERT_TRUE(store_->Find("alice", "a").ok());
  ASSERT_TRUE(Upload("e", 16, 16).ok());
  EXPECT_EQ(FindCode("b"), absl::StatusCode::kNotFound);
  const auto used = store_->Find("alice", "c");
  ASSERT_TRUE(used.ok());
  ASSERT_TRUE(Upload("f", 16, 16).ok());
  EXPECT_EQ(FindCode("d"), absl::StatusCode::kNotFound);
  ASSERT_TRUE(Upload("g", 16, 16).ok());
  EXPECT_EQ(FindCode("a"), absl::StatusCode::kNotFound);
  EXPECT_EQ(FindCode("c"), absl::StatusCode::kOk) << "it is in use";
  EXPECT_EQ(FindCode("e"), absl::StatusCode::kOk);
  EXPECT_EQ(observer_.count(Removal::kEvicted), 3);
}

TEST_F(MatrixStoreTest, EvictsNothingWhereThatWouldNotDo) {
  Make({}, {4096});
  ASSERT_TRUE(Upload("free", 16, 16).ok());
  ASSERT_TRUE(Upload("used", 32, 16).ok());
  const auto used = store_->Find("alice", "used");
  const auto status = Upload("large", 48, 16).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(QuotaSubject(status), "matrix-store-bytes");
  EXPECT_TRUE(RetryDelay(status).has_value());
  EXPECT_EQ(FindCode("free"), absl::StatusCode::kOk);
}

TEST_F(MatrixStoreTest, WhatCouldNeverFitIsOutOfRange) {
  Make({}, {4096});
  ASSERT_TRUE(Upload("a", 16, 16).ok());
  const auto status = Upload("b", 32, 33).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--matrix-store-bytes"));
  EXPECT_EQ(FindCode("a"), absl::StatusCode::kOk);
  EXPECT_EQ(store_->capacity_bytes(), 4096u);
}

TEST_F(MatrixStoreTest, GathersAPieceFromScatteredRoom) {
  Make({}, {4096});
  for (const char* const id : {"a", "b", "c", "d"}) {
    ASSERT_TRUE(Upload(id, 16, 16).ok());
  }
  ASSERT_TRUE(store_->Delete("alice", "a").ok());
  ASSERT_TRUE(store_->Delete("alice", "c").ok());
  ASSERT_TRUE(store_->Find("alice", "b").ok());
  // 2048 bytes are free, in two pieces; the oldest, d, joins them.
  ASSERT_TRUE(Upload("large", 32, 16).ok());
  EXPECT_EQ(FindCode("b"), absl::StatusCode::kOk);
  EXPECT_EQ(FindCode("d"), absl::StatusCode::kNotFound);
}

TEST_F(MatrixStoreTest, AClientOverItsQuotaLosesOnlyItsOwn) {
  Make({.client_bytes = 2048}, {8192});
  UploadSpec bobs = Spec("b", 16, 16);
  bobs.client = "bob";
  ASSERT_TRUE(Upload(bobs, RandomBytes(1024)).ok());
  ASSERT_TRUE(Upload("a1", 16, 16).ok());
  ASSERT_TRUE(Upload("a2", 16, 16).ok());
  ASSERT_TRUE(Upload("a3", 16, 16).ok());
  EXPECT_EQ(FindCode("a1"), absl::StatusCode::kNotFound);
  EXPECT_EQ(FindCode("b", "bob"), absl::StatusCode::kOk);
  EXPECT_EQ(Upload("a4", 32, 17).status().code(),
            absl::StatusCode::kOutOfRange);
  const auto two = store_->Find("alice", "a2");
  const auto three = store_->Find("alice", "a3");
  EXPECT_EQ(Upload("a4", 16, 16).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(FindCode("b", "bob"), absl::StatusCode::kOk);
}

TEST_F(MatrixStoreTest, UploadsUnderWayAreNotEvicted) {
  Make({}, {4096});
  auto upload = store_->BeginUpload(Spec("u", 32, 16));
  ASSERT_TRUE(upload.ok());
  ASSERT_TRUE(Upload("a", 16, 16).ok());
  EXPECT_EQ(Upload("b", 48, 16).status().code(),
            absl::StatusCode::kResourceExhausted);
  ASSERT_TRUE(Append(**upload, RandomBytes(2048)).ok());
  EXPECT_TRUE(Finish(**upload).ok());
}

TEST_F(MatrixStoreTest, AnOutputIsThereWhenItIsCommitted) {
  auto output = store_->BeginOutput("alice", "c", 4, 4, std::nullopt, 0);
  ASSERT_TRUE(output.ok());
  EXPECT_EQ((*output)->id(), "c");
  EXPECT_EQ((*output)->matrix()->bytes(), 64u);
  EXPECT_EQ(FindCode("c"), absl::StatusCode::kNotFound);
  (*output)->Commit();
  EXPECT_EQ(*store_->Find("alice", "c"), (*output)->matrix());
  const auto minted = store_->BeginOutput("alice", "", 4, 4, std::nullopt, -1);
  ASSERT_TRUE(minted.ok());
  EXPECT_FALSE((*minted)->id().empty());
}

TEST_F(MatrixStoreTest, AnOutputThatIsNotCommittedLeavesNoTrace) {
  ASSERT_TRUE(Upload("c", 4, 4).ok());
  {
    const auto output = store_->BeginOutput("alice", "c", 4, 4, {}, 0);
    ASSERT_TRUE(output.ok());
    EXPECT_EQ(store_->used_bytes(), 128u);
  }
  EXPECT_EQ(store_->used_bytes(), 64u);
  EXPECT_EQ(store_->List("alice").size(), 1u);
}

TEST_F(MatrixStoreTest, AnOutputReplacesWhatItsUsersKeep) {
  const std::string bytes = RandomBytes(64);
  UploadSpec spec = Spec("c", 4, 4);
  spec.digest = DigestOf(bytes);
  spec.ttl = absl::Hours(2);
  ASSERT_TRUE(Upload(spec, bytes).ok());
  auto old = store_->Find("alice", "c");
  auto output = store_->BeginOutput("alice", "c", 4, 4, {}, 0);
  ASSERT_TRUE(output.ok());
  (*output)->Commit();
  EXPECT_NE(*store_->Find("alice", "c"), *old);
  EXPECT_EQ(ReadBack(*old), bytes);
  EXPECT_EQ(store_->used_bytes(), 128u);
  old->reset();
  EXPECT_EQ(store_->used_bytes(), 64u);
  EXPECT_EQ(observer_.count(Removal::kReplaced), 1);
  output->reset();
  // Its digest went with it, its ttl stays.
  EXPECT_EQ(store_->BeginUpload(spec).status().code(),
            absl::StatusCode::kAlreadyExists);
  store_->RemoveExpired(MonotonicClock::now() + hours(1));
  EXPECT_EQ(store_->matrices(), 1);
}

TEST_F(MatrixStoreTest, AnOutputOfAnotherShapeIsRefused) {
  ASSERT_TRUE(Upload("c", 4, 4).ok());
  const auto output = store_->BeginOutput("alice", "c", 2, 8, {}, 0);
  EXPECT_EQ(output.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(output.status().message()), HasSubstr("4 x 4"));
  const auto upload = store_->BeginUpload(Spec("u", 4, 4));
  EXPECT_EQ(store_->BeginOutput("alice", "u", 4, 4, {}, 0).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(MatrixStoreTest, AnOutputCommittedOverAnUploadStays) {
  auto output = store_->BeginOutput("alice", "c", 2, 2, {}, 0);
  auto upload = store_->BeginUpload(Spec("c", 2, 2));
  ASSERT_TRUE(output.ok() && upload.ok());
  (*output)->Commit();
  EXPECT_EQ(Append(**upload, "1234567812345678").code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(FindCode("c"), absl::StatusCode::kOk);
}

TEST_F(MatrixStoreTest, ListsByIdWithWhatThereIs) {
  ASSERT_TRUE(Upload("b", 4, 8).ok());
  const auto upload = store_->BeginUpload(Rows(Spec("a", 4, 4), 0, 2));
  const auto used = store_->Find("alice", "b");
  const std::vector<MatrixInfo> list = store_->List("alice");
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0].id, "a");
  EXPECT_FALSE(list[0].complete);
  EXPECT_EQ(list[1].id, "b");
  EXPECT_TRUE(list[1].complete);
  EXPECT_EQ(list[1].rows, 4);
  EXPECT_EQ(list[1].cols, 8);
  EXPECT_EQ(list[1].device_bytes, 128u);
  EXPECT_EQ(list[1].uses, 1);
  EXPECT_THAT(list[1].devices, ::testing::ElementsAre(0));
  EXPECT_GT(list[1].expires_in, absl::Minutes(14));
  EXPECT_LE(list[1].expires_in, absl::Minutes(15));
}

TEST_F(MatrixStoreTest, SpreadsMatricesOverDevicesAndCopiesThem) {
  Make({}, {4096, 4096});
  const std::string bytes = RandomBytes(1024);
  ASSERT_TRUE(Upload(Spec("a", 16, 16), bytes).ok());
  ASSERT_TRUE(Upload("b", 16, 16).ok());
  const auto a = *store_->Find("alice", "a");
  EXPECT_NE(a->home(), (*store_->Find("alice", "b"))->home());
  const int to = 1 - a->home();
  backend_->device(to).Hold();
  int done = 0;
  for (int i = 0; i < 3; ++i) {
    store_->CopyTo(a, to, [&](const absl::Status& status) {
      EXPECT_TRUE(status.ok()) << status;
      ++done;
    });
  }
  EXPECT_EQ(backend_->device(to).copies(), 1u) << "one for all three";
  EXPECT_EQ(done, 0);
  backend_->device(to).RunCopies();
  EXPECT_EQ(done, 3);
  ASSERT_NE(a->data(to), nullptr);
  EXPECT_EQ(std::memcmp(a->data(to), bytes.data(), bytes.size()), 0);
  EXPECT_EQ(store_->used_bytes(), 3 * 1024u);
  store_->CopyTo(a, to, [&](const absl::Status& status) { ++done; });
  EXPECT_EQ(done, 4) << "at once";
}

TEST_F(MatrixStoreTest, ACopyWithoutRoomIsRefusedToAllThatWait) {
  Make({}, {4096, 1024});
  ASSERT_TRUE(Upload("a", 32, 16).ok());
  const auto a = *store_->Find("alice", "a");
  ASSERT_EQ(a->home(), 0);
  absl::Status status;
  store_->CopyTo(a, 1, [&](absl::Status s) { status = std::move(s); });
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
}

TEST_F(MatrixStoreTest, ReadsARangeBack) {
  const std::string bytes = RandomBytes(4 * 4 * 4);
  ASSERT_TRUE(Upload(Spec("a", 4, 4), bytes).ok());
  std::string got;
  store_->Read(*store_->Find("alice", "a"), 16,
               *backend_->staging().Allocate(32),
               [&](const absl::Status& status, StagingBuffer buffer) {
                 got.assign(reinterpret_cast<char*>(buffer.data()), 32);
               });
  EXPECT_EQ(got, bytes.substr(16, 32));
}

TEST_F(MatrixStoreTest, ReadingKeepsTheMatrixUntilItIsDone) {
  ASSERT_TRUE(Upload("a", 4, 4).ok());
  backend_->device().Hold();
  absl::Status got = absl::UnknownError("not yet");
  store_->Read(*store_->Find("alice", "a"), 0,
               *backend_->staging().Allocate(64),
               [&](absl::Status status, StagingBuffer) { got = status; });
  ASSERT_TRUE(store_->Delete("alice", "a").ok());
  EXPECT_EQ(store_->used_bytes(), 64u);
  backend_->device().RunCopies();
  EXPECT_TRUE(got.ok());
  EXPECT_EQ(store_->used_bytes(), 0u);
}

}  // namespace
}  // namespace gemmd
