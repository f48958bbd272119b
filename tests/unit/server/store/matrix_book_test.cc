// The book against a model written as plainly as it can be, on long random
// histories.

#include "server/store/matrix_book.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "tests/unit/server/store/fake_backend.h"

namespace gemmd {
namespace {

using Matrix = MatrixBook::Matrix;
using std::chrono::seconds;

// A name, and all that there is to know of it.
struct ModelName {
  std::string client, id, digest;
  const StoredMatrix* matrix;
  seconds ttl, last_use;
};

class MatrixBookTest : public ::testing::Test {
 protected:
  static MonotonicTime Time(seconds s) { return MonotonicTime(s); }

  // On one of two devices, and of one of two shapes.
  Matrix MakeMatrix() {
    const int on = static_cast<int>(random_() % 2);
    return std::make_shared<StoredMatrix>(
        1, AnyCols(), *backend_.device(on).AllocateResident(32));
  }
  int64_t AnyCols() { return random_() % 2 ? 8 : 1; }

  auto Locate(const std::string& client, const std::string& id) {
    return std::find_if(model_.begin(), model_.end(), [&](const ModelName& n) {
      return n.client == client && n.id == id;
    });
  }
  bool InUse(const StoredMatrix* matrix) const {
    return std::any_of(held_.begin(), held_.end(), [&](const Matrix& held) {
      return held.get() == matrix;
    });
  }
  // By whatever name, of those that are gone too.
  struct Use {
    seconds time;
    int order;  // among all uses
  };
  seconds Used(const StoredMatrix* matrix) {
    last_use_[matrix] = {now_, ++order_};
    return now_;
  }

  void Put(const std::string& client, const std::string& id,
           const std::string& digest, seconds ttl) {
    Matrix matrix = MakeMatrix();
    const StoredMatrix* const raw = matrix.get();
    const auto old = Locate(client, id);
    const bool replaced =
        book_.Put(client, id, std::move(matrix), digest, ttl, Time(now_)).any;
    EXPECT_EQ(replaced, old != model_.end());
    if (old != model_.end()) model_.erase(old);
    model_.push_back({client, id, digest, raw, ttl, Used(raw)});
  }

  void AddName(const std::string& client, const std::string& id,
               const std::string& digest, seconds ttl) {
    if (Locate(client, id) != model_.end()) return;
    const int64_t cols = AnyCols();
    const auto fits = [&](const ModelName& name) {
      return name.client == client && name.digest == digest &&
             name.matrix->cols() == cols;
    };
    const bool wanted = std::any_of(model_.begin(), model_.end(), fits);
    ASSERT_EQ(book_.AddName(client, id, digest, 1, cols, ttl, Time(now_)),
              wanted);
    if (!wanted) return;
    // Any of those that fit will do.
    const StoredMatrix* const given = book_.Peek(client, id);
    EXPECT_TRUE(std::any_of(model_.begin(), model_.end(), [&](const auto& n) {
      return fits(n) && n.matrix == given;
    }));
    model_.push_back({client, id, digest, given, ttl, Used(given)});
  }

  void FindOne(const std::string& client, const std::string& id) {
    Matrix found = book_.Find(client, id, Time(now_));
    const auto name = Locate(client, id);
    ASSERT_EQ(found.get(), name == model_.end() ? nullptr : name->matrix);
    if (found == nullptr) return;
    name->last_use = Used(name->matrix);
    if (random_() % 3 == 0) held_.push_back(std::move(found));
  }

  void Expire() {
    const auto before = model_.size();
    std::sort(model_.begin(), model_.end(), [](const auto& a, const auto& b) {
      return std::tie(a.client, a.id) < std::tie(b.client, b.id);
    });
    for (ModelName& name : model_) {
      if (name.last_use + name.ttl <= now_ && InUse(name.matrix) &&
          name.last_use == last_use_[name.matrix].time) {
        name.last_use = Used(name.matrix);
      }
    }
    std::erase_if(model_, [&](const ModelName& name) {
      return name.last_use + name.ttl <= now_;
    });
    EXPECT_EQ(book_.RemoveExpired(Time(now_)).names,
              static_cast<int>(before - model_.size()));
  }

