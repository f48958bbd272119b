// Which client calls which matrix by which names, and which goes first: the
// store's policy, alone.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/monotonic_time.h"
#include "server/store/stored_matrix.h"

namespace gemmd {

// Complete matrices by client and id. A matrix may have several ids of its
// client's. It is in use while anybody besides the book holds it.
//
// Pure: time is a parameter, and nobody is called. What leaves the book is
// handed to the caller, who lets go of it where no lock is held: that may be
// the end of it.
//
// Find, Put and Remove are O(log n); RemoveExpired is O(n), to be called when
// next_expiry() has come. Thread-compatible.
class MatrixBook {
 public:
  using Matrix = std::shared_ptr<StoredMatrix>;

  // The matrix, used now; null if there is none.
  Matrix Find(absl::string_view client, absl::string_view id,
              MonotonicTime now);

  // Looks without using it.
  const StoredMatrix* Peek(absl::string_view client,
                           absl::string_view id) const;
  // Its digest; empty where it is not known or the id is not.
  std::string DigestOf(absl::string_view client, absl::string_view id) const;

  // Whether the client has a matrix of that digest and shape; gives it the name
  // `id` too (which is free or its own already) and uses it now.
  bool AddName(absl::string_view client, absl::string_view id,
               absl::string_view digest, int64_t rows, int64_t cols,
               MonotonicDuration ttl, MonotonicTime now);

  // Enters a matrix under a name, used now. What had the name loses it and is
  // returned where that was its last; null if nothing had it.
  struct Replaced {
    bool any = false;
    Matrix matrix;
  };
  Replaced Put(absl::string_view client, absl::string_view id, Matrix matrix,
               absl::string_view digest, MonotonicDuration ttl,
               MonotonicTime now);

  // The time to live of a name, or `otherwise` where there is no such name.
  MonotonicDuration TtlOf(absl::string_view client, absl::string_view id,
                          MonotonicDuration otherwise) const;

  // Forgets a name, as Put does with the one it replaces.
  Replaced Remove(absl::string_view client, absl::string_view id);

  // Forgets every name that has not been used for its time to live. A matrix in
  // use is used now, by the name that was used last.
  struct Expired {
    int names = 0;
    std::vector<Matrix> matrices;  // that lost their last name
  };
  Expired RemoveExpired(MonotonicTime now);

  // When RemoveExpired may next have something; never later than the truth.
  MonotonicTime next_expiry() const { return next_expiry_; }

  // Gives `bytes` up that nobody uses, least recently used first: forms of
  // matrices, then whole matrices, and none where that would not do. On
  // `device`, or those of `client` where that is given. EvictForms leaves the
  // matrices alone.
  struct Evicted {
    std::vector<std::shared_ptr<OperandForm>> forms;
    std::vector<Matrix> matrices;
    bool any() const { return !forms.empty() || !matrices.empty(); }
  };
  Evicted Evict(size_t bytes, int device, const std::string* client);
  Evicted EvictForms(size_t bytes, int device, const std::string* client);
  // The least recently used matrix that nobody uses; null if there is none.
  Matrix EvictOne();

  // A client's names, in order of id.
  struct Row {
    std::string id;
    const StoredMatrix* matrix;  // valid until the book changes
    int64_t uses;
    MonotonicTime expires;
  };
  std::vector<Row> List(absl::string_view client) const;

  int64_t names() const { return names_; }

 private:
  // A matrix and all that is known of it, least recently used first.
  struct Holding {
    std::string client;
    std::string digest;
    Matrix matrix;
    MonotonicTime last_use;
    std::vector<std::string> ids;

    bool in_use() const { return matrix.use_count() > 1; }
  };
  using Holdings = std::list<Holding>;

  struct Name {
    Holdings::iterator holding;
    MonotonicDuration ttl;
    MonotonicTime last_use;  // by this name
  };
  using Names = std::map<std::string, Name, std::less<>>;
  struct Client {
    Names names;
    std::multimap<std::string, Holdings::iterator> by_digest;
  };
  using Clients = std::map<std::string, Client, std::less<>>;

  const Name* FindName(absl::string_view client, absl::string_view id) const;
  Name* FindName(absl::string_view client, absl::string_view id);
  void Use(Name& name, MonotonicTime now);
  // Enters a name that is not there.
  void Enter(absl::string_view client, absl::string_view id,
             Holdings::iterator holding, MonotonicDuration ttl,
             MonotonicTime now);
  // Takes a name out, and what goes with it; the matrix if it was its last.
  Matrix Take(Client& client, Names::iterator name);
  void EraseIfEmpty(Clients::iterator client);
  // Takes out all of a holding's names and itself.
  Matrix Forget(Holdings::iterator holding);

  // What could be given up, least recently used first, until it is `bytes`.
  struct Victims {
    size_t bytes = 0;
    std::vector<Holdings::iterator> holdings;
  };
  Victims IdleForms(size_t bytes, int device, const std::string* client);
  Victims IdleMatrices(size_t bytes, int device, const std::string* client);
  static void TakeForms(const Victims& victims, int device,
                        const std::string* client, Evicted& evicted);

  Holdings holdings_;
  Clients clients_;
  int64_t names_ = 0;
  MonotonicTime next_expiry_ = kNever;
};

}  // namespace gemmd
