#include "server/store/matrix_book.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

namespace gemmd {
namespace {

// kNever where the sum would be past it.
MonotonicTime After(MonotonicTime time, MonotonicDuration wait) {
  return wait > kNever - time ? kNever : time + wait;
}

// A client's forms count on whatever device they are.
std::optional<int> FormsOn(int device, const std::string* client) {
  return client == nullptr ? std::make_optional(device) : std::nullopt;
}

}  // namespace

const MatrixBook::Name* MatrixBook::FindName(absl::string_view client,
                                             absl::string_view id) const {
  const auto owner = clients_.find(client);
  if (owner == clients_.end()) return nullptr;
  const auto name = owner->second.names.find(id);
  return name == owner->second.names.end() ? nullptr : &name->second;
}

MatrixBook::Name* MatrixBook::FindName(absl::string_view client,
                                       absl::string_view id) {
  return const_cast<Name*>(std::as_const(*this).FindName(client, id));
}

void MatrixBook::Use(Name& name, MonotonicTime now) {
  name.last_use = now;
  name.holding->last_use = now;
  holdings_.splice(holdings_.end(), holdings_, name.holding);
}

MatrixBook::Matrix MatrixBook::Find(absl::string_view client,
                                    absl::string_view id, MonotonicTime now) {
  Name* const name = FindName(client, id);
  if (name == nullptr) return nullptr;
  Use(*name, now);
  return name->holding->matrix;
}

const StoredMatrix* MatrixBook::Peek(absl::string_view client,
                                     absl::string_view id) const {
  const Name* const name = FindName(client, id);
  return name == nullptr ? nullptr : name->holding->matrix.get();
}

std::string MatrixBook::DigestOf(absl::string_view client,
                                 absl::string_view id) const {
  const Name* const name = FindName(client, id);
  return name == nullptr ? "" : name->holding->digest;
}

MonotonicDuration MatrixBook::TtlOf(absl::string_view client,
                                    absl::string_view id,
                                    MonotonicDuration otherwise) const {
  const Name* const name = FindName(client, id);
  return name == nullptr ? otherwise : name->ttl;
}

bool MatrixBook::AddName(absl::string_view client, absl::string_view id,
                         absl::string_view digest, int64_t rows, int64_t cols,
                         MonotonicDuration ttl, MonotonicTime now) {
  const auto owner = clients_.find(client);
  if (owner == clients_.end()) return false;
  const auto [begin, end] =
      owner->second.by_digest.equal_range(std::string(digest));
  const auto found = std::find_if(begin, end, [&](const auto& entry) {
    const StoredMatrix& matrix = *entry.second->matrix;
    return matrix.rows() == rows && matrix.cols() == cols;
  });
  if (found == end) return false;
  if (Name* const name = FindName(client, id)) {
    Use(*name, now);
    name->ttl = ttl;
    next_expiry_ = std::min(next_expiry_, After(now, ttl));
  } else {
    Enter(client, id, found->second, ttl, now);
  }
  return true;
}

MatrixBook::Replaced MatrixBook::Put(absl::string_view client,
                                     absl::string_view id, Matrix matrix,
                                     absl::string_view digest,
                                     MonotonicDuration ttl, MonotonicTime now) {
  Replaced replaced = Remove(client, id);
  const auto holding = holdings_.insert(
      holdings_.end(),
      {std::string(client), std::string(digest), std::move(matrix), now, {}});
  Enter(client, id, holding, ttl, now);
  if (!digest.empty()) {
    clients_.find(client)->second.by_digest.emplace(digest, holding);
  }
  return replaced;
}

void MatrixBook::Enter(absl::string_view client, absl::string_view id,
                       Holdings::iterator holding, MonotonicDuration ttl,
                       MonotonicTime now) {
  Names& names = clients_[std::string(client)].names;
  Use(names.emplace(id, Name{holding, ttl, now}).first->second, now);
  holding->ids.emplace_back(id);
  ++names_;
  next_expiry_ = std::min(next_expiry_, After(now, ttl));
}

MatrixBook::Replaced MatrixBook::Remove(absl::string_view client,
                                        absl::string_view id) {
  const auto owner = clients_.find(client);
  if (owner == clients_.end()) return {};
  const auto name = owner->second.names.find(id);
  if (name == owner->second.names.end()) return {};
  Replaced replaced{true, Take(owner->second, name)};
  EraseIfEmpty(owner);
  return replaced;
}

MatrixBook::Matrix MatrixBook::Take(Client& client, Names::iterator name) {
  const Holdings::iterator holding = name->second.holding;
  std::erase(holding->ids, name->first);
  client.names.erase(name);
  --names_;
  if (!holding->ids.empty()) return nullptr;
  const auto [begin, end] = client.by_digest.equal_range(holding->digest);
  const auto found = std::find_if(
      begin, end, [&](const auto& entry) { return entry.second == holding; });
  if (found != end) client.by_digest.erase(found);
  Matrix matrix = std::move(holding->matrix);
  holdings_.erase(holding);
  return matrix;
}

void MatrixBook::EraseIfEmpty(Clients::iterator client) {
  if (client->second.names.empty()) clients_.erase(client);
}

MatrixBook::Matrix MatrixBook::Forget(Holdings::iterator holding) {
  const auto owner = clients_.find(holding->client);
  Matrix matrix;
  for (size_t names = holding->ids.size(); names > 0; --names) {
    matrix = Take(owner->second, owner->second.names.find(holding->ids.back()));
  }
  EraseIfEmpty(owner);
  return matrix;
}

MatrixBook::Expired MatrixBook::RemoveExpired(MonotonicTime now) {
  Expired expired;
  next_expiry_ = kNever;
  for (auto owner = clients_.begin(); owner != clients_.end();) {
    Names& names = owner->second.names;
    for (auto it = names.begin(); it != names.end();) {
      const auto name = it++;
      const Holding& holding = *name->second.holding;
      const bool expires =
          After(name->second.last_use, name->second.ttl) <= now;
      if (expires &&
          !(holding.in_use() && name->second.last_use == holding.last_use)) {
        ++expired.names;
        Matrix matrix = Take(owner->second, name);
        if (matrix != nullptr) expired.matrices.push_back(std::move(matrix));
        continue;
      }
      if (expires) Use(name->second, now);
      next_expiry_ = std::min(next_expiry_,
                              After(name->second.last_use, name->second.ttl));
    }
    EraseIfEmpty(owner++);
  }
  return expired;
}

MatrixBook::Victims MatrixBook::IdleForms(size_t bytes, int device,
                                          const std::string* client) {
  Victims victims;
  for (auto it = holdings_.begin();
       it != holdings_.end() && victims.bytes < bytes; ++it) {
    if (client != nullptr && it->client != *client) continue;
    const size_t idle = it->matrix->idle_form_bytes(FormsOn(device, client));
    if (idle == 0) continue;
    victims.holdings.push_back(it);
    victims.bytes += idle;
  }
  return victims;
}

// Their forms are not counted: those go first.
MatrixBook::Victims MatrixBook::IdleMatrices(size_t bytes, int device,
                                             const std::string* client) {
  Victims victims;
  for (auto it = holdings_.begin();
       it != holdings_.end() && victims.bytes < bytes; ++it) {
    if (it->in_use()) continue;
    if (client != nullptr ? it->client != *client
                          : it->matrix->data(device) == nullptr) {
      continue;
    }
    victims.holdings.push_back(it);
    victims.bytes += std::max<size_t>(1, it->matrix->bytes());
  }
  return victims;
}

void MatrixBook::TakeForms(const Victims& victims, int device,
                           const std::string* client, Evicted& evicted) {
  for (const auto holding : victims.holdings) {
    auto idle = holding->matrix->TakeIdleForms(FormsOn(device, client));
    std::move(idle.begin(), idle.end(), std::back_inserter(evicted.forms));
  }
}

MatrixBook::Evicted MatrixBook::EvictForms(size_t bytes, int device,
                                           const std::string* client) {
  Evicted evicted;
  const Victims forms = IdleForms(bytes, device, client);
  if (forms.bytes >= bytes) TakeForms(forms, device, client, evicted);
  return evicted;
}

MatrixBook::Evicted MatrixBook::Evict(size_t bytes, int device,
                                      const std::string* client) {
  Evicted evicted;
  const Victims forms = IdleForms(bytes, device, client);
  Victims matrices;
  if (forms.bytes < bytes) {
    matrices = IdleMatrices(bytes - forms.bytes, device, client);
  }
  if (forms.bytes + matrices.bytes < bytes) return evicted;
  TakeForms(forms, device, client, evicted);
  for (const auto holding : matrices.holdings) {
    evicted.matrices.push_back(Forget(holding));
  }
  return evicted;
}

MatrixBook::Matrix MatrixBook::EvictOne() {
  const auto oldest =
      std::find_if(holdings_.begin(), holdings_.end(),
                   [](const Holding& holding) { return !holding.in_use(); });
  return oldest == holdings_.end() ? nullptr : Forget(oldest);
}

std::vector<MatrixBook::Row> MatrixBook::List(absl::string_view client) const {
  std::vector<Row> rows;
  const auto owner = clients_.find(client);
  if (owner == clients_.end()) return rows;
  for (const auto& [id, name] : owner->second.names) {
    const Holding& holding = *name.holding;
    rows.push_back({id, holding.matrix.get(), holding.matrix.use_count() - 1,
                    After(name.last_use, name.ttl)});
  }
  return rows;
}

}  // namespace gemmd