  // Least recently used first, those of a client or of a device.
  void Evict(const std::string* client, int device) {
    const size_t bytes = 1 + random_() % 100;
    std::vector<const StoredMatrix*> candidates;
    for (const ModelName& name : model_) {
      const bool meant = client != nullptr ? name.client == *client
                                           : name.matrix->home() == device;
      if (meant && !InUse(name.matrix)) candidates.push_back(name.matrix);
    }
    std::sort(candidates.begin(), candidates.end(),
              [&](const auto* a, const auto* b) {
                return last_use_[a].order < last_use_[b].order;
              });
    candidates.erase(std::unique(candidates.begin(), candidates.end()),
                     candidates.end());
    size_t found = 0;
    size_t count = 0;
    while (count < candidates.size() && found < bytes) {
      found += candidates[count++]->bytes();
    }
    if (found < bytes) count = 0;
    candidates.resize(count);
    const std::vector<Matrix> evicted =
        book_.Evict(bytes, device, client).matrices;
    ASSERT_EQ(evicted.size(), candidates.size());
    for (size_t i = 0; i < count; ++i) {
      EXPECT_EQ(evicted[i].get(), candidates[i]);
    }
    std::erase_if(model_, [&](const ModelName& name) {
      return std::find(candidates.begin(), candidates.end(), name.matrix) !=
             candidates.end();
    });
  }

  void ExpectSameLists() {
    for (const char* const client : {"alice", "bob"}) {
      std::vector<ModelName> wanted;
      for (const ModelName& name : model_) {
        if (name.client == client) wanted.push_back(name);
      }
      std::sort(wanted.begin(), wanted.end(),
                [](const auto& a, const auto& b) { return a.id < b.id; });
      const std::vector<MatrixBook::Row> rows = book_.List(client);
      ASSERT_EQ(rows.size(), wanted.size());
      for (size_t i = 0; i < rows.size(); ++i) {
        EXPECT_EQ(rows[i].id, wanted[i].id);
        EXPECT_EQ(rows[i].matrix, wanted[i].matrix);
        EXPECT_EQ(rows[i].uses > 0, InUse(wanted[i].matrix));
        EXPECT_EQ(rows[i].expires, Time(wanted[i].last_use + wanted[i].ttl));
        EXPECT_LE(book_.next_expiry(), rows[i].expires);
      }
    }
  }

  const unsigned seed_ = std::random_device{}();
  const testing::ScopedTrace trace_{__FILE__, __LINE__,
                                    testing::Message() << "seed " << seed_};
  std::mt19937 random_{seed_};
  FakeStoreBackend backend_{{1 << 20, 1 << 20}};
  MatrixBook book_;
  std::vector<ModelName> model_;
  std::vector<Matrix> held_;  // by users
  seconds now_{1000};
  std::map<const StoredMatrix*, Use> last_use_;
  int order_ = 0;
};

TEST_F(MatrixBookTest, DoesAsAPlainModelDoes) {
  for (int step = 0; step < 20'000 && !HasFailure(); ++step) {
    now_ += seconds(1 + random_() % 3);  // no two uses at one time
    const std::string client = random_() % 2 ? "alice" : "bob";
    const std::string id = absl::StrCat("id", random_() % 5);
    const std::string digest = absl::StrCat("digest", random_() % 3);
    const seconds ttl(1 + random_() % 60);
    switch (random_() % 9) {
      case 0:
      case 1:
        Put(client, id, random_() % 2 ? digest : "", ttl);
        break;
      case 2:
        AddName(client, id, digest, ttl);
        break;
      case 3:
      case 4:
        FindOne(client, id);
        break;
      case 5: {
        const auto name = Locate(client, id);
        EXPECT_EQ(book_.Remove(client, id).any, name != model_.end());
        if (name != model_.end()) model_.erase(name);
        break;
      }
      case 6:
        if (!held_.empty()) held_.erase(held_.begin());
        break;
      case 7:
        Expire();
        break;
      default:
        Evict(random_() % 2 ? &client : nullptr,
              static_cast<int>(random_() % 2));
    }
    ASSERT_EQ(book_.names(), static_cast<int64_t>(model_.size()));
    ExpectSameLists();
  }
  // One at a time, the least recently used first.
  while (const Matrix one = book_.EvictOne()) {
    EXPECT_FALSE(InUse(one.get()));
    for (const ModelName& name : model_) {
      EXPECT_TRUE(name.matrix == one.get() || InUse(name.matrix) ||
                  last_use_[name.matrix].order > last_use_[one.get()].order);
    }
    std::erase_if(model_, [&](const auto& n) { return n.matrix == one.get(); });
  }
  ExpectSameLists();
  // Nothing is kept that has no name.
  model_.clear();
  held_.clear();
  book_.RemoveExpired(kNever - seconds(1));
  EXPECT_EQ(book_.names(), 0);
  EXPECT_EQ(backend_.device(0).used() + backend_.device(1).used(), 0u);
}

}  // namespace
}  // namespace gemmd
